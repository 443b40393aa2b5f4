//! routegc is stopped at each of its writes, and each fault is injected at each of its requests to Kubernetes and to Neutron. The end state
//! must equal the undisturbed one, and no request may remove a route that is not orphaned.
//!
//! `make test` stops after every write and runs a slice of the faults; `make test-full` also stops before every write and after its
//! response, and runs all faults, `SWEEP=k/n` a part.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::fault_proxy::{FaultProxy, When};
use e2e::routegc::{TestEnv, hop, pods};
use e2e::sweep::{Case, Harm, Kind, OF_READS, OF_WRITES, Slice, Victim, sweep};
use http::Method;
use kube::api::DeleteParams;
use serde_json::json;

/// `make test` injects one of this many faults.
const SLICES: u64 = 64;
/// Number of reconciliations after which every run must have converged.
const CONVERGED: usize = 6;
/// A route outside of the pod networks, which must stay.
const FOREIGN: (&str, &str) = ("192.168.9.0/24", "10.7.1.99");

#[derive(Clone, Copy, Debug)]
enum Side {
    Kubernetes,
    Neutron,
}

/// The reads, or the writes, of a server.
type Calls = (Side, Kind);

/// Requests of the first two reconciliations.
#[derive(Debug)]
struct Counts {
    /// Writes at which routegc is stopped: without Leases and Events.
    stops: u64,
    calls: Vec<(Calls, u64)>,
}

/// Restores the initial state in the shared environment, with a new policy.
async fn reset(env: &TestEnv) -> Result<()> {
    let old = env.policies().list(&Default::default()).await?;
    for object in old.items {
        let name = object.metadata.name.context("a name")?;
        env.policies().delete(&name, &DeleteParams::default()).await?;
    }
    let orphaned = [(pods(3), hop(3)), (pods(4), hop(4))];
    let orphaned: Vec<(&str, &str)> = orphaned.iter().map(|(to, via)| (to.as_str(), via.as_str())).collect();
    env.project.add_routes(&orphaned).await?;
    // By its name, so that finding the router has faults too.
    env.policy("prod", json!({ "routerID": null, "routerName": "nodes" })).await?;
    Ok(())
}

/// One reconciliation, which may fail or be stopped, but must not hang or panic. Its output.
async fn reconcile(env: &TestEnv, victim: &Victim) -> Result<String> {
    env.wait_for_cache().await?;
    victim.start(&env.routegc()?.args(["--once", "--leader-elect=false"]))?;
    victim.program().context("it was started")?.wait_exit().await?;
    Ok(victim.ended()?.context("it has exited")?.join("\n"))
}

async fn run(env: &TestEnv, case: Case<Calls>) -> Result<Counts> {
    reset(env).await?;
    let seen = env.neutron.writes().len();
    let from = (env.writes.count(), env.api_proxy.requests().len(), env.neutron.requests().len());
    let victim = Victim::default();
    let armed = case.arm(&env.writes, &victim, |(side, kind)| kind.at(proxy(env, side)))?;
    let output = [reconcile(env, &victim).await?, reconcile(env, &victim).await?];
    let kubernetes = Kind::count(Side::Kubernetes, &env.api_proxy.requests().split_off(from.1));
    let neutron = Kind::count(Side::Neutron, &env.neutron.requests().split_off(from.2));
    let counts = Counts { stops: env.writes.count() - from.0, calls: [kubernetes, neutron].concat() };
    let happened = armed.happened();
    let mut last = Ok(());
    for _ in 2..CONVERGED {
        last = has_converged(env).await;
        if last.is_ok() {
            break;
        }
        reconcile(env, &victim).await?;
    }
    if last.is_err() {
        has_converged(env).await?;
    }
    // All writes to Neutron, of all processes.
    let orphaned = BTreeSet::from([pods(3), pods(4)]);
    for write in env.neutron.writes().split_off(seen) {
        ensure!(write.path.ends_with("/remove_extraroutes") && write.method == Method::PUT, "{write:?}");
        let body = write.json().context("a body")?;
        for route in body["router"]["routes"].as_array().context("routes")? {
            let destination = route["destination"].as_str().context("a destination")?;
            ensure!(orphaned.contains(destination), "forbidden: a removal of {destination}");
        }
    }
    happened.with_context(|| format!("{counts:?}: {}", output.join("\n")))?;
    Ok(counts)
}

/// Checks the end state of every run.
async fn has_converged(env: &TestEnv) -> Result<()> {
    let left = env.destinations().await?;
    ensure!(left == [pods(1), pods(2), FOREIGN.0.to_owned()], "routes: {left:?}");
    let status = env.status("prod").await?;
    let removed: BTreeSet<_> =
        status.last_removed.iter().map(|one| (one.destination.clone(), one.times)).collect();
    ensure!(removed == BTreeSet::from([(pods(3), 1), (pods(4), 1)]), "removed: {removed:?}");
    ensure!(
        status.candidates.is_empty() && status.removing.is_empty() && status.recreated.is_empty(),
        "{status:?}"
    );
    let ready = env.reason("prod", "Ready").await?;
    ensure!(ready == "NoOrphans", "Ready is {ready}");
    Ok(())
}

fn proxy(env: &TestEnv, side: Side) -> &FaultProxy {
    match side {
        Side::Kubernetes => &env.api_proxy,
        Side::Neutron => &env.neutron,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stop_and_each_fault_converges_to_the_undisturbed_state() {
    let env = TestEnv::start().await.unwrap();
    env.populate(2, 0).await.unwrap();
    env.project.add_routes(&[FOREIGN]).await.unwrap();
    let counts = run(&env, Case::Undisturbed).await.unwrap();
    assert!(counts.stops >= 4, "candidates, intent, removal, result: {counts:?}");
    let slice = Slice::chosen("routegc", SLICES).unwrap();
    let all = [When::BeforeForward, When::AfterServerActed, When::AfterResponse];
    let whens: &[When] = if slice.is_whole() { &all } else { slice.stops() };
    // Neutron's response where the router has another revision.
    let writes = [&OF_WRITES[..], &[Harm::Rejected(412)]].concat();
    let mut cases = Case::stops(counts.stops, whens);
    cases.extend(slice.pick(Case::faults_by_kind(&counts.calls, &OF_READS, &writes)));
    println!("{counts:?}: {} cases, {slice}", cases.len());
    let recover = || {
        env.api_proxy.clear();
        env.neutron.clear();
        env.writes.forget_actions();
    };
    sweep(&cases, async |case| run(&env, case).await.map(drop), recover).await.unwrap();
}
