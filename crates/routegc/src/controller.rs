//! When each policy is reconciled: at its interval, at once when it changes, soon after a Node of its cluster is deleted, and later
//! after a failure. A policy whose cloud does not respond delays no other one.

mod schedule;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::api::routegc::{ALLOW_ANNOTATION, NodesFrom, RouteGC, RouteGCSpec, RouteGCStatus};
use common::backoff::Backoff;
use common::cache::{Cache, Change, ObjectKey};
use common::cloud::openstack::{self, Cloud, Credentials};
use common::controller::{Controller, Next, Queue};
use common::events::Events;
use common::routes::Route;
use common::runtime::Runtime;
use common::secret::KubeconfigClient;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;

use self::schedule::{Schedule, Trigger};
use crate::config::Config;
use crate::conflict::{conflicts, router};
use crate::error::Error;
use crate::metrics::{Metrics, Series};
use crate::nodes;
use crate::plan::Reason;
use crate::reconcile::Reconciler;
use crate::source::{CONTROLLER, PolicySource};

/// Policies at a time. A few clouds that do not respond must leave workers for the others; the memory for a thousand ports each is
/// small.
const MAX_CONCURRENT_RECONCILES: usize = 16;

/// A cloud's API that restarts needs longer than the first delay; `RoutegcReconcileErrors` looks for failures in half an hour.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };

/// The longest Retry-After of a cloud that is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The index of the cached RouteGCs by router.
const BY_ROUTER: &str = "router";

/// Reconciles the policies until shutdown. With `once`, reconciles each of them once.
///
/// # Errors
/// With `once`, the first failure. A lost Lease is not an error of this function, because the runtime ends the process.
pub async fn run(runtime: Runtime, config: Config, once: bool) -> anyhow::Result<()> {
    let policies = matches!(config, Config::Objects).then(|| {
        let api = Api::<RouteGC>::namespaced(runtime.client.clone(), &runtime.namespace);
        runtime.cache(api).trim(trim).index(BY_ROUTER, |object| router(object).into_iter().collect()).start()
    });
    let queue = Arc::new(OnceLock::new());
    let mut reconciler = reconciler(&runtime, config)?;
    reconciler.policies = policies.clone();
    reconciler.queue = Arc::clone(&queue);
    let controller = Controller::new(&runtime, CONTROLLER, reconciler)
        .max_concurrent_reconciles(MAX_CONCURRENT_RECONCILES)
        .backoff(BACKOFF);
    let controller = match policies {
        Some(policies) => {
            let of_router = policies.clone();
            controller.watches(&policies, move |change, queue| enqueue(&of_router, change, queue))
        }
        None => {
            // Nothing is cached: ready from the start.
            runtime.readiness.check("flags").ready();
            controller.queue().add(PolicySource::Flags);
            controller
        }
    };
    if once {
        return controller.once().await;
    }
    // This is the only `set`. While it is unset, no Nodes are watched.
    let _set = queue.set(controller.queue());
    controller.run().await
}

/// Creates the reconciler.
///
/// # Errors
/// A metric's name is registered already.
pub fn reconciler(runtime: &Runtime, config: Config) -> anyhow::Result<Reconciler> {
    Ok(Reconciler {
        runtime: runtime.clone(),
        metrics: Metrics::new(runtime.metrics.clone())?,
        openstack: openstack::Metrics::register(runtime.metrics.registry())?,
        config,
        policies: None,
        queue: Arc::default(),
    })
}

/// Removes the fields that no decision reads. Their changes do not trigger a reconciliation. The router is read: policies conflict by it.
fn trim(object: &mut RouteGC) {
    let router_id = object.status.take().and_then(|status| status.router_id);
    object.status = router_id.map(|id| RouteGCStatus { router_id: Some(id), ..RouteGCStatus::default() });
}

