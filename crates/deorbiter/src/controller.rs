//! When each Deorbit is reconciled: something changed, or its time has come. A reconcile never waits for anything but answers, which
//! all have deadlines; so a cluster that does not answer holds up one worker for seconds, and no other cluster.

pub mod glance;
pub mod memo;
pub mod queue;
pub mod reconcile;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::api::deorbit::Deorbit;
use common::cloud::openstack;
use common::runtime::Runtime;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kube::Api;
use tokio::sync::{Notify, OnceCell};

use self::memo::Memo;
use self::queue::Queue;
use self::reconcile::{Key, reconcile};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::observe::target;
use crate::settings::Settings;

/// What all reconciles share.
pub struct Context {
    /// The process.
    pub runtime: Runtime,
    /// What holds for every Deorbit.
    pub settings: Settings,
    /// Our own metrics.
    pub metrics: Metrics,
    /// Those of the OpenStack client.
    pub openstack: openstack::Metrics,
    management: OnceCell<String>,
}

impl Context {
    /// The UID of the management cluster's namespace kube-system. It is read once.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn management_identity(&self) -> Result<&str, String> {
        let read = async || target::identity(&self.runtime.client).await.map_err(|error| error.to_string());
        self.management.get_or_try_init(read).await.map(String::as_str)
    }
}

/// First wait after a reconcile that could not store anything; doubled with each further one, up to a minute.
const BACKOFF: Duration = Duration::from_secs(1);
/// A heartbeat is due every few minutes, also where there is no Deorbit.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// Watches Deorbits and reconciles them, at most `max_concurrent` at a time, until the process shall end; then reconciles that have begun are
/// finished.
///
/// # Errors
/// Metrics that cannot be registered.
pub async fn run(runtime: Runtime, settings: Settings, max_concurrent: usize) -> anyhow::Result<()> {
    let metrics = Metrics::new(runtime.metrics.clone())?;
    let openstack = openstack::Metrics::register(runtime.metrics.registry())?;
    let context = Context { runtime, settings, metrics, openstack, management: OnceCell::new() };
    let changed = Arc::new(Notify::new());
    let api = Api::<Deorbit>::all(context.runtime.client.clone());
    // The cache only says when to look; a status may be large, and is read anew in each reconcile.
    let trim = |deorbit: &mut Deorbit| {
        deorbit.status = None;
        deorbit.metadata.managed_fields = None;
    };
    let store = context.runtime.cache(api).trim(trim).start();
    let notify = Arc::clone(&changed);
    store.subscribe(move |_| notify.notify_one());
    let work = async {
        tokio::select! {
            biased;
            () = context.runtime.shutdown.cancelled() => return Ok(()),
            () = store.synced() => {}
        }
        if !context.runtime.leading().await {
            return Ok(());
        }
        let mut queue = Queue::default();
        let mut reconciles = FuturesUnordered::new();
        loop {
            context.runtime.status.heartbeat(context.runtime.program.name);
            for gone in queue.follow(&store.list(), Instant::now()) {
                context.metrics.forget(&gone.0, &gone.1);
                context.runtime.status.remove(&format!("deorbit {}/{}", gone.0, gone.1));
            }
            while reconciles.len() < max_concurrent
                && let Some((key, memo)) = queue.take(Instant::now())
            {
                reconciles.push(one(&context, key, memo));
            }
            let wait =
                queue.next_due().map_or(HEARTBEAT, |due| due.saturating_duration_since(Instant::now()));
            let full = reconciles.len() >= max_concurrent;
            tokio::select! {
                biased;
                () = context.runtime.shutdown.cancelled() => break,
                Some((key, memo, requeue_after)) = reconciles.next() => queue.give_back(key, memo, requeue_after, Instant::now()),
                () = changed.notified() => {}
                () = tokio::time::sleep(if full { HEARTBEAT } else { wait.min(HEARTBEAT) }) => {}
            }
        }
        while reconciles.next().await.is_some() {}
        Ok(())
    };
    work.await
}

async fn one(context: &Context, key: Key, memo: Option<Memo>) -> (Key, Memo, Option<Duration>) {
    let mut memo = memo.unwrap_or_else(|| Memo::new(context.runtime.events.scoped()));
    if let Some(glance) = &mut memo.glance
        && let Some(requeue_after) = glance.look().await
    {
        return (key, memo, Some(requeue_after));
    }
    memo.glance = None;
    let reconciliation = context.runtime.reconciliation(context.runtime.program.name);
    let requeue_after = match reconcile(context, &key, &mut memo).await {
        Ok(requeue_after) => {
            reconciliation.succeeded();
            requeue_after
        }
        Err(error) if error.is_conflict() => {
            reconciliation.succeeded();
            tracing::debug!(namespace = key.0, name = key.1, %error, "conflict; requeued");
            Some(BACKOFF / 4)
        }
        Err(error) => {
            reconciliation.failed();
            if !matches!(error, Error::NotLeading) {
                tracing::warn!(namespace = key.0, name = key.1, %error, "reconcile failed");
            }
            memo.failures_in_a_row = memo.failures_in_a_row.saturating_add(1);
            Some(BACKOFF * (1 << memo.failures_in_a_row.min(6)))
        }
    };
    (key, memo, requeue_after)
}
