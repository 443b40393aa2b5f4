//! From a change of a Node to the route that follows.
//!
//! ```text
//!   cordon, NotReady:   event ── delete_route ──(1 s)── add_route ──(1 s)── route in force
//!   label:              event ── Job ── its success ─── add_route ──(1 s)── route in force
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use common::k8s::{Job, job};
use e2e::natgw::{FLOATING_IP_LABEL, TestEnv};
use e2e::wait::TIMEOUT;
use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use natgw::names;
use tokio::task::JoinSet;

use super::stage::{ACTION, Stage, StageNode, WITH_FLOATING_IP};
use crate::process::stop;
use crate::report::{Bench, milliseconds};

/// First gateways, for each number of Nodes. Each needs a Node that was no gateway before.
const LABELS: usize = 3;
/// Cordons, and as many losses of readiness.
const MOVES: usize = 5;
/// After a move, natgw reads the cloud and writes the role label. The next event comes when it is idle, as in a real cluster.
const REST: Duration = Duration::from_millis(500);

/// When the cloud accepted a request, after the event.
struct Moved {
    /// The first change of a route.
    first: Duration,
    /// `add_route`.
    add: Duration,
    /// The end of its action.
    in_force: Duration,
}

/// Labels, cordons and losses of readiness. `fresh` is the first Node that was no gateway yet.
pub(crate) async fn measure(stage: &Stage, fresh: usize, bench: &mut Bench) -> Result<()> {
    let nodes = stage.nodes.len();
    let (mut from, mut to) = labels(stage, fresh, bench).await?;
    let natgw = stage.lead(false).await?;
    let (mut cordons, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..MOVES {
        let event = Instant::now();
        from.node.cordon(true).await?;
        cordons.push(moved(&stage.env, event, to).await?);
        from.node.cordon(false).await?;
        (from, to) = (to, from);

        tokio::time::sleep(REST).await;
        let event = Instant::now();
        from.node.set_ready(false).await?;
        losses.push(moved(&stage.env, event, to).await?);
        from.node.set_ready(true).await?;
        (from, to) = (to, from);
        tokio::time::sleep(REST).await;
    }
    stop(&natgw).await?;

    for (event, moves) in [("Cordon", cordons), ("NotReady", losses)] {
        let mut row = |what: &str, goal, time: fn(&Moved) -> Duration, meaning: &str| {
            let figures = milliseconds(moves.iter().map(time));
            bench.row(format!("{event} → {what}, {nodes} Nodes"), goal, figures).means(meaning);
        };
        row(
            "first write to the cloud",
            "",
            |moved| moved.first,
            "From the moment the change of the Node is sent to the API server (its own work included) to `delete_route` in the cloud",
        );
        row(
            "`add_route` accepted",
            "≤ 1 s + action",
            |moved| moved.add,
            "The same to `add_route`; between them is the action of `delete_route`, 1 s as the real one, polled every 250 ms",
        );
        row(
            "`add_route` accepted, less the action",
            "≤ 1 s",
            |moved| moved.add.saturating_sub(ACTION),
            "natgw's own part of the row above: everything except that second",
        );
        row(
            "route in force, less both actions",
            "≤ 1 s",
            |moved| moved.in_force.saturating_sub(2 * ACTION),
            "To the end of the action of `add_route`, less the two seconds of both actions",
        );
    }
    Ok(())
}

/// First gateways, one by one, then a second one beside the last. Both are returned, the primary first.
async fn labels<'a>(
    stage: &'a Stage,
    fresh: usize,
    bench: &mut Bench,
) -> Result<(&'a StageNode, &'a StageNode)> {
    let (nodes, env, jobs) = (stage.nodes.len(), &stage.env, JobEnds::watch(&stage.env));
    let label = async |gateway: &StageNode| {
        gateway.node.label(FLOATING_IP_LABEL, gateway.floating_ip.as_deref()).await
    };
    let gateways = stage.nodes.get(fresh..fresh + LABELS).context("the stage has too few Nodes")?;
    let (mut whole, mut after_job) = (Vec::new(), Vec::new());
    for gateway in gateways {
        clear(stage).await?;
        // A new process, because the route was removed without natgw.
        let natgw = stage.lead(false).await?;
        tokio::time::sleep(REST).await;
        let event = Instant::now();
        label(gateway).await?;
        let moved = moved(env, event, gateway).await?;
        let ended = jobs.of(&gateway.name).context("the watch did not report the setup Job's success")?;
        whole.push(moved.add);
        after_job.push((event + moved.add).saturating_duration_since(ended));
        stop(&natgw).await?;
    }
    bench.row(format!("Label → `add_route` accepted, {nodes} Nodes"), "", milliseconds(whole)).means(
        "A first gateway, with the setup Job and Kubernetes' own Job controller (about a second); its pod ends at once",
    );
    bench
        .row(
            format!("Setup Job succeeded → `add_route` accepted, {nodes} Nodes"),
            "≤ 1 s",
            milliseconds(after_job),
        )
        .means("natgw's part of the row above: annotation, election, route; from the moment another client's watch reports the Job complete");
    let (other, primary) = gateways.first().zip(gateways.last()).context("no gateway")?;
    let natgw = stage.lead(false).await?;
    label(other).await?;
    env.wait("a second gateway", || is_set_up(env, other, true)).await?;
    stop(&natgw).await?;
    Ok((primary, other))
}

