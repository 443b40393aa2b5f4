//! The loop of one node: something changed, or the resync period is over → observe → plan → driver.
//!
//! * The first reconciliation waits for all lists. From then on the last datapath stays in force whatever is missing: neither an API
//!   server that is away nor a store that was deleted removes anything from the node. Nothing is removed at the end of the process.
//! * The driver runs outside of the async runtime, and never twice at once.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use common::{
    backoff::Backoff,
    events::Events,
    plan::Problem,
    readiness::Check,
    runtime::{Runtime, Status},
};
use tokio_util::sync::CancellationToken;

use super::{
    datapath::Datapath,
    driver::{Change, Driver, Error},
    metrics::Metrics,
    plan::{
        self, Config, Decision,
        problem::{Reason, node_regarding},
    },
    render,
    snapshot::Snapshot,
    trigger::Trigger,
};

/// Changes come in bursts: a Deployment's rollout, the Services of a VIP that moves. A gateway's change does not wait.
const DEBOUNCE: Duration = Duration::from_millis(5);

/// A reconciliation that takes long is followed by a pause of the same length, so that it does not keep a core busy; at most so long.
const DEBOUNCE_MAX: Duration = Duration::from_secs(1);

/// After failures of the driver.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(10) };

/// Log lines of one run of the driver. The first run has thousands of changes on a large node.
const CHANGES_LOGGED: usize = 20;

/// The name of the loop in heartbeats and reconcile metrics.
const CONTROLLER: &str = "agent";

/// Opens the driver. It is called again until it succeeds.
pub type Open = Box<dyn Fn() -> Result<Box<dyn Driver>, Error> + Send + Sync>;

/// The driver, opened when it is first needed.
struct Slot {
    open: Open,
    driver: Mutex<Option<Box<dyn Driver>>>,
}

impl Slot {
    fn with<T>(&self, run: impl FnOnce(&mut dyn Driver) -> Result<T, Error>) -> Result<T, Error> {
        // A panic ends the process.
        let mut slot = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = match slot.take() {
            Some(driver) => driver,
            None => (self.open)()?,
        };
        run(slot.insert(driver).as_mut())
    }
}

/// The parts of the process that the loop reports to.
#[derive(Debug)]
pub struct Reports {
    /// Metrics of the agent.
    pub metrics: Metrics,
    /// Events of problems that this agent publishes.
    published: Events,
    /// Log lines of problems that another agent publishes.
    logged: Events,
    /// Events of the driver's failures.
    driver: Events,
    /// Succeeds with the first programmed datapath.
    check: Check,
    status: Status,
}

impl Reports {
    /// Registers metrics and the readiness check.
    ///
    /// # Errors
    /// A metric that is registered already.
    pub fn new(runtime: &Runtime) -> Result<Reports, prometheus::Error> {
        Ok(Reports {
            metrics: Metrics::new(runtime.metrics.registry())?,
            published: runtime.events.scoped(),
            logged: runtime.events.scoped().log_only(),
            driver: runtime.events.scoped(),
            check: runtime.readiness.check("datapath"),
            status: runtime.status.clone(),
        })
    }
}

/// Why the driver failed for good, as an Event on the Node.
#[derive(Clone, Debug, serde::Serialize, thiserror::Error)]
#[error("the datapath cannot be programmed: {0}")]
struct Unusable(String);

impl common::plan::Reason for Unusable {
    fn code(&self) -> &'static str {
        "DriverUnusable"
    }

    fn is_trouble(&self) -> bool {
        true
    }
}

/// The state of the loop.
pub struct Reconciler {
    config: Config,
    driver: Arc<Slot>,
    reports: Reports,
    /// The datapath that is in force: the last one that the plan knew.
    desired: Option<Arc<Datapath>>,
    /// Whether the driver has not yet programmed it.
    is_pending: bool,
    problems: Option<(bool, Vec<Problem<Reason>>)>,
    generation: u64,
    shown: Vec<String>,
}

