//! When the bindings are reconciled, all at once: when one of them, one of their objects or a Deorbit changes, and at an interval.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::api::deorbit::Deorbit;
use common::api::deorbit_binding::{DeorbitBinding, DeorbitBindingStatus};
use common::backoff::Backoff;
use common::cache::Cache;
use common::conditions;
use common::controller::{Controller, Next, Queue, Reconciler};
use common::events::Events;
use common::executor::{ActionError as _, Executor};
use common::plan::{Action as _, Plan};
use common::runtime::Runtime;
use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::action::Action;
use super::apply;
use super::metrics::Metrics;
use super::observe::{Observer, kind_of};
use super::plan::{self, Decision, Standing};
use super::watches::Watches;
use crate::error::Error;
use crate::names;

/// The controller's name in metrics and on `/livez`.
pub const CONTROLLER: &str = "deorbitbinding";

/// The only key: two bindings may select the same object, so one decision is about all of them.
const ALL: &str = "all bindings";

/// Changes come in bursts; one reconciliation serves them all.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// Without any change: a kind may have been installed, a right granted, a namespace labelled.
const POLL: Duration = Duration::from_secs(20);

/// After a reconciliation that was decided on outdated facts or could not read everything: long enough for an API server that restarts,
/// short enough for a person who waits.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// After a failure. A failed reconciliation delays no other binding beyond the interval.
const BACKOFF: Backoff = Backoff { base: RETRY_AFTER, max: POLL };

/// Reconciles the bindings until the process is asked to end.
///
/// # Errors
/// A metric that cannot be registered.
pub async fn run(runtime: Runtime, deorbits: Cache<Deorbit>) -> anyhow::Result<()> {
    let bindings = runtime.cache(Api::<DeorbitBinding>::all(runtime.client.clone())).start();
    let queue = Arc::new(OnceLock::new());
    let reconciler = Bindings {
        metrics: Metrics::new(runtime.metrics.registry())?,
        bindings: bindings.clone(),
        deorbits: deorbits.clone(),
        queue: Arc::clone(&queue),
        runtime: runtime.clone(),
    };
    let controller = Controller::new(&runtime, CONTROLLER, reconciler)
        .backoff(BACKOFF)
        .watches(&bindings, |_, queue| queue.add_after(ALL, DEBOUNCE))
        .watches(&deorbits, |_, queue| queue.add_after(ALL, DEBOUNCE));
    // The first one needs no change. Its watches of kinds add to the queue, which is set here, once.
    controller.queue().add(ALL);
    let _set = queue.set(controller.queue());
    controller.run().await
}

struct Bindings {
    runtime: Runtime,
    metrics: Metrics,
    bindings: Cache<DeorbitBinding>,
    deorbits: Cache<Deorbit>,
    queue: Arc<OnceLock<Queue<&'static str>>>,
}

struct Memo {
    /// With its own reported problems: those that this controller does not find again are not those of another one.
    events: Events,
    observer: Observer,
}

impl Reconciler for Bindings {
    type Key = &'static str;
    type Memo = Memo;
    type Error = Error;

    fn memo(&self, _: &&'static str) -> Memo {
        let queue = Arc::clone(&self.queue);
        let on_change =
            Arc::new(move || queue.get().into_iter().for_each(|queue| queue.add_after(ALL, DEBOUNCE)));
        let client = self.runtime.client.clone();
        let watches = Watches::new(client.clone(), self.runtime.metrics.clone(), on_change);
        Memo { events: self.runtime.events.scoped(), observer: Observer::new(client, watches) }
    }

    async fn reconcile(&self, _: &&'static str, memo: &mut Memo) -> Result<Next, Error> {
        let bindings = self.bindings.list();
        let snapshot = memo.observer.observe(&bindings, &self.deorbits.list()).await;
        let Decision { plan, standings } = plan::plan(&snapshot);
        self.metrics.observed(&standings);
        self.runtime.status.set("bindings", plan.to_string());
        memo.events.found(&plan.problems);
        let applied = self.apply(memo, &bindings, &plan).await;
        for binding in &bindings {
            if let Some(standing) = standings.get(&binding.name_any()) {
                self.report(binding, standing).await?;
            }
        }
        match applied {
            Ok(()) if memo.observer.unread => Ok(Next::After(RETRY_AFTER)),
            Ok(()) => Ok(Next::After(POLL)),
            Err(error) if error.is_outdated() => Ok(Next::After(RETRY_AFTER)),
            Err(error) => Err(error),
        }
    }
}

