//! One reconciliation of one policy: observe, plan, apply, report.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::api::routegc::{RouteGC, RouteGCSpec, RouteGCStatus};
use common::cache::Cache;
use common::cloud::openstack::{self, Cloud};
use common::controller::Queue;
use common::metrics::ActionResult;
use common::plan::{Action as _, Plan, Problem, Reason as _, Regarding, Step};
use common::routes::plan::confirm::record_removal;
use common::routes::{self, Applied, Decision, NodeSource, ObserveError, Policy, RemovalError, Snapshot};
use common::runtime::Runtime;
use jiff::Timestamp;

use crate::config::Config;
use crate::controller::Memo;
use crate::error::Error;
use crate::metrics::{Metrics, Series};
use crate::plan::{self, Action, Reason};
use crate::source::{Document, PolicySource};
use crate::{login, nodes, router, show, status};

/// Timeout of one reconciliation. It usually takes seconds. With a slow cloud and a large network a removal takes minutes, because it
/// observes twice. A cloud that does not respond delays only its own policies.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Reconciles policies.
pub struct Reconciler {
    /// The cluster, Events, leadership.
    pub runtime: Runtime,
    /// routegc's own metrics.
    pub metrics: Metrics,
    /// The metrics of the OpenStack clients.
    pub openstack: openstack::Metrics,
    /// Objects or flags.
    pub config: Config,
    /// The RouteGCs. None if the policy comes from flags, and in a `--dry-run`.
    pub policies: Option<Cache<RouteGC>>,
    /// The queue for policies whose Nodes were deleted. Unset with `--once`.
    pub queue: Arc<OnceLock<Queue<PolicySource>>>,
}

/// A decision and what it was made from.
pub struct Observed {
    /// The policy.
    pub policy: Policy,
    /// The observed state.
    pub snapshot: Snapshot,
    /// The decision.
    pub decision: Decision,
    /// The same as steps and problems.
    pub plan: Plan<Action>,
    cloud: Cloud,
    nodes: Option<NodeSource>,
}

impl Reconciler {
    /// The policy of the flags. None if policies are objects.
    pub fn flags(&self) -> Option<&RouteGCSpec> {
        match &self.config {
            Config::Objects => None,
            Config::Single(single) => Some(&single.spec),
        }
    }

    /// The policy as it is now.
    ///
    /// # Errors
    /// As [`PolicySource::load`].
    pub async fn load(&self, source: &PolicySource) -> Result<Document, Error> {
        source.load(&self.runtime.client, &self.runtime.namespace, self.flags()).await
    }

    /// Reconciles a policy; `conflict` names another policy that covers the same routes. Returns the problems to report.
    ///
    /// # Errors
    /// The error, with the problem to report.
    pub async fn reconcile_policy(
        &self,
        source: &PolicySource,
        memo: &mut Memo,
        conflict: Option<String>,
    ) -> Result<Vec<Problem<Reason>>, (Error, Option<Problem<Reason>>)> {
        let mut document = match self.load(source).await {
            Ok(document) => document,
            Err(error) => {
                if !error.is_gone(source) {
                    let unread = || source.series(&self.runtime.namespace, self.flags());
                    self.metrics.failed(memo.series.get_or_insert_with(unread), error.code());
                }
                return Err((error, None));
            }
        };
        memo.page = Some(document.regarding.to_string());
        memo.interval = document.spec.interval.duration();
        let result = match conflict {
            Some(conflict) => Err(Error::Conflict(conflict)),
            None => match tokio::time::timeout(TIMEOUT, self.observe_and_apply(source, memo, &mut document))
                .await
            {
                Ok(result) => result,
                Err(_) => Err(Error::TooSlow(TIMEOUT)),
            },
        };
        // A RouteGC that was recreated may have another router, and that of a name is known by now.
        let series = document.series();
        if let Some(before) = memo.series.replace(series.clone()).filter(|before| *before != series) {
            self.metrics.forget(&before);
        }
        match result {
            Err(error) if !error.is_outdated() && !error.is_gone(source) => {
                let problem = self.failed(&mut document, &error).await;
                Err((error, Some(problem)))
            }
            result => result.map_err(|error| (error, None)),
        }
    }

