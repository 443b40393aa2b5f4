//! The loop around the reconciliation: something changed, or some time went by → observe → plan → apply.
//!
//! One loop for the whole cluster, not one for each Node: the election needs all of them at once, and a network has at most
//! a hundred servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::backoff::Backoff;
use common::cloud::hcloud::Hcloud;
use common::events::Events;
use common::plan::{Plan, Problem};
use common::runtime::Runtime;
use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::Notify;

use crate::apply::{Applied, Apply, Memory, RECONCILE_BUDGET, is_route};
use crate::config::{Config, Mode};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::observe::health::Health;
use crate::observe::network::Cloud;
use crate::observe::observe;
use crate::observe::prober::{Network, Prober};
use crate::observe::snapshot::{Outcome, Snapshot};
use crate::plan::{self, Action, Reason, plan};
use crate::status;

/// Changes come in bursts (a Job's end touches the Job and its pods); one reconciliation serves them all. Short against the two
/// seconds that a route move takes.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// After reconciliations that failed.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(30) };
/// The longest wait that the cloud may ask for: a leader that begins no reconciliation for ten minutes counts as stuck.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// After a failed reconciliation, a change is followed by the next reconciliation after this time at the latest.
const CHANGE_DELAY_MAX: Duration = Duration::from_secs(1);

/// The same after an answer that only a person can change: such a reconciliation costs up to six requests of the project's 3,600 an hour.
const CHANGE_DELAY_PERMANENT: Duration = Duration::from_secs(5);
/// The longest time between two reconciliations of a command that ends by itself, because a user waits for it.
const POLL: Duration = Duration::from_secs(1);

/// When the loop ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Never; only with the process.
    Stopped,
    /// After one reconciliation that succeeded.
    OneReconciliation,
    /// When there is nothing left to clean up, or the time is over.
    Clean(Duration),
}