fn is_deleting(object: &RouteGC) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// Adds the changed policy and all policies of its routers, because their conflicts may have changed.
fn enqueue(policies: &Cache<RouteGC>, change: &Change<RouteGC>, queue: &Queue<PolicySource>) {
    let versions: &[&Arc<RouteGC>] = match change {
        Change::Updated { old, new } => &[old, new],
        Change::Added(object) | Change::Deleted(object) => &[object],
    };
    queue.add(PolicySource::Object(change.object().name_any()));
    for object in versions {
        for other in router(object).iter().flat_map(|router| policies.indexed(BY_ROUTER, router)) {
            queue.add(PolicySource::Object(other.name_any()));
        }
    }
}

/// State of one policy in the process. A restart may lose it.
pub struct Memo {
    /// Reports a problem once for this policy.
    pub events: Events,
    /// The same for the problem of a reconciliation that failed. The problems of the last complete one stay reported meanwhile.
    pub failure: Events,
    /// The client of its cloud, which keeps its token, and the credentials that it was made with.
    pub login: Option<(Credentials, Cloud)>,
    /// The client of the cluster that the Nodes belong to.
    pub target: KubeconfigClient,
    /// The routes whose removal was certainly not carried out: the cloud refused it, or the policy had changed and the intent could not be
    /// withdrawn. The intent stays in the status, so that a permanent refusal causes no writes. After a restart this is unknown.
    pub not_removed: Option<Vec<Route>>,
    /// The routes of a removal whose result is reported, but not yet in the status. After a restart this is unknown, and those that are
    /// gone are reported once more.
    pub reported: Option<Vec<Route>>,
    /// The series of its metrics.
    pub series: Option<Series>,
    /// Its key on `/statusz`.
    pub page: Option<String>,
    /// Time between two reconciliations.
    pub interval: Duration,
    schedule: Schedule,
    nodes: Option<(NodesFrom, Cache<PartialObjectMeta<nodes::Node>>)>,
}

impl common::controller::Reconciler for Reconciler {
    type Key = PolicySource;
    type Memo = Memo;
    type Error = Error;

    fn memo(&self, _: &PolicySource) -> Memo {
        Memo {
            events: self.runtime.events.scoped(),
            failure: self.runtime.events.scoped(),
            login: None,
            target: KubeconfigClient::default(),
            not_removed: None,
            reported: None,
            series: None,
            page: None,
            interval: BACKOFF.max,
            schedule: Schedule::default(),
            nodes: None,
        }
    }

    async fn reconcile(&self, source: &PolicySource, memo: &mut Memo) -> Result<Next, Error> {
        self.metrics.policies(self.policies.as_ref().map_or(1, Cache::len));
        let Some(trigger) = self.trigger(source) else { return Ok(self.gone(memo)) };
        let wait = memo.schedule.wait(&trigger, Instant::now());
        if !wait.is_zero() {
            return Ok(Next::NotYet(wait));
        }
        let conflict = trigger.conflict.clone();
        memo.schedule.begins(trigger);
        match self.reconcile_policy(source, memo, conflict).await {
            Ok(problems) => {
                memo.events.found(&problems);
                memo.failure.found::<Reason>(&[]);
                // Many policies must not be reconciled at the same moment.
                let next = memo.interval.mul_f64(0.9 + fastrand::f64() / 5.0);
                memo.schedule.ended(false, next, Instant::now());
                Ok(Next::After(next))
            }
            Err((error, _)) if error.is_gone(source) => Ok(self.gone(memo)),
            // The problems were not observed completely: those that are reported stay so.
            Err((error, _)) if error.is_outdated() => Err(error),
            Err((error, problem)) => {
                memo.failure.found(problem.as_slice());
                Err(error)
            }
        }
    }

    fn is_outdated(error: &Error) -> bool {
        error.is_outdated()
    }

    fn retry_after(&self, memo: &mut Memo, error: &Error, backoff: Duration) -> Duration {
        let delay = retry_after(error, memo.interval, backoff);
        memo.schedule.ended(!error.is_outdated(), delay, Instant::now());
        delay
    }
}