    /// Reads the state and decides. It writes nothing. `document` gets the ID of the router.
    ///
    /// # Errors
    /// The state could not be read completely.
    pub async fn observe(
        &self,
        source: &PolicySource,
        memo: &mut Memo,
        document: &mut Document,
    ) -> Result<Observed, Error> {
        let spec = &document.spec;
        let policy = Policy::of(spec).map_err(|error| Error::Policy(format!("spec.podCIDRs: {error}")))?;
        let cloud = self.cloud(memo, spec).await?;
        let (kubernetes, namespace) = (&self.runtime.client, self.runtime.namespace.as_str());
        let recorded = document.status.router_id.as_deref();
        let router = router::resolve(&cloud, kubernetes, namespace, spec, recorded).await?;
        document.router = Some(router.clone());
        let client = match &spec.nodes_from {
            Some(from) => Some(
                nodes::client(&self.runtime, from, &mut memo.target)
                    .await
                    .map_err(|why| Error::Observe(ObserveError::Nodes(why)))?,
            ),
            None => None,
        };
        self.watch_nodes(source, spec, memo, client.as_ref());
        let nodes = client.map(nodes::source);
        let snapshot = routes::observe(&cloud, &policy, &router, nodes.as_ref()).await?;
        let mut history = status::history(&document.status);
        // This removal was refused. If the routes are gone, another client removed them.
        if memo.not_removed.as_ref() == Some(&history.removing) {
            history.removing.clear();
        }
        let allow = document.allow.as_deref();
        let mut decision = routes::plan(&policy, &snapshot, &history, allow, Timestamp::now());
        if memo.reported.as_ref() == Some(&history.removing) {
            decision.carried_out.clear();
        }
        let plan = plan::plan(spec.mode, &router, &document.regarding, &decision);
        Ok(Observed { policy, snapshot, decision, plan, cloud, nodes })
    }

    /// The client of the policy's cloud, with the current credentials. If they are unchanged, the client keeps its token.
    async fn cloud(&self, memo: &mut Memo, spec: &RouteGCSpec) -> Result<Cloud, Error> {
        let credentials = match &self.config {
            Config::Objects => {
                let (client, namespace) = (&self.runtime.client, self.runtime.namespace.as_str());
                login::of_secret(client, namespace, &spec.identity_ref).await?
            }
            Config::Single(single) => single.login.read().map_err(|error| Error::Login(error.to_string()))?.0,
        };
        if let Some((_, cloud)) = memo.login.as_ref().filter(|(same, _)| *same == credentials) {
            return Ok(cloud.clone());
        }
        let cloud = Cloud::new(&credentials, &self.runtime.program.user_agent(), &self.openstack)
            .map_err(|error| Error::Login(error.to_string()))?;
        memo.login = Some((credentials, cloud.clone()));
        Ok(cloud)
    }

    async fn observe_and_apply(
        &self,
        source: &PolicySource,
        memo: &mut Memo,
        document: &mut Document,
    ) -> Result<Vec<Problem<Reason>>, Error> {
        let mut observed = self.observe(source, memo, document).await?;
        let series = document.series();
        if plan::is_blocked(document.spec.mode, &observed.decision) {
            self.metrics.blocked(&series, "threshold");
        }
        let (name, spec) = (document.regarding.to_string(), &document.spec);
        let text = show::text(&name, &series.router, spec.mode, &observed.decision, &observed.plan);
        self.runtime.status.set(name, text);
        let mut problems = observed.plan.problems.clone();
        if !observed.plan.steps.is_empty() {
            problems.extend(self.remove(source, memo, document, &mut observed).await?);
        }
        let now = Timestamp::now();
        let (generation, mode) = (document.generation, document.spec.mode);
        let next = status::decided(&document.status, generation, mode, &observed.decision, None, now);
        self.store(document, next).await?;
        self.report_carried_out(document, &mut observed.decision);
        (memo.not_removed, memo.reported) = (None, None);
        self.metrics.observed(&series, &observed.decision.counts, &observed.decision.quota, now);
        Ok(problems)
    }

