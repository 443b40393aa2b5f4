//! Reconciles keys: a work queue, workers, backoff, metrics and the heartbeat, once for every controller.
//!
//! ```text
//!   Cache ── watches(map) ──┐
//!   Cache ── watches(map) ──┼── Queue ── workers ── Reconciler::reconcile(key, memo) ── Next
//!   anything ── queue() ────┘     ▲                                                      │
//!                                 └────────── requeue_after, backoff after an error ─────┘
//! ```
//!
//! A reconciliation is *outdated* if a write was refused because the object had changed since it was read. The event of the
//! change is on its way in most cases, and starts the next reconciliation. So the key is retried soon, and nothing is reported
//! until several in a row are outdated.
//!
//! A process may run several controllers; each has its own name, queue and workers, and shares the caches. The [`Reconciler`]
//! holds the domain: it gets a key, never an event, and reads what it needs from caches, by indexes, and from the cloud.

pub mod queue;

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    fmt,
    future::Future,
    hash::Hash,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::Resource;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tracing::Instrument as _;

use self::queue::{RateLimiter, WorkQueue};
use crate::{
    backoff::Backoff,
    cache::{Cache, Change},
    cluster::error_chain,
    metrics::register,
    runtime::Runtime,
};

/// While nothing happens the loop runs so often, for the heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// After an outdated reconciliation. It doubles with each in a row, up to the longest delay of a key that failed.
const OUTDATED_DELAY: Duration = Duration::from_millis(200);

/// From so many outdated reconciliations in a row on, each is a failure. The retries before take two minutes.
const OUTDATED_MAX: u32 = 10;

/// The key of one reconciliation, mostly an [`ObjectKey`](crate::cache::ObjectKey). Logs and spans show its `Display`.
pub trait Key: Clone + Ord + Hash + fmt::Display + Send + Sync + 'static {}

impl<K: Clone + Ord + Hash + fmt::Display + Send + Sync + 'static> Key for K {}

/// The domain of one controller.
///
/// For one key `reconcile` never runs twice at once; for several keys it does, up to the limit of the controller. The future is
/// dropped, wherever it is, when the process loses its lease or has to end before it is finished: each write must be safe
/// to be the last one, and asks the leadership first.
pub trait Reconciler: Send + Sync + 'static {
    /// The type of the key.
    type Key: Key;
    /// The state of one key that the process keeps between two reconciliations: clients, logged messages, times. A
    /// restart loses it.
    type Memo: Send + 'static;
    /// Why a reconciliation failed.
    type Error: Error + Send + Sync + 'static;

    /// The memo of a key that is reconciled for the first time.
    fn memo(&self, key: &Self::Key) -> Self::Memo;

    /// Brings the observed state of the key to the desired one. It runs also for a key whose object is gone, since that
    /// change is one too, and then returns [`Next::Gone`]. An object that was recreated under the same name may be seen
    /// with the memo of the old one: where that matters, the memo has the UID.
    ///
    /// # Errors
    /// What failed; it is logged and counted, unless it is [outdated](Self::is_outdated). The key is reconciled again after
    /// [`retry_after`](Self::retry_after).
    fn reconcile(
        &self,
        key: &Self::Key,
        memo: &mut Self::Memo,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send;

    /// Whether the object has changed since the reconciliation read it. Such a reconciliation counts as a success until ten in a row
    /// are outdated; the failures of the key still count. With [`Controller::once`] it is a failure, because none follows.
    fn is_outdated(error: &Self::Error) -> bool {
        let _ = error;
        false
    }

    /// When a key that failed is reconciled again; `backoff` is the delay that follows from its failures in a row, or from its
    /// outdated reconciliations in a row. A server's Retry-After belongs here. A change of the object is not held up by it.
    fn retry_after(&self, memo: &mut Self::Memo, error: &Self::Error, backoff: Duration) -> Duration {
        let _ = (memo, error);
        backoff
    }
}

/// The result of a reconciliation that did not fail: when the key is reconciled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something changes.
    OnChange,
    /// Again after this time, or earlier if something changes.
    After(Duration),
    /// Nothing was done, because it is too early, as before the end of a Retry-After: again after this time. In contrast to the
    /// others this is no success: the failures of the key, and its outdated reconciliations, still count.
    NotYet(Duration),
    /// The object does not exist any more: the memo and all that the queue knows of the key are dropped.
    Gone,
}

/// The queue of one controller, for whatever else than a cache wants a key reconciled. Clones share it.
pub struct Queue<K>(Arc<Shared<K>>);

