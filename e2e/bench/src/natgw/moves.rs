//! From what happens to a Node to the route that follows it.
//!
//! ```text
//!   cordon, NotReady:   event ── delete_route ──(1 s)── add_route ──(1 s)── route in force
//!   label:              event ── Job ── its success ─── add_route ──(1 s)── route in force
//! ```

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use common::k8s::{Job, job};
use e2e::natgw::{FLOATING_IP_LABEL, TestEnv};
use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use natgw::names;
use tokio::task::JoinSet;

use super::stage::{ACTION, Stage, StageNode, WITH_FLOATING_IP};
use crate::figures::Figures;
use crate::process::{TIMEOUT, stop};
use crate::report::Report;

/// First gateways from nothing, for each number of Nodes: each needs a Node that was no gateway before, a Job, and the way
/// back.
const LABELS: usize = 3;
/// Cordons, and as many losses of readiness.
const MOVES: usize = 5;
/// After a move natgw reads the cloud again and writes the role label; the next event meets it at rest, as in life.
const REST: Duration = Duration::from_millis(500);

/// When the cloud accepted what.
struct Accepted {
    /// The first change of a route.
    first: Duration,
    /// `add_route`.
    add: Duration,
    /// The route stands.
    in_force: Duration,
}

/// Makes labels, cordons and losses of readiness on the stage as it is. `fresh` is the first Node that was no gateway yet.
///
/// # Errors
/// natgw fails, or does not do what it should.
pub(crate) async fn measure(stage: &Stage, fresh: usize, report: &mut Report) -> Result<()> {
    let nodes = stage.nodes.len();
    let ends = JobEnds::watch(&stage.env);
    let gateways = labels(stage, fresh, &ends, report).await?;

    let natgw = stage.lead(false).await?;
    let (mut cordons, mut losses) = (Vec::new(), Vec::new());
    let (mut from, mut to) = gateways;
    for _ in 0..MOVES {
        let before = Instant::now();
        from.node.cordon(true).await?;
        cordons.push(moved(&stage.env, before, to).await?);
        from.node.cordon(false).await?;
        (from, to) = (to, from);

        tokio::time::sleep(REST).await;
        let before = Instant::now();
        from.node.set_ready(false).await?;
        losses.push(moved(&stage.env, before, to).await?);
        from.node.set_ready(true).await?;
        (from, to) = (to, from);
        tokio::time::sleep(REST).await;
    }
    stop(&natgw).await?;

    for (event, moves) in [("Cordon", cordons), ("NotReady", losses)] {
        report.row(
            format!("{event} → first write to the cloud, {nodes} Nodes"),
            "",
            Figures::milliseconds(moves.iter().map(|one| one.first))?,
            "From the moment the change of the Node is sent to the API server (its own work included) to `delete_route` in the cloud",
        );
        report.row(
            format!("{event} → `add_route` accepted, {nodes} Nodes"),
            "≤ 1 s + action",
            Figures::milliseconds(moves.iter().map(|one| one.add))?,
            "The same to `add_route`; in between lies the action of `delete_route`, 1 s as the real one, looked at every 250 ms",
        );
        report.row(
            format!("{event} → `add_route` accepted, less the action, {nodes} Nodes"),
            "≤ 1 s",
            Figures::milliseconds(moves.iter().map(|one| one.add.saturating_sub(ACTION)))?,
            "What is natgw's own of the row above: all but that second",
        );
        report.row(
            format!("{event} → route in force, less both actions, {nodes} Nodes"),
            "≤ 1 s",
            Figures::milliseconds(moves.iter().map(|one| one.in_force.saturating_sub(2 * ACTION)))?,
            "To the end of the action of `add_route`, less the two seconds of both actions",
        );
    }
    Ok(())
}

/// First gateways, one by one; then a second one beside the last. Both are returned, the primary first.
async fn labels<'a>(
    stage: &'a Stage,
    fresh: usize,
    ends: &JobEnds,
    report: &mut Report,
) -> Result<(&'a StageNode, &'a StageNode)> {
    let (nodes, env) = (stage.nodes.len(), &stage.env);
    let at = |index: usize| stage.nodes.get(index).context("the stage has too few Nodes");
    let (mut whole, mut after_job) = (Vec::new(), Vec::new());
    for index in fresh..fresh + LABELS {
        clear(stage).await?;
        // Started anew each time: the route was taken away behind the back of the one before.
        let natgw = stage.lead(false).await?;
        tokio::time::sleep(REST).await;
        let before = Instant::now();
        let gateway = at(index)?;
        gateway.node.label(FLOATING_IP_LABEL, gateway.floating_ip.as_deref()).await?;
        let accepted = moved(env, before, gateway).await?;
        let job_ended = ends.of(&gateway.name).context("the setup Job was not seen to succeed")?;
        whole.push(accepted.add);
        after_job.push((before + accepted.add).saturating_duration_since(job_ended));
        stop(&natgw).await?;
    }
    report.row(
        format!("Label → `add_route` accepted, {nodes} Nodes"),
        "",
        Figures::milliseconds(whole)?,
        "A first gateway: the setup Job and Kubernetes' own Job controller (about a second) lie in between; its pod ends at once",
    );
    report.row(
        format!("Setup Job succeeded → `add_route` accepted, {nodes} Nodes"),
        "≤ 1 s",
        Figures::milliseconds(after_job)?,
        "natgw's part of the row above: annotation, election, route; from the moment another client sees the Job complete",
    );
    let natgw = stage.lead(false).await?;
    let (primary, other) = (at(fresh + LABELS - 1)?, at(fresh)?);
    other.node.label(FLOATING_IP_LABEL, other.floating_ip.as_deref()).await?;
    env.wait("a second gateway", || is_gateway(env, other, true)).await?;
    stop(&natgw).await?;
    Ok((primary, other))
}