    /// Removes the routes of the plan. The intent is written to the status first, so that after a crash the next process knows that
    /// routegc may have removed these routes.
    async fn remove(
        &self,
        source: &PolicySource,
        memo: &mut Memo,
        document: &mut Document,
        observed: &mut Observed,
    ) -> Result<Vec<Problem<Reason>>, Error> {
        let removals = observed.decision.removals.clone();
        let removing: Vec<routes::Route> = removals.iter().map(|one| one.route.clone()).collect();
        observed.decision.history.removing.clone_from(&removing);
        let intent = status::intended(&document.status, &observed.decision.history);
        self.store(document, intent).await?;
        self.report_carried_out(document, &mut observed.decision);
        if !self.runtime.leadership.is_leading() {
            return Err(Error::NotLeading);
        }
        // From here on, the removals may have taken effect if this future is dropped.
        let refused_before = memo.not_removed.take();
        memo.reported = None;
        let desired = document.still_desired(&self.runtime.client, &self.runtime.leadership);
        let nodes = observed.nodes.as_ref();
        let (cloud, policy, snapshot) = (&observed.cloud, &observed.policy, &observed.snapshot);
        let cause = match routes::apply(cloud, policy, snapshot, &removals, nodes, Some(&desired)).await {
            Ok(applied) => {
                // If writing the status fails now, the next reconciliation must not report these removals once more, or count foreign
                // removals as routegc's.
                memo.reported = Some(removing.clone());
                if applied.removed.is_empty() && applied.recreated.is_empty() {
                    memo.not_removed = Some(removing);
                }
                let removed = |step: &&Step<Action>| match &step.action {
                    Action::RemoveRoute { route, .. } => applied.removed.contains(route),
                    Action::RemoveRoutes { .. } => false,
                };
                let steps: Vec<Step<Action>> = observed.plan.steps.iter().filter(removed).cloned().collect();
                self.report_removals(&document.series(), &steps);
                return Ok(settle(&document.regarding, &mut observed.decision, &applied));
            }
            Err(cause) => cause,
        };
        if matches!(cause, RemovalError::PolicyChanged) {
            if let Err(error) = self.withdraw(source, &removing).await {
                tracing::debug!(%error, "the intent of the removal stays in the status");
                // The next reconciliation reads the intent, and learns from this that it was not carried out.
                memo.not_removed = Some(removing);
            }
            let error = Error::from(cause);
            tracing::info!(reason = error.code(), "{error}");
            return Err(error);
        }
        if cause.changed_nothing() {
            // After the second refusal the intent stays, because the next reconciliation has the same one.
            if refused_before.as_ref() != Some(&removing) {
                observed.decision.history.removing.clear();
            }
            memo.not_removed = Some(removing);
        }
        let error = Error::from(cause);
        for step in &observed.plan.steps {
            self.metrics.common.action(step.action.name(), step.because.code(), ActionResult::Failed);
        }
        if let Some(step) = plan::together(&observed.plan.steps) {
            self.runtime.events.failed(&step, &error);
        }
        let (now, generation, mode) = (Timestamp::now(), document.generation, document.spec.mode);
        let next = status::decided(&document.status, generation, mode, &observed.decision, Some(&error), now);
        self.store(document, next).await?;
        Err(error)
    }

    /// Removes the intent of a removal that was not carried out from the status of the current version of the policy. If it stayed while
    /// the next reconciliations cannot decide, then after a restart a route that another client removes would count as removed by routegc.
    async fn withdraw(&self, source: &PolicySource, removing: &[routes::Route]) -> Result<(), Error> {
        let mut document = self.load(source).await?;
        if document.status.removing != removing {
            return Ok(());
        }
        let next = RouteGCStatus { removing: Vec::new(), ..document.status.clone() };
        self.store(&mut document, next).await
    }

    /// Reports the routes that an earlier removal has removed, once the status has them: the process was stopped, or the response did
    /// not arrive.
    fn report_carried_out(&self, document: &Document, decision: &mut Decision) {
        let series = document.series();
        let steps = plan::carried_out(&series.router, &document.regarding, decision);
        decision.carried_out.clear();
        self.report_removals(&series, &steps);
    }

    /// One count for each removed route, and one Event for all: they were removed by one request.
    fn report_removals(&self, series: &Series, steps: &[Step<Action>]) {
        for step in steps {
            self.metrics.common.action(step.action.name(), step.because.code(), ActionResult::Done);
        }
        self.metrics.removed(series, steps.len());
        if let Some(step) = plan::together(steps) {
            self.runtime.events.done(&step);
        }
    }

    async fn store(&self, document: &mut Document, next: RouteGCStatus) -> Result<(), Error> {
        if !self.runtime.leadership.is_leading() {
            return Err(Error::NotLeading);
        }
        document.store(&self.runtime.client, next).await.map(|_| ())
    }