struct Shared<K> {
    queue: Mutex<WorkQueue<K>>,
    changed: Notify,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Queue(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").finish_non_exhaustive()
    }
}

impl<K: Key> Queue<K> {
    fn new(limiter: RateLimiter) -> Self {
        Queue(Arc::new(Shared { queue: Mutex::new(WorkQueue::new(limiter)), changed: Notify::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, WorkQueue<K>> {
        // Every operation leaves the queue whole, or panics in an allocation.
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key is to be reconciled as soon as possible. Several before that become one; one that is being reconciled is
    /// reconciled once more.
    pub fn add(&self, key: K) {
        self.lock().add(key, Instant::now());
        self.0.changed.notify_one();
    }

    /// The key is to be reconciled after `delay`, whatever happens before. Of several delays the one that ends first counts:
    /// many changes of a moment become one reconciliation.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.lock().add_after(key, delay, Instant::now());
        self.0.changed.notify_one();
    }
}

/// A cache that feeds the queue.
struct Source {
    synced: Pin<Box<dyn Future<Output = ()> + Send>>,
    subscribe: Box<dyn FnOnce() + Send>,
}

/// One controller: see the module.
pub struct Controller<R: Reconciler> {
    name: &'static str,
    runtime: Runtime,
    reconciler: Arc<R>,
    queue: Queue<R::Key>,
    sources: Vec<Source>,
    max_concurrent_reconciles: usize,
}

impl<R: Reconciler> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<R: Reconciler> Controller<R> {
    /// A controller without sources, with one worker and client-go's backoff ([`RateLimiter::default`]). `name` is the value of
    /// the labels `controller` and `name`, the name on `/livez`, and unique in the process.
    #[must_use]
    pub fn new(runtime: &Runtime, name: &'static str, reconciler: R) -> Self {
        Controller {
            name,
            runtime: runtime.clone(),
            reconciler: Arc::new(reconciler),
            queue: Queue::new(RateLimiter::default()),
            sources: Vec::new(),
            max_concurrent_reconciles: 1,
        }
    }

    /// How many keys are reconciled at a time; 0 counts as 1.
    #[must_use]
    pub fn max_concurrent_reconciles(mut self, max: usize) -> Self {
        self.max_concurrent_reconciles = max.max(1);
        self
    }

    /// Other delays of a key that failed. Must be called before [`queue`](Self::queue) and [`watches`](Self::watches): it replaces the
    /// queue, and keys that are added to the former one are never reconciled.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.queue = Queue::new(RateLimiter { backoff, ..RateLimiter::default() });
        self
    }

    /// The queue, for other sources than caches. Keys that are added before this process leads wait.
    #[must_use]
    pub fn queue(&self) -> Queue<R::Key> {
        self.queue.clone()
    }

    /// Every change in `cache` is mapped to the keys that it concerns, and `map` adds them to the queue. Once this process
    /// leads, `map` first gets every cached object as Added. The controller starts when all its caches have synced.
    #[must_use]
    pub fn watches<O>(
        mut self,
        cache: &Cache<O>,
        map: impl Fn(&Change<O>, &Queue<R::Key>) + Send + Sync + 'static,
    ) -> Self
    where
        O: Resource + Clone + Send + Sync + 'static,
    {
        let (cache, queue) = (cache.clone(), self.queue.clone());
        self.sources.push(Source {
            synced: Box::pin(cache.synced()),
            subscribe: Box::new(move || cache.subscribe(move |change| map(change, &queue))),
        });
        self
    }

    /// Waits for the caches and for the lead, then reconciles until the process is asked to end; what runs then is finished, and
    /// nothing is begun. Dropping the future ends the reconciliations that run.
    ///
    /// # Errors
    /// A controller of the same name exists already.
    pub async fn run(self) -> anyhow::Result<()> {
        self.start(false).await.map(|_| ())
    }

    /// Like [`run`](Self::run), but reconciles each key that the caches or [`queue`](Self::queue) have now once, and returns.
    ///
    /// # Errors
    /// The first failure; the other keys are reconciled nevertheless. The process was asked to end before all had been.
    pub async fn once(self) -> anyhow::Result<()> {
        match self.start(true).await? {
            End::Finished(None) => Ok(()),
            End::Finished(Some(error)) => Err(error.into()),
            End::Shutdown => anyhow::bail!("asked to end before everything was reconciled once"),
        }
    }

    async fn start(self, once: bool) -> anyhow::Result<End<R::Error>> {
        let metrics = WorkQueueMetrics::register(self.runtime.metrics.registry(), self.name, &self.queue)?;
        self.runtime.metrics.controller(self.name);
        let (synced, subscribe): (Vec<_>, Vec<_>) =
            self.sources.into_iter().map(|source| (source.synced, source.subscribe)).unzip();
        tokio::select! {
            biased;
            () = self.runtime.shutdown.cancelled() => return Ok(End::Shutdown),
            _ = futures::future::join_all(synced) => {}
        }
        if !self.runtime.leading().await {
            return Ok(End::Shutdown);
        }
        subscribe.into_iter().for_each(|subscribe| subscribe());
        let workers = Workers {
            name: self.name,
            runtime: self.runtime,
            reconciler: self.reconciler,
            queue: self.queue,
            max_concurrent_reconciles: self.max_concurrent_reconciles,
            metrics,
            kept: HashMap::new(),
            running: JoinSet::new(),
        };
        Ok(workers.work(once).await)
    }
}

enum End<E> {
    /// Of [`Controller::once`].
    Finished(Option<E>),
    Shutdown,
}

/// Of one key, between two reconciliations.
struct Kept<M> {
    memo: M,
    /// So many reconciliations in a row were outdated.
    outdated: u32,
}

type Outcome<R> =
    (<R as Reconciler>::Key, Kept<<R as Reconciler>::Memo>, Result<Next, <R as Reconciler>::Error>);

struct Workers<R: Reconciler> {
    name: &'static str,
    runtime: Runtime,
    reconciler: Arc<R>,
    queue: Queue<R::Key>,
    max_concurrent_reconciles: usize,
    metrics: WorkQueueMetrics,
    kept: HashMap<R::Key, Kept<R::Memo>>,
    running: JoinSet<Outcome<R>>,
}

impl<R: Reconciler> Workers<R> {
    async fn work(mut self, once: bool) -> End<R::Error> {
        // Each key that has been begun, where each is reconciled once.
        let mut begun = HashSet::new();
        let mut failure = None;
        loop {
            self.runtime.status.heartbeat(self.name);
            while self.running.len() < self.max_concurrent_reconciles
                && let Some(key) = self.next()
            {
                if once && !begun.insert(key.clone()) {
                    self.queue.lock().done(&key, Instant::now());
                    continue;
                }
                self.begin(key, once);
            }
            if once && self.running.is_empty() {
                return End::Finished(failure);
            }
            let idle = Instant::now() + HEARTBEAT;
            let full = self.running.len() >= self.max_concurrent_reconciles;
            let due = self.queue.lock().next_due().filter(|_| !full && !once);
            tokio::select! {
                biased;
                () = self.runtime.shutdown.cancelled() => break,
                Some(ended) = self.running.join_next() => {
                    let error = self.finish(outcome(ended), once);
                    failure = failure.or(error);
                }
                () = self.queue.0.changed.notified() => {}
                () = sleep_until(due.map_or(idle, |due| due.min(idle))) => {}
            }
        }
        while let Some(ended) = self.running.join_next().await {
            self.finish(outcome(ended), true);
        }
        End::Shutdown
    }

    fn next(&self) -> Option<R::Key> {
        let (key, waited) = self.queue.lock().get(Instant::now())?;
        self.metrics.queued.observe(waited.as_secs_f64());
        Some(key)
    }

    fn begin(&mut self, key: R::Key, once: bool) {
        let reconciler = Arc::clone(&self.reconciler);
        let first = || Kept { memo: reconciler.memo(&key), outdated: 0 };
        let mut kept = self.kept.remove(&key).unwrap_or_else(first);
        let span = tracing::info_span!(
            "reconcile",
            controller = self.name,
            object = %key,
            otel.status_code = tracing::field::Empty
        );
        let measured = self.runtime.reconciliation(self.name);
        let work = async move {
            let result = reconciler.reconcile(&key, &mut kept.memo).await;
            kept.outdated = match &result {
                Err(error) if R::is_outdated(error) => kept.outdated.saturating_add(1),
                Ok(Next::NotYet(_)) => kept.outdated,
                _ => 0,
            };
            match &result {
                Ok(_) => measured.succeeded(),
                Err(error) if (1..OUTDATED_MAX).contains(&kept.outdated) && !once => {
                    tracing::debug!(error = error_chain(error), "outdated");
                    measured.succeeded();
                }
                Err(error) => {
                    tracing::warn!(error = error_chain(error), "reconcile failed");
                    tracing::Span::current().record("otel.status_code", "ERROR");
                    measured.failed();
                }
            }
            (key, kept, result)
        };
        self.running.spawn(work.instrument(span));
    }

    /// Takes over how a reconciliation ended; `last`: the key is not reconciled again.
    fn finish(&mut self, (key, mut kept, result): Outcome<R>, last: bool) -> Option<R::Error> {
        let now = Instant::now();
        let mut queue = self.queue.lock();
        match &result {
            Ok(Next::NotYet(_)) => {}
            Ok(_) => queue.forget(&key),
            Err(error) if !last => {
                let backoff = match kept.outdated {
                    0 => queue.backoff(key.clone(), now),
                    count => Backoff { base: OUTDATED_DELAY, ..queue.limiter().backoff }.delay(count),
                };
                let delay = self.reconciler.retry_after(&mut kept.memo, error, backoff);
                queue.requeue_after(key.clone(), delay, now);
            }
            Err(_) => {}
        }
        if let (Ok(Next::After(delay) | Next::NotYet(delay)), false) = (&result, last) {
            queue.requeue_after(key.clone(), *delay, now);
        }
        let worked = queue.done(&key, now);
        drop(queue);
        self.metrics.worked.observe(worked.as_secs_f64());
        if !matches!(result, Ok(Next::Gone)) {
            self.kept.insert(key, kept);
        }
        result.err()
    }
}

/// A task that panicked makes its controller panic, as if it had been no task.
fn outcome<T>(ended: Result<T, tokio::task::JoinError>) -> T {
    match ended {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Nothing cancels a single task.
            Err(error) => std::panic::resume_unwind(Box::new(error.to_string())),
        },
    }
}

/// Buckets of client-go's queue histograms: 10 ns to 10 s in controller-runtime, of which those below a millisecond say nothing.
const QUEUE_SECONDS: [f64; 8] = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1000.0];

/// `workqueue_*` as client-go names them, with its label `name`. What changes with time is computed when it is scraped.
struct WorkQueueMetrics {
    queued: Histogram,
    worked: Histogram,
}

impl WorkQueueMetrics {
    fn register<K: Key>(
        registry: &Registry,
        name: &'static str,
        queue: &Queue<K>,
    ) -> Result<Self, prometheus::Error> {
        let histogram = |family: &str, help: &str| {
            let options = HistogramOpts::new(family, help).buckets(QUEUE_SECONDS.to_vec());
            register(registry, Histogram::with_opts(options.const_label("name", name))?)
        };
        let options = |family: &str, help: &str| Opts::new(family, help).const_label("name", name);
        let counter = |family, help| Counter::with_opts(options(family, help));
        let gauge = |family, help| Gauge::with_opts(options(family, help));
        registry.register(Box::new(QueueCollector {
            queue: queue.clone(),
            adds: counter("workqueue_adds_total", "Keys added to the queue")?,
            retries: counter("workqueue_retries_total", "Keys added to the queue after a delay")?,
            depth: gauge("workqueue_depth", "Keys that are ready to be reconciled")?,
            unfinished: gauge(
                "workqueue_unfinished_work_seconds",
                "For how long all unfinished reconciliations have run, in total",
            )?,
            longest: gauge(
                "workqueue_longest_running_processor_seconds",
                "For how long the longest unfinished reconciliation has run",
            )?,
        }))?;
        Ok(WorkQueueMetrics {
            queued: histogram(
                "workqueue_queue_duration_seconds",
                "How long a key waits until it is reconciled",
            )?,
            worked: histogram("workqueue_work_duration_seconds", "How long a key is reconciled")?,
        })
    }
}

struct QueueCollector<K> {
    queue: Queue<K>,
    adds: Counter,
    retries: Counter,
    depth: Gauge,
    unfinished: Gauge,
    longest: Gauge,
}

impl<K: Key> Collector for QueueCollector<K> {
    fn desc(&self) -> Vec<&Desc> {
        let collectors: [&dyn Collector; 5] =
            [&self.adds, &self.retries, &self.depth, &self.unfinished, &self.longest];
        collectors.into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let queue = self.queue.lock();
        let unfinished: Vec<f64> = queue.unfinished(Instant::now()).map(|time| time.as_secs_f64()).collect();
        // More than 2^53 of anything is not reached.
        self.adds.inc_by((queue.adds() as f64 - self.adds.get()).max(0.0));
        self.retries.inc_by((queue.retries() as f64 - self.retries.get()).max(0.0));
        self.depth.set(queue.depth() as f64);
        self.unfinished.set(unfinished.iter().sum());
        self.longest.set(unfinished.iter().copied().fold(0.0, f64::max));
        drop(queue);
        let collectors: [&dyn Collector; 5] =
            [&self.adds, &self.retries, &self.depth, &self.unfinished, &self.longest];
        collectors.into_iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests;