/// Takes all gateways back: labels and, behind natgw's back, the route.
async fn clear(stage: &Stage) -> Result<()> {
    let env = &stage.env;
    let holders: Vec<_> = stage.nodes.iter().take(WITH_FLOATING_IP).collect();
    let mut labelled = Vec::new();
    for holder in holders {
        if is_gateway(env, holder, true).await? {
            labelled.push(holder);
        }
    }
    if labelled.is_empty() {
        return Ok(());
    }
    let natgw = stage.lead(false).await?;
    for holder in &labelled {
        holder.node.label(FLOATING_IP_LABEL, None).await?;
    }
    for holder in labelled {
        env.wait("the teardown", || is_gateway(env, holder, false)).await?;
    }
    env.wait("no role label", || async { Ok(env.role_holders().await?.is_empty()) }).await?;
    stop(&natgw).await?;
    env.hetzner.set_route(env.network, "0.0.0.0/0".parse()?, None)
}

/// Whether a Node is set up, or (`wanted` false) has nothing of it any more.
async fn is_gateway(env: &TestEnv, holder: &StageNode, wanted: bool) -> Result<bool> {
    let annotations = env.get(&holder.name).await?.metadata.annotations.unwrap_or_default();
    let pending = annotations.contains_key(names::PENDING_ANNOTATION);
    Ok(!pending && annotations.contains_key(names::SETUP_ANNOTATION) == wanted)
}

/// Waits until the route and the role label are at `to`; when the cloud accepted what, counted from `before`.
async fn moved(env: &TestEnv, before: Instant, to: &StageNode) -> Result<Accepted> {
    let standing = |gateway: Option<Ipv4Addr>| gateway == Some(to.private_ip);
    env.hetzner
        .wait_until(&format!("the route to {}", to.name), TIMEOUT, |cloud| {
            cloud.networks.get(&env.network).is_some_and(|lan| standing(lan.default_gateway()))
        })
        .await?;
    let history = env.hetzner.route_history(env.network);
    let in_force =
        history.iter().rev().find(|change| standing(change.gateway)).context("the route's history")?;
    let writes: Vec<_> = env.hetzner.writes().into_iter().filter(|write| write.at >= before).collect();
    let first = writes.first().context("no write to the cloud")?.at;
    let add = writes.iter().find(|write| write.path.ends_with("/add_route")).context("no add_route")?.at;
    let accepted = Accepted {
        first: first.saturating_duration_since(before),
        add: add.saturating_duration_since(before),
        in_force: in_force.at.saturating_duration_since(before),
    };
    let holder = [to.name.clone()];
    env.wait("the role label", || async { Ok(env.role_holders().await? == holder) }).await?;
    Ok(accepted)
}

/// When each Node's Job was first seen complete, by a watch of our own.
struct JobEnds {
    seen: Arc<Mutex<BTreeMap<String, Instant>>>,
    _watch: JoinSet<()>,
}

impl JobEnds {
    fn watch(env: &TestEnv) -> Self {
        let seen = Arc::<Mutex<BTreeMap<String, Instant>>>::default();
        let (written, api) = (seen.clone(), Api::<Job>::namespaced(env.client.clone(), &env.namespace));
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            let jobs = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            let mut jobs = std::pin::pin!(jobs);
            while let Some(job) = jobs.next().await {
                // A watch that breaks begins again; a Job that it missed is reported as not seen.
                let Ok(job) = job else { continue };
                if let Some(node) = job.annotations().get(names::NODE_NAME_ANNOTATION)
                    && job.outcome() == job::Outcome::Succeeded
                {
                    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                    written.entry(node.clone()).or_insert_with(Instant::now);
                }
            }
        });
        Self { seen, _watch: watch }
    }

    fn of(&self, node: &str) -> Option<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied()
    }
}
