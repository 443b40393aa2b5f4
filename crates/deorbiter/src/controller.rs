//! When each Deorbit is walked: something changed, or its time has come. A walk never waits for anything but answers, which
//! all have deadlines; so a cluster that does not answer holds up one worker for seconds, and no other cluster.

pub mod glance;
pub mod memo;
pub mod queue;
pub mod walk;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::api::deorbit::Deorbit;
use common::cloud::openstack;
use common::events::Events;
use common::runtime::Runtime;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::Notify;

use self::memo::Memo;
use self::queue::Queue;
use self::walk::{Key, walk};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::names;
use crate::settings::Settings;

/// What all walks share.
pub struct Context {
    /// The process.
    pub runtime: Runtime,
    /// What holds for every Deorbit.
    pub settings: Settings,
    /// Our own metrics.
    pub metrics: Metrics,
    /// Those of the OpenStack client.
    pub openstack: openstack::Metrics,
}

/// First wait after a walk that could not store anything; doubled with each further one, up to a minute.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// A heartbeat is due every few minutes, also where there is no Deorbit.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// Watches Deorbits and walks them, at most `workers` at a time, until the process shall end; then walks that have begun are
/// finished.
///
/// # Errors
/// Metrics that cannot be registered.
pub async fn run(runtime: Runtime, settings: Settings, workers: usize) -> anyhow::Result<()> {
    let metrics = Metrics::new(runtime.metrics.clone())?;
    let openstack = openstack::Metrics::register(runtime.metrics.registry())?;
    let context = Context { runtime, settings, metrics, openstack };
    let changed = Arc::new(Notify::new());
    let api = Api::<Deorbit>::all(context.runtime.client.clone());
    // The cache only says when to look; a status may be large, and is read anew in each walk.
    let trim = |deorbit: &mut Deorbit| {
        deorbit.status = None;
        deorbit.metadata.managed_fields = None;
    };
    let (store, keep) = context.runtime.cache(api, watcher::Config::default(), "deorbits", trim, &changed);
    let work = async {
        store.wait_until_ready().await?;
        if !context.runtime.leading().await {
            return Ok(());
        }
        let mut queue = Queue::default();
        let mut walks = FuturesUnordered::new();
        loop {
            context.runtime.status.heartbeat(context.runtime.program.name);
            for gone in queue.follow(&store.state(), Instant::now()) {
                let name = format!("{}/{}", gone.0, gone.1);
                context.metrics.forget(&name);
                context.runtime.status.remove(&format!("deorbit {name}"));
            }
            while walks.len() < workers
                && let Some((key, memo)) = queue.take(Instant::now())
            {
                walks.push(one(&context, key, memo));
            }
            let wait =
                queue.next_due().map_or(HEARTBEAT, |due| due.saturating_duration_since(Instant::now()));
            let full = walks.len() >= workers;
            tokio::select! {
                biased;
                () = context.runtime.shutdown.cancelled() => break,
                Some((key, memo, again)) = walks.next() => queue.give_back(key, memo, again, Instant::now()),
                () = changed.notified() => {}
                () = tokio::time::sleep(if full { HEARTBEAT } else { wait.min(HEARTBEAT) }) => {}
            }
        }
        while walks.next().await.is_some() {}
        Ok(())
    };
    tokio::select! {
        done = work => done,
        () = keep => Ok(()),
    }
}

async fn one(context: &Context, key: Key, memo: Option<Memo>) -> (Key, Memo, Option<Duration>) {
    let mut memo = memo.unwrap_or_else(|| {
        let instance = std::env::var("POD_NAME").unwrap_or_else(|_| names::PROGRAM.to_owned());
        Memo::new(Events::new(context.runtime.client.clone(), names::PROGRAM, instance))
    });
    if let Some(glance) = &mut memo.glance
        && let Some(again) = glance.look().await
    {
        return (key, memo, Some(again));
    }
    memo.glance = None;
    let reconciliation = context.runtime.reconciliation(context.runtime.program.name);
    let again = match walk(context, &key, &mut memo).await {
        Ok(again) => {
            reconciliation.succeeded();
            again
        }
        Err(error) if error.is_conflict() => {
            reconciliation.succeeded();
            tracing::debug!(namespace = key.0, name = key.1, %error, "looking again");
            Some(FIRST_WAIT / 4)
        }
        Err(error) => {
            reconciliation.failed();
            if !matches!(error, Error::NotLeading) {
                tracing::warn!(namespace = key.0, name = key.1, %error, "reconcile failed");
            }
            memo.troubles = memo.troubles.saturating_add(1);
            Some(FIRST_WAIT * (1 << memo.troubles.min(6)))
        }
    };
    (key, memo, again)
}