/// After a failure sooner than the interval, and never sooner than the cloud asks for.
fn retry_after(error: &Error, interval: Duration, backoff: Duration) -> Duration {
    let delay = backoff.min(interval.max(BACKOFF.base));
    error.retry_after().map_or(delay, |asked| delay.max(asked.min(RETRY_AFTER_MAX)))
}

impl Reconciler {
    /// The part of the policy whose change triggers an immediate reconciliation. None if the policy no longer exists.
    fn trigger(&self, source: &PolicySource) -> Option<Trigger> {
        let (Some(policies), PolicySource::Object(name)) = (&self.policies, source) else {
            return Some(Trigger::default());
        };
        let key = ObjectKey::new(&self.runtime.namespace, name);
        let object = policies.get(&key).filter(|object| !is_deleting(object))?;
        let rivals = router(&object).map(|router| policies.indexed(BY_ROUTER, &router)).unwrap_or_default();
        Some(Trigger {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation,
            allow: object.annotations().get(ALLOW_ANNOTATION).cloned(),
            conflict: conflicts(rivals.iter().map(Arc::as_ref)).remove(source),
        })
    }

    fn gone(&self, memo: &mut Memo) -> Next {
        if let Some(series) = memo.series.take() {
            self.metrics.forget(&series);
        }
        if let Some(page) = memo.page.take() {
            self.runtime.status.remove(&page);
        }
        Next::Gone
    }

    /// Watches the Nodes of the policy, so that the deletion of a Node triggers a reconciliation. An event that the watch misses is
    /// found by the next reconciliation. A watch that fails is replaced, because the kubeconfig may have changed.
    pub fn watch_nodes(
        &self,
        source: &PolicySource,
        spec: &RouteGCSpec,
        memo: &mut Memo,
        client: Option<&kube::Client>,
    ) {
        let (Some(queue), Some(from), Some(client)) = (self.queue.get(), &spec.nodes_from, client) else {
            memo.nodes = None;
            return;
        };
        let works = |(watched, cache): &(NodesFrom, Cache<_>)| {
            watched == from && cache.health().borrow().problem.is_none()
        };
        if !memo.nodes.as_ref().is_some_and(works) {
            let (queue, source, deletions) = (queue.clone(), source.clone(), memo.schedule.deletions());
            let cache = nodes::watch(client, &self.runtime.metrics, move || {
                queue.add_after(source.clone(), deletions.record(Instant::now()));
            });
            memo.nodes = Some((from.clone(), cache));
        }
    }
}

#[cfg(test)]
mod tests {
    use common::routes::RemovalError;

    use super::*;

    #[test]
    fn the_backoff_of_failures_grows_up_to_the_interval() {
        let minutes = Duration::from_secs(300);
        let error = Error::Login("no".to_owned());
        let delays = |interval| -> Vec<u64> {
            (1..9).map(|failures| retry_after(&error, interval, BACKOFF.delay(failures)).as_secs()).collect()
        };
        assert_eq!(delays(minutes), [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(delays(minutes * 12), delays(minutes), "the alert looks for failures in half an hour");
        assert_eq!(delays(Duration::from_secs(10)), [5, 10, 10, 10, 10, 10, 10, 10]);
    }

    #[test]
    fn a_write_of_another_client_is_left_to_the_retries_of_the_engine() {
        let refused = |code| {
            let status = kube::core::Status::failure("no", "Refused").with_code(code).boxed();
            Error::Write { what: "RouteGC a/b".to_owned(), cause: kube::Error::Api(status) }
        };
        let is_outdated = <Reconciler as common::controller::Reconciler>::is_outdated;
        assert!(is_outdated(&refused(409)) && is_outdated(&RemovalError::PolicyChanged.into()));
        assert!(!is_outdated(&refused(403)));
    }
}