/// Removes all gateways: their labels and, without natgw, the route.
async fn clear(stage: &Stage) -> Result<()> {
    let (env, mut labelled) = (&stage.env, Vec::new());
    for gateway in stage.nodes.iter().take(WITH_FLOATING_IP) {
        if is_set_up(env, gateway, true).await? {
            labelled.push(gateway);
        }
    }
    if labelled.is_empty() {
        return Ok(());
    }
    let natgw = stage.lead(false).await?;
    for gateway in &labelled {
        gateway.node.label(FLOATING_IP_LABEL, None).await?;
    }
    for gateway in labelled {
        env.wait("the teardown", || is_set_up(env, gateway, false)).await?;
    }
    env.wait("no role label", || async { Ok(env.role_holders().await?.is_empty()) }).await?;
    stop(&natgw).await?;
    env.hetzner.set_route(env.network, "0.0.0.0/0".parse()?, None)
}

/// Whether no Job is pending and the Node's setup annotation is there (`expected`) or not.
async fn is_set_up(env: &TestEnv, gateway: &StageNode, expected: bool) -> Result<bool> {
    let annotations = env.get(&gateway.name).await?.metadata.annotations.unwrap_or_default();
    let pending = annotations.contains_key(names::PENDING_ANNOTATION);
    Ok(!pending && annotations.contains_key(names::SETUP_ANNOTATION) == expected)
}

/// Waits until the route and the role label are at `to`.
async fn moved(env: &TestEnv, event: Instant, to: &StageNode) -> Result<Moved> {
    let to_it = |gateway| gateway == Some(to.private_ip);
    env.hetzner
        .wait_until(&format!("the route to {}", to.name), TIMEOUT, |cloud| {
            cloud.networks.get(&env.network).is_some_and(|lan| to_it(lan.default_gateway()))
        })
        .await?;
    let history = env.hetzner.route_history(env.network);
    let in_force =
        history.iter().rev().find(|change| to_it(change.gateway)).context("no change of the route")?;
    let writes: Vec<_> = env.hetzner.writes().into_iter().filter(|write| write.at >= event).collect();
    let first = writes.first().context("no write to the cloud")?;
    let add = writes.iter().find(|write| write.path.ends_with("/add_route")).context("no add_route")?;
    let [first, add, in_force] =
        [first.at, add.at, in_force.at].map(|at| at.saturating_duration_since(event));
    let holder = [to.name.clone()];
    env.wait("the role label", || async { Ok(env.role_holders().await? == holder) }).await?;
    Ok(Moved { first, add, in_force })
}

/// When a watch first reported each Node's Job complete.
struct JobEnds {
    ends: Arc<Mutex<BTreeMap<String, Instant>>>,
    _watch: JoinSet<()>,
}

impl JobEnds {
    fn watch(env: &TestEnv) -> Self {
        let ends = Arc::<Mutex<BTreeMap<String, Instant>>>::default();
        let (written, api) = (ends.clone(), Api::<Job>::namespaced(env.client.clone(), &env.namespace));
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            let jobs = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            let mut jobs = std::pin::pin!(jobs);
            while let Some(job) = jobs.next().await {
                // The watch restarts by itself after an error. A Job that it missed is an error of the bench.
                let Ok(job) = job else { continue };
                if let Some(node) = job.annotations().get(names::NODE_NAME_ANNOTATION)
                    && job.outcome() == job::Outcome::Succeeded
                {
                    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                    written.entry(node.clone()).or_insert_with(Instant::now);
                }
            }
        });
        Self { ends, _watch: watch }
    }

    fn of(&self, node: &str) -> Option<Instant> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied()
    }
}