/// Fills the caches, waits for the lead, and reconciles until `until`.
///
/// With `step_down`, a leader that cannot reach the cloud for so long releases the lease: another replica may reach it, for example
/// when the outage is that of the gateway which this one's traffic leaves by.
///
/// # Errors
/// `OneReconciliation`: what made the reconciliation fail. `Clean`: what is left when the time is over. A lost lease is no error of this
/// function: the runtime ends the process.
pub async fn run(
    runtime: Runtime,
    config: Config,
    hcloud: Hcloud,
    until: Until,
    step_down: Option<StepDown>,
) -> anyhow::Result<()> {
    let hcloud = Arc::new(hcloud);
    let metrics = Metrics::new(runtime.metrics.clone())?;
    let changed = Arc::new(Notify::new());
    let nodes = Api::<common::k8s::Node>::all(runtime.client.clone());
    let jobs = Api::<common::k8s::Job>::namespaced(runtime.client.clone(), &config.namespace);
    let only_ours = watcher::Config::default().labels(&crate::apply::job::managed_by());
    let trim = crate::observe::nodes::trim(&config);
    let nodes = runtime.cache(nodes).trim(trim).start();
    let jobs = runtime.cache(jobs).config(only_ours).start();
    let notify = || {
        let changed = Arc::clone(&changed);
        move || changed.notify_one()
    };
    let (node, job) = (notify(), notify());
    nodes.subscribe(move |_| node());
    jobs.subscribe(move |_| job());
    let checks = config.health_check.enabled && until == Until::Stopped;
    let prober = checks.then(|| Prober::new(&config.health_check, changed.clone(), metrics.clone()));
    let network = Network { client: runtime.client.clone() };
    let observation = runtime.events.scoped();
    let probing = async {
        match &prober {
            Some(prober) => prober.run(&network).await,
            None => std::future::pending().await,
        }
    };

    let work = async {
        tokio::select! {
            biased;
            () = runtime.shutdown.cancelled() => return ended_early(until),
            _ = async { tokio::join!(nodes.synced(), jobs.synced()) } => {}
        }
        let started = Instant::now();
        if !lead(&runtime, until).await? {
            return ended_early(until);
        }
        // Each leadership begins with a new reconciler, because the observations of the last one are outdated.
        let new_reconciler = || Reconciler {
            runtime: &runtime,
            config: &config,
            hcloud: &hcloud,
            metrics: &metrics,
            observation: &observation,
            cloud: Cloud::new(&config, hcloud.clone()),
            prober: prober.as_ref(),
            memory: Memory::default(),
            longest: if matches!(until, Until::OneReconciliation) { Duration::MAX } else { RECONCILE_BUDGET },
        };
        let mut reconciler = new_reconciler();
        let mut failures = 0_u32;
        let mut unreachable_since = None;
        loop {
            let reconciled = reconciler.reconcile(&nodes.list(), &jobs.list()).await;
            let (wait, floor) = match &reconciled {
                Ok(_) => {
                    failures = 0;
                    (pause(&config), DEBOUNCE)
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let wait = after_failure(error, failures);
                    (wait, floor_after(error, wait))
                }
            };
            match &reconciled {
                Err(error) if error.is_unreachable() => {
                    let since = *unreachable_since.get_or_insert_with(Instant::now);
                    if let Some(StepDown { pause, .. }) = step_down.filter(|it| since.elapsed() >= it.after) {
                        let unreachable = since.elapsed().as_secs();
                        tracing::warn!(%error, unreachable, "the cloud is unreachable from here; stepping down so that another replica can lead");
                        if let Some(prober) = &prober {
                            prober.clear();
                        }
                        metrics.stepped_down();
                        runtime.leadership.step_down(pause).await;
                        if !lead(&runtime, until).await? {
                            return ended_early(until);
                        }
                        (reconciler, failures, unreachable_since) = (new_reconciler(), 0, None);
                        continue;
                    }
                }
                _ => unreachable_since = None,
            }
            let asked = reconciled.as_ref().err().is_some_and(|error| error.retry_after().is_some());
            match (until, reconciled) {
                (Until::OneReconciliation, Ok(_)) => return Ok(()),
                (Until::OneReconciliation, Err(error)) if !error.is_outdated() => return Err(error.into()),
                (Until::Clean(_), Ok(Reconcile { clean: true, route_left, .. })) => {
                    return route_left.map_or(Ok(()), |left| Err(anyhow::anyhow!(left)));
                }
                (Until::Clean(limit), reconciled) if started.elapsed() >= limit => {
                    return Err(not_clean(reconciled));
                }
                _ => {}
            }
            let wait = match until {
                Until::Stopped => wait,
                _ if !asked => wait.min(POLL),
                Until::Clean(limit) => wait.min(limit.saturating_sub(started.elapsed())),
                Until::OneReconciliation => wait,
            };
            tokio::select! {
                biased;
                () = runtime.shutdown.cancelled() => return ended_early(until),
                () = async { changed.notified().await; tokio::time::sleep(floor).await } => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    };
    tokio::select! {
        ended = work => ended,
        never = probing => match never {},
    }
}

/// When a leader that cannot reach the cloud releases the lease, and for how long it then does not contend.
#[derive(Clone, Copy, Debug)]
pub struct StepDown {
    /// How long the cloud has been unreachable.
    pub after: Duration,
    /// How long the other replicas have to acquire the lease.
    pub pause: Duration,
}

/// Waits for the Lease; false if shutdown was requested first. A cleanup reports when another process holds it.
async fn lead(runtime: &Runtime, until: Until) -> anyhow::Result<bool> {
    let Until::Clean(limit) = until else { return Ok(runtime.leading().await) };
    tokio::time::timeout(limit, runtime.leading()).await.map_err(|_| {
        let holder = runtime.leadership.holder();
        anyhow::anyhow!("{holder} holds the lease and keeps what would be taken back: stop it first (scale its Deployment to zero)")
    })
}

/// Shutdown was requested. An unfinished cleanup is an error, so that a Helm hook fails.
fn ended_early(until: Until) -> anyhow::Result<()> {
    match until {
        Until::Clean(_) => Err(anyhow::anyhow!("asked to end before everything was taken back")),
        Until::OneReconciliation => Err(anyhow::anyhow!("asked to end before a reconcile was made")),
        Until::Stopped => Ok(()),
    }
}

fn not_clean(reconciled: Result<Reconcile, Error>) -> anyhow::Error {
    match reconciled {
        Ok(reconcile) => anyhow::anyhow!("not everything could be taken back in time: {}", reconcile.left),
        Err(error) => error.into(),
    }
}

/// The poll interval, and up to a tenth more.
fn pause(config: &Config) -> Duration {
    let interval = Duration::from(config.hetzner.poll_interval);
    interval.mul_f64(1.0 + fastrand::f64() / 10.0)
}

fn after_failure(error: &Error, failures: u32) -> Duration {
    let backoff = BACKOFF.delay(failures);
    if let Some(asked) = error.retry_after() {
        // Repeated retries without a delay would use up the rate limit of the project.
        return asked.max(backoff).min(RETRY_AFTER_MAX);
    }
    if error.is_permanent() { BACKOFF.max } else { backoff }
}

/// How long a change waits for its reconciliation after a failed one. A failure on one Node must not delay a move of the route. But
/// the delay that the cloud requests is respected, and a refused request is not repeated with every change.
fn floor_after(error: &Error, wait: Duration) -> Duration {
    if let Some(asked) = error.retry_after() {
        asked.max(wait.min(CHANGE_DELAY_MAX)).min(RETRY_AFTER_MAX)
    } else if error.is_permanent() {
        wait.min(CHANGE_DELAY_PERMANENT)
    } else {
        wait.min(CHANGE_DELAY_MAX)
    }
}

/// The result of one successful reconciliation.
struct Reconcile {
    /// Nothing of natgw's is left.
    clean: bool,
    /// The objects that a cleanup has not yet removed, as a text for the user.
    left: String,
    /// Why a cleanup must not succeed although nothing of natgw's is left.
    route_left: Option<String>,
}

struct Reconciler<'a> {
    runtime: &'a Runtime,
    config: &'a Config,
    hcloud: &'a Hcloud,
    metrics: &'a Metrics,
    /// Reports an observation that failed. The problems of the last plan have a scope of their own, and stay reported meanwhile.
    observation: &'a Events,
    cloud: Cloud,
    /// None without health checks.
    prober: Option<&'a Prober>,
    memory: Memory,
    /// See [`Apply::longest`].
    longest: Duration,
}

impl Reconciler<'_> {
    #[tracing::instrument(name = "reconcile", skip_all, fields(otel.status_code = tracing::field::Empty))]
    async fn reconcile(
        &mut self,
        nodes: &[Arc<common::k8s::Node>],
        jobs: &[Arc<common::k8s::Job>],
    ) -> Result<Reconcile, Error> {
        let reconciliation = self.runtime.reconciliation(self.runtime.program.name);
        let result = self.observe_and_apply(nodes, jobs).await;
        // A Node that cannot be written is no failure of the reconciliation: it has its own metric and alert.
        let failure = match &result {
            Ok((_, applied)) => applied.route.as_ref().filter(|error| !error.is_outdated()),
            Err(error) => Some(error),
        };
        match failure {
            None => reconciliation.succeeded(),
            Some(error) => {
                tracing::warn!(%error, "reconcile failed");
                tracing::Span::current().record("otel.status_code", "ERROR");
                reconciliation.failed();
            }
        }
        let (reconcile, applied) = result?;
        self.metrics.applied(&applied);
        applied.into_error().map_or(Ok(reconcile), Err)
    }

    async fn observe_and_apply(
        &mut self,
        nodes: &[Arc<common::k8s::Node>],
        jobs: &[Arc<common::k8s::Job>],
    ) -> Result<(Reconcile, Applied), Error> {
        let health = self.prober.map(Prober::health).unwrap_or_default();
        let snapshot = match observe(self.config, nodes, jobs, &mut self.cloud, health).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.cloud.invalidate();
                self.cannot_observe(&error).await;
                return Err(error);
            }
        };
        let plan = plan(self.config, &snapshot, Timestamp::now());
        self.report(&snapshot, &plan).await;
        let apply = Apply {
            config: self.config,
            client: &self.runtime.client,
            hcloud: self.hcloud,
            executor: self.runtime.into(),
            metrics: self.metrics,
            snapshot: &snapshot,
            longest: self.longest,
        };
        let applied = apply.run(&plan, &mut self.memory).await;
        // Route steps change the state of the cloud, also when they fail.
        if plan.steps.iter().any(|step| is_route(&step.action)) {
            self.cloud.invalidate();
        }
        let route_left = plan.problems.iter().find(|problem| matches!(problem.because, Reason::RouteLeft(_)));
        let reconcile = Reconcile {
            clean: plan.is_empty() && is_clean(self.config, &snapshot),
            left: left(&snapshot),
            route_left: route_left.map(|problem| problem.because.to_string()),
        };
        Ok((reconcile, applied?))
    }

    async fn report(&self, snapshot: &Snapshot, plan: &Plan<Action>) {
        let (assessed, primary) = plan::assess(self.config, snapshot);
        if let Some(prober) = self.prober {
            prober.watch(plan::health::targets(snapshot));
        }
        self.metrics.observed(snapshot, &assessed, primary, plan.problems.len());
        self.runtime.status.set("state", status::render(self.config, snapshot, plan));
        self.runtime.events.found(&plan.problems);
        self.observation.found::<Reason>(&[]);
    }

    async fn cannot_observe(&self, error: &Error) {
        let regarding = plan::about_natgw(self.config);
        let problem = Problem { regarding, because: Reason::ObserveFailed(error.to_string()) };
        self.runtime.status.set("state", problem.to_string());
        self.observation.found(&[problem]);
    }
}