impl std::fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reconciler").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Reconciler {
    /// Nothing is programmed yet.
    #[must_use]
    pub fn new(config: Config, open: Open, reports: Reports) -> Reconciler {
        Reconciler {
            config,
            driver: Arc::new(Slot { open, driver: Mutex::default() }),
            reports,
            desired: None,
            is_pending: false,
            problems: None,
            generation: 0,
            shown: Vec::new(),
        }
    }

    /// One reconciliation. With `resync`, the programmed datapath is compared also if the desired one did not change.
    ///
    /// # Errors
    /// The driver failed. The next call tries again.
    pub async fn reconcile(&mut self, snapshot: &Snapshot, resync: bool) -> Result<(), Error> {
        let Decision { datapath, problems } = plan::plan(&self.config, snapshot);
        self.report(snapshot, problems);
        if let Some(datapath) = datapath
            && self.desired.as_deref() != Some(&datapath)
        {
            (self.desired, self.is_pending) = (Some(Arc::new(datapath)), true);
        }
        let Some(desired) = self.desired.clone() else {
            self.reports.check.failing("the desired datapath is unknown: see the Events of the Node");
            return Ok(());
        };
        if self.is_pending || resync { self.apply(desired).await } else { Ok(()) }
    }

    async fn apply(&mut self, desired: Arc<Datapath>) -> Result<(), Error> {
        let (slot, datapath) = (Arc::clone(&self.driver), Arc::clone(&desired));
        let start = Instant::now();
        let run = tokio::task::spawn_blocking(move || slot.with(|driver| driver.apply(&datapath)));
        let result = run.await.unwrap_or_else(|error| {
            let operation = "running the driver".to_owned();
            Err(Error { operation, cause: error.to_string(), is_permanent: false })
        });
        let took = start.elapsed();
        match result {
            Ok(changes) => {
                self.reports.metrics.applied(took, &changes);
                self.programmed(&desired, &changes, took);
                Ok(())
            }
            Err(error) => {
                self.is_pending = true;
                self.reports.metrics.failed(took);
                self.failed(&desired, &error);
                Err(error)
            }
        }
    }

    fn programmed(&mut self, desired: &Datapath, changes: &[Change], took: Duration) {
        for change in changes.iter().take(CHANGES_LOGGED) {
            if change.is_repair {
                tracing::warn!(object = change.object, "repaired: {}", change.description);
            } else {
                tracing::info!(object = change.object, "{}", change.description);
            }
        }
        if self.is_pending {
            self.generation += 1;
            let (generation, milliseconds) = (self.generation, took.as_millis());
            let summary = render::summary(desired);
            tracing::info!(
                generation,
                milliseconds,
                changes = changes.len(),
                "datapath programmed: {summary}"
            );
            self.reports.metrics.programmed(desired, generation);
            self.reports.status.set("datapath", format!("generation {generation}: {summary}"));
            let vips = render::vips(desired);
            self.shown.drain(..).for_each(|vip| self.reports.status.remove(&vip));
            for (vip, text) in vips {
                let key = format!("VIP {vip}");
                self.reports.status.set(key.clone(), text);
                self.shown.push(key);
            }
        } else if changes.len() > CHANGES_LOGGED {
            tracing::warn!(changes = changes.len(), "the datapath was repaired");
        }
        self.is_pending = false;
        self.reports.driver.found::<Unusable>(&[]);
        self.reports.status.remove("driver");
        self.reports.check.ready();
    }

    fn failed(&self, desired: &Datapath, error: &Error) {
        tracing::error!(
            permanent = error.is_permanent,
            error = error.to_string(),
            "programming the datapath failed"
        );
        self.reports.check.failing(error.to_string());
        self.reports.status.set("driver", error.to_string());
        if error.is_permanent {
            let regarding = node_regarding(&desired.node.name, Some(desired.node.name.clone()));
            self.reports.driver.found(&[Problem { regarding, because: Unusable(error.to_string()) }]);
        }
    }

    /// Each agent finds the problems of Services. Only the candidates publish them: there are few.
    fn report(&mut self, snapshot: &Snapshot, problems: Vec<Problem<Reason>>) {
        let is_publisher = is_publisher(snapshot);
        let found = (is_publisher, problems);
        if self.problems.as_ref() == Some(&found) {
            return;
        }
        self.reports.metrics.problems(&found.1);
        let (published, logged): (Vec<_>, Vec<_>) =
            found.1.iter().cloned().partition(|problem| is_publisher || problem.regarding.kind == "Node");
        self.reports.published.found(&published);
        self.reports.logged.found(&logged);
        self.problems = Some(found);
    }
}

/// Whether this node is a gateway candidate, or the first node of a cluster without candidates.
fn is_publisher(snapshot: &Snapshot) -> bool {
    let mut candidates = snapshot.nodes.iter().filter(|node| node.candidate).peekable();
    if candidates.peek().is_none() {
        return snapshot.nodes.iter().map(|node| &node.name).min() == Some(&snapshot.node);
    }
    candidates.any(|node| node.name == snapshot.node)
}

/// Reconciles until shutdown is requested. Returns between two runs of the driver.
pub async fn run(
    mut reconciler: Reconciler,
    observe: impl Fn() -> Snapshot,
    trigger: &Trigger,
    resync_period: Duration,
    runtime: &Runtime,
) {
    let shutdown: &CancellationToken = &runtime.shutdown;
    let mut failures = 0_u32;
    let mut resynced = Instant::now();
    let mut node_changed = false;
    loop {
        let start = Instant::now();
        let resync = node_changed || resynced.elapsed() >= resync_period;
        let reconciliation = runtime.reconciliation(CONTROLLER);
        let backoff = match reconciler.reconcile(&observe(), resync).await {
            Ok(()) => {
                reconciliation.succeeded();
                failures = 0;
                if resync {
                    resynced = Instant::now();
                }
                Duration::ZERO
            }
            Err(_) => {
                reconciliation.failed();
                failures = failures.saturating_add(1);
                BACKOFF.delay(failures)
            }
        };
        let debounce = start.elapsed().clamp(DEBOUNCE, DEBOUNCE_MAX);
        let next = async {
            // A change may be the remedy, but it must not turn the backoff into a busy loop.
            tokio::time::sleep(backoff.min(DEBOUNCE_MAX)).await;
            let wait = match failures {
                0 => resync_period.saturating_sub(resynced.elapsed()),
                _ => backoff.saturating_sub(DEBOUNCE_MAX),
            };
            tokio::time::timeout(wait, trigger.next(debounce)).await.unwrap_or_default()
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            changed = next => node_changed = changed,
        }
    }
}

#[cfg(test)]
mod tests;