impl Bindings {
    /// Each step is about an object of its own: one that fails stops no other.
    async fn apply(
        &self,
        memo: &mut Memo,
        bindings: &[Arc<DeorbitBinding>],
        plan: &Plan<Action>,
    ) -> Result<(), Error> {
        let by_name: BTreeMap<String, &DeorbitBinding> =
            bindings.iter().map(|binding| (binding.name_any(), &**binding)).collect();
        let executor = Executor { events: &memo.events, ..Executor::from(&self.runtime) };
        let mut failure: Option<Error> = None;
        for step in &plan.steps {
            let object = step.action.regarding();
            let kind = match &step.action {
                Action::ReleaseBinding { binding, .. } => by_name.get(binding).map(|one| kind_of(one)),
                _ => Some((object.api_version.to_owned(), object.kind.to_owned())),
            };
            let kind = kind.and_then(|kind| memo.observer.watches.resource(&kind));
            let action = apply::act(&self.runtime.client, &step.action, kind);
            let Err(error) = executor.execute(step, action).await else { continue };
            if let (Action::CreateDeorbit { target, resource_version, binding, .. }, Some(why)) =
                (&step.action, error.refusal())
            {
                let generation = by_name.get(binding).and_then(|binding| binding.metadata.generation);
                memo.observer.refused(&target.uid, resource_version, generation, why.to_owned());
            }
            match error {
                Error::NotLeading => return Err(error),
                error if error.is_outdated() => failure = failure.or(Some(error)),
                error => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Writes the status where it differs.
    async fn report(&self, binding: &DeorbitBinding, standing: &Standing) -> Result<(), Error> {
        let old = binding.status.clone().unwrap_or_default();
        let mut conditions = old.conditions.clone();
        conditions::set(&mut conditions, standing.condition(binding.metadata.generation), Timestamp::now());
        let new = DeorbitBindingStatus {
            observed_generation: binding.metadata.generation,
            bound: standing.bound,
            deorbiting: standing.deorbiting,
            held: standing.held,
            conditions,
        };
        if new == old || !self.runtime.leadership.is_leading() {
            return Ok(());
        }
        let patch = json!({
            "apiVersion": names::API_VERSION, "kind": "DeorbitBinding",
            "metadata": { "uid": binding.metadata.uid }, "status": new,
        });
        apply::write_status(&self.runtime.client, &binding.name_any(), patch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::server;

    /// An API server with empty lists, which does not stream them.
    fn runtime() -> Runtime {
        crate::controller::tests::runtime(server(|request| {
            let query = request.uri().query().unwrap_or_default();
            Some(match (query.contains("sendInitialEvents"), query.contains("watch=true")) {
                (true, _) => {
                    (422, json!({"kind": "Status", "status": "Failure", "code": 422, "message": "unknown"}))
                }
                (_, true) => return None,
                _ => (200, json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})),
            })
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn each_reconciliation_is_counted_and_is_a_heartbeat() {
        let runtime = runtime();
        let run = tokio::spawn(run(runtime.clone(), crate::controller::deorbits(&runtime, None)));
        let count = || {
            let text = String::from_utf8(runtime.metrics.text().unwrap()).unwrap();
            let series =
                "controller_runtime_reconcile_total{controller=\"deorbitbinding\",result=\"success\"} ";
            text.lines().find_map(|line| line.strip_prefix(series)?.parse::<u32>().ok()).unwrap_or_default()
        };
        let started = tokio::time::Instant::now();
        while count() < 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(started.elapsed() < POLL * 3, "{} reconciliations", count());
        }
        assert!(format!("{:?}", runtime.status).contains(CONTROLLER), "no heartbeat: {:?}", runtime.status);
        runtime.shutdown.cancel();
        run.await.unwrap().unwrap();
    }
}