/// Whether nothing is left that a cleanup would have to take back.
fn is_clean(config: &Config, snapshot: &Snapshot) -> bool {
    config.mode == Mode::Cleanup
        && snapshot
            .jobs
            .values()
            .all(|jobs| jobs.iter().all(|job| job.terminating || job.outcome != Outcome::Running))
        && snapshot.nodes.iter().all(|node| !node.has_records() && node.client.is_none())
}

fn left(snapshot: &Snapshot) -> String {
    let marked: Vec<&str> = snapshot
        .nodes
        .iter()
        .filter(|node| node.has_records() || node.client.is_some())
        .map(|node| node.name.as_str())
        .collect();
    let jobs = snapshot.jobs.values().flatten();
    let failed = jobs.filter(|job| matches!(job.outcome, Outcome::Failed { .. }));
    let failed: Vec<&str> = failed.map(|job| job.name.as_str()).collect();
    match (&marked[..], &failed[..]) {
        ([], _) => "Jobs are still running".into(),
        (_, []) => format!("Nodes {} are still marked", marked.join(", ")),
        _ => format!(
            "Nodes {} are still marked; failed Jobs, with their logs: {}",
            marked.join(", "),
            failed.join(", ")
        ),
    }
}

/// Observes once, without caches: for `--dry-run` and `natgw status`.
///
/// # Errors
/// Whatever could not be read whole.
pub async fn observe_once(client: &kube::Client, config: &Config, hcloud: Hcloud) -> Result<Snapshot, Error> {
    let list = kube::api::ListParams::default();
    let nodes = Api::<common::k8s::Node>::all(client.clone()).list(&list).await;
    let nodes = nodes.map_err(|cause| Error::Kubernetes { what: "list Nodes".to_owned(), cause })?.items;
    let ours = list.labels(&crate::apply::job::managed_by());
    let jobs = Api::<common::k8s::Job>::namespaced(client.clone(), &config.namespace).list(&ours).await;
    let jobs = jobs.map_err(|cause| Error::Kubernetes { what: "list Jobs".to_owned(), cause })?.items;
    observe(config, &nodes, &jobs, &mut Cloud::new(config, Arc::new(hcloud)), Health::default()).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use common::cloud::hcloud::Token;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::plan::tests::env::{TestEnv, config};

    /// A process whose API server refuses and counts every request.
    fn runtime(requests: Arc<AtomicUsize>) -> Runtime {
        let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no", "reason": "BadRequest", "code": 400 })
        .to_string();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            requests.fetch_add(1, Ordering::SeqCst);
            let body = Body::from(body.clone().into_bytes());
            std::future::ready(http::Response::builder().status(400).body(body))
        });
        let client = kube::Client::new(service, "natgw");
        let metrics = common::metrics::Metrics::new("natgw").unwrap();
        Runtime::new(common::program!(), client, "natgw".to_owned(), metrics, "natgw-0".to_owned())
    }

    #[tokio::test]
    async fn defect_39_problems_that_last_are_not_reported_again_after_an_observation_that_failed() {
        let requests = Arc::new(AtomicUsize::new(0));
        let runtime = runtime(Arc::clone(&requests));
        let (config, metrics) = (config(), Metrics::new(runtime.metrics.clone()).unwrap());
        let (token, registry) = (Token::new("secret").unwrap(), runtime.metrics.registry());
        let hcloud = Arc::new(Hcloud::new("http://127.0.0.1:1/v1", token, "test", registry).unwrap());
        let observation = runtime.events.scoped();
        let reconciler = Reconciler {
            runtime: &runtime,
            config: &config,
            hcloud: &hcloud,
            metrics: &metrics,
            observation: &observation,
            cloud: Cloud::new(&config, Arc::clone(&hcloud)),
            prober: None,
            memory: Memory::default(),
            longest: Duration::MAX,
        };
        let env = TestEnv::new(config.clone());
        assert_eq!(env.problems(), ["NoCandidate"]);
        let (snapshot, plan) = (env.observe(), env.plan());
        let error = Error::Outdated("no response".to_owned());
        // Each Event is one request.
        let reported = async || {
            runtime.events.drain(Duration::from_secs(60)).await;
            requests.load(Ordering::SeqCst)
        };
        reconciler.report(&snapshot, &plan).await;
        assert_eq!(reported().await, 1);
        reconciler.cannot_observe(&error).await;
        reconciler.cannot_observe(&error).await;
        assert_eq!(reported().await, 2, "the outage, once");
        reconciler.report(&snapshot, &plan).await;
        assert_eq!(reported().await, 2, "the same problem as before the outage");
        reconciler.cannot_observe(&error).await;
        assert_eq!(reported().await, 3, "another outage");
    }
}