    /// Reports a failure: in the status, if it can be written, in the metrics and on `/statusz`.
    async fn failed(&self, document: &mut Document, error: &Error) -> Problem<Reason> {
        let series = document.series();
        self.metrics.failed(&series, error.code());
        if let Some(guard) = error.guard() {
            self.metrics.blocked(&series, guard);
        }
        if error.is_without_router() {
            self.metrics.no_router(&series);
        }
        let next = status::undecided(&document.status, document.generation, error, Timestamp::now());
        if let Err(cause) = self.store(document, next).await {
            tracing::warn!(error = %cause, "the status does not report this failure");
        }
        let text = format!("{}: {error}", document.regarding);
        self.runtime.status.set(document.regarding.to_string(), text);
        Problem {
            regarding: document.regarding.clone(),
            because: Reason::Failed(error.code(), status::without_ids(&error.to_string())),
        }
    }
}

/// Updates the decision after the removals. Returns the routes whose removal differs from the plan as problems.
fn settle(regarding: &Regarding, decision: &mut Decision, applied: &Applied) -> Vec<Problem<Reason>> {
    let now = Timestamp::now();
    let gone = |route: &routes::Route| applied.removed.contains(route) || applied.gone.contains(route);
    for route in applied.removed.iter().chain(&applied.recreated) {
        record_removal(&mut decision.history.removed, route, now);
    }
    let before = decision.classified.len();
    decision.classified.retain(|one| !gone(&one.route));
    let removed = u32::try_from(before - decision.classified.len()).unwrap_or(u32::MAX);
    decision.counts.orphan = decision.counts.orphan.saturating_sub(removed);
    decision.quota.routes = u32::try_from(applied.left).unwrap_or(u32::MAX);
    let open = |destination: &str, nexthop: &str| !gone(&routes::Route::new(destination, nexthop));
    decision.history.candidates.retain(|one| open(&one.destination, &one.nexthop));
    decision.history.removing.clear();
    decision.removals.clear();
    let skipped = applied.skipped.iter().map(|(route, why)| Reason::Skipped(route.clone(), why.clone()));
    let recreated = applied.recreated.iter().cloned().map(Reason::RecreatedImmediately);
    skipped.chain(recreated).map(|because| Problem { regarding: regarding.clone(), because }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use common::api::routegc::{Counts, Quota};
    use common::controller::Reconciler as _;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Login, Single};
    use crate::controller;
    use crate::router::RouterError;

    /// A process whose API server responds to every request with this status.
    fn failing_runtime(code: u16) -> Runtime {
        let reason = if code == 404 { "NotFound" } else { "no" };
        let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no", "reason": reason, "code": code })
        .to_string();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let body = Body::from(body.clone().into_bytes());
            std::future::ready(http::Response::builder().status(code).body(body))
        });
        runtime(Client::new(service, "ns"))
    }

    fn runtime(client: Client) -> Runtime {
        let metrics = common::metrics::Metrics::new("routegc").unwrap();
        Runtime::new(common::program!(), client, "ns".to_owned(), metrics, "pod".to_owned())
    }

    fn flags() -> Config {
        let spec = json!({ "identityRef": { "name": "" }, "routerID": "R-1", "podCIDRs": ["10.244.0.0/16"] });
        let spec = serde_json::from_value(spec).unwrap();
        Config::Single(Box::new(Single { spec, login: Login::Usual(None) }))
    }

    /// Otherwise it stays in the status while another policy covers the same routes, whatever removes the routes meanwhile.
    #[tokio::test]
    async fn the_intent_of_a_removal_that_is_no_longer_desired_is_withdrawn() {
        let route = |number: u8| routes::Route::new(format!("10.244.{number}.0/24"), "10.0.0.9");
        let (one, other) = (vec![route(1)], vec![route(2)]);
        let object = json!({
            "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC",
            "metadata": { "name": "prod", "namespace": "ns", "resourceVersion": "7" },
            "spec": { "identityRef": { "name": "x" }, "routerID": "r-1", "podCIDRs": ["10.244.0.0/16"] },
            "status": { "routerID": "r-1", "removing": one },
        });
        let written = Arc::new(Mutex::new(Vec::<Value>::new()));
        let log = Arc::clone(&written);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (log, object) = (Arc::clone(&log), object.clone());
            async move {
                let (head, body) = request.into_parts();
                if head.method == http::Method::PUT {
                    assert!(head.uri.path().ends_with("/routegcs/prod/status"), "{}", head.uri);
                    let body = body.collect_bytes().await.unwrap();
                    log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                }
                let body = Body::from(object.to_string().into_bytes());
                http::Response::builder().status(200).body(body)
            }
        });
        let runtime = runtime(Client::new(service, "ns"));
        let reconciler = controller::reconciler(&runtime, Config::Objects).unwrap();
        let source = PolicySource::Object("prod".to_owned());
        reconciler.withdraw(&source, &other).await.unwrap();
        assert!(written.lock().unwrap().is_empty(), "the intent of another removal");
        reconciler.withdraw(&source, &one).await.unwrap();
        let written = written.lock().unwrap();
        let [object] = &written[..] else { panic!("{written:?}") };
        assert_eq!(object["metadata"]["resourceVersion"], "7", "a concurrent write is a conflict");
        assert_eq!(object["status"].get("removing"), None);
        assert_eq!(object["status"]["routerID"], "r-1");
    }

    #[tokio::test]
    async fn without_its_router_a_policy_has_no_gauges_about_routes() {
        let runtime = failing_runtime(404);
        let reconciler = controller::reconciler(&runtime, flags()).unwrap();
        let mut document = reconciler.load(&PolicySource::Flags).await.unwrap();
        let (counts, quota) =
            (Counts { orphan: 1, ..Counts::default() }, Quota { limit: Some(30), ..Quota::default() });
        reconciler.metrics.observed(&document.series(), &counts, &quota, Timestamp::UNIX_EPOCH);
        let gauges = || {
            let text = String::from_utf8(runtime.metrics.text().unwrap()).unwrap();
            let all = ["routegc_routes{", "routegc_routes_limit{", "routegc_last_success_timestamp_seconds{"];
            all.map(|name| text.contains(name))
        };
        reconciler.failed(&mut document, &Error::Login("no".to_owned())).await;
        assert_eq!(gauges(), [true, true, true], "the router may still have these routes");
        let gone = Error::Router(RouterError::NotFound("nodes".to_owned()));
        reconciler.failed(&mut document, &gone).await;
        assert_eq!(gauges(), [false, false, true]);
    }

    #[tokio::test]
    async fn a_policy_that_cannot_be_read_is_a_failure_and_a_deleted_one_is_none() {
        let object = PolicySource::Object("prod".to_owned());
        for (code, config, source, series) in [
            (403, Config::Objects, &object, Some(("prod", ""))),
            (403, flags(), &PolicySource::Flags, Some(("routegc-r-1", "R-1"))),
            (404, Config::Objects, &object, None),
        ] {
            let runtime = failing_runtime(code);
            let reconciler = controller::reconciler(&runtime, config).unwrap();
            let mut memo = reconciler.memo(source);
            let (error, problem) = reconciler.reconcile_policy(source, &mut memo, None).await.unwrap_err();
            assert_eq!((error.code(), problem), ("KubernetesUnavailable", None));
            let text = String::from_utf8(runtime.metrics.text().unwrap()).unwrap();
            let Some((name, router)) = series else {
                assert!(!text.contains("routegc_failed_operations_total{"), "{text}");
                continue;
            };
            let labels = format!(
                "name=\"{name}\",namespace=\"ns\",reason=\"KubernetesUnavailable\",router=\"{router}\""
            );
            let line = format!("routegc_failed_operations_total{{{labels}}} 1");
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }

    #[tokio::test]
    async fn problems_that_last_are_not_reported_again_after_a_failure() {
        let (runtime, source) = (failing_runtime(403), PolicySource::Object("prod".to_owned()));
        let reconciler = controller::reconciler(&runtime, Config::Objects).unwrap();
        let mut memo = reconciler.memo(&source);
        let regarding = Regarding {
            api_version: "v1",
            kind: "Namespace",
            namespace: None,
            name: "ns".to_owned(),
            uid: None,
        };
        let standing = [Problem { regarding, because: Reason::InvalidRoutes(Vec::new()) }];
        memo.events.found(&standing);
        assert!(reconciler.reconcile(&source, &mut memo).await.is_err());
        memo.events.found(&standing);
        runtime.events.drain(Duration::from_secs(60)).await;
        let text = String::from_utf8(runtime.metrics.text().unwrap()).unwrap();
        assert!(text.contains("perimeter_events_total{result=\"failed\"} 1\n"), "{text}");
    }
}
