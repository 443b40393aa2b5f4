//! routegc is stopped at each of its writes, and has each fault at each of its calls, on Kubernetes' side and on Neutron's. The
//! end must be the undisturbed one, and nothing forbidden may be asked for on the way: a removal of anything but the dead routes.
//!
//! `make test` has every stop and a slice of the faults; `make test-full` has all, `SWEEP=k/n` a part.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::fault_proxy::{FaultProxy, When};
use e2e::natgw::TIMEOUT;
use e2e::routegc::{TestEnv, hop, pods};
use e2e::sweep::{Case, Harm, Slice, Victim, sweep};
use http::Method;
use kube::api::DeleteParams;
use serde_json::json;

/// `make test` takes every so manyth fault.
const SLICES: u64 = 16;
/// Passes after which the environment has come to rest, whatever was in the way of the first two.
const ENOUGH: usize = 6;
/// Routes that are not to be touched: two lead to nodes that live, one is nobody's business here.
const FOREIGN: (&str, &str) = ("192.168.9.0/24", "10.7.1.99");

#[derive(Clone, Copy, Debug)]
enum Side {
    Kubernetes,
    Neutron,
}

/// Those that can come from either side.
const HARMS: [Harm; 12] = [
    Harm::Refused,
    Harm::Rejected(500),
    Harm::Rejected(503),
    Harm::Rejected(409),
    Harm::Rejected(412),
    Harm::Rejected(403),
    Harm::Replaced(500),
    Harm::Replaced(504),
    Harm::Swallowed,
    Harm::Cut,
    Harm::LateRequest,
    Harm::LateAnswer,
];

/// How many writes, and calls to each side, the first two passes make.
#[derive(Debug, Default)]
struct Counts {
    writes: u64,
    kubernetes: u64,
    neutron: u64,
}

/// The scene: the same for each run, in one environment, with a policy of the run's own.
async fn set(env: &TestEnv) -> Result<()> {
    let old = env.policies().list(&Default::default()).await?;
    for object in old.items {
        let name = object.metadata.name.context("a name")?;
        env.policies().delete(&name, &DeleteParams::default()).await?;
    }
    let dead = [(pods(3), hop(3)), (pods(4), hop(4))];
    let dead: Vec<(&str, &str)> = dead.iter().map(|(to, via)| (to.as_str(), via.as_str())).collect();
    env.project.add_routes(&dead).await?;
    env.policy("prod", json!({})).await?;
    Ok(())
}

/// One reconciliation, which may be disturbed: it may fail or be stopped, but not hang and not panic.
async fn reconcile(env: &TestEnv, victim: &Victim) -> Result<()> {
    victim.start(&env.routegc()?.args(["--once", "--leader-elect=false"]))?;
    let begun = tokio::time::Instant::now();
    while victim.ended()?.is_none() {
        ensure!(begun.elapsed() < TIMEOUT, "it hangs: {}", victim.lines().join("\n"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn run(env: &TestEnv, case: Case<Side>) -> Result<Counts> {
    set(env).await?;
    let seen = env.neutron.writes().len();
    let from = (env.writes.count(), env.api_proxy.requests().len(), env.neutron.requests().len());
    let victim = Victim::default();
    let armed = case.arm(&env.writes, &victim, |side| proxy(env, side).clone())?;
    for _ in 0..2 {
        reconcile(env, &victim).await?;
    }
    let counts = Counts {
        writes: env.writes.count() - from.0,
        kubernetes: (env.api_proxy.requests().len() - from.1) as u64,
        neutron: (env.neutron.requests().len() - from.2) as u64,
    };
    let happened = armed.happened();
    let mut last = Ok(());
    for _ in 2..ENOUGH {
        last = at_rest(env).await;
        if last.is_ok() {
            break;
        }
        reconcile(env, &victim).await?;
    }
    if last.is_err() {
        at_rest(env).await?;
    }
    // Everything that was asked of Neutron, by whichever of the processes.
    let dead = BTreeSet::from([pods(3), pods(4)]);
    for write in env.neutron.writes().split_off(seen) {
        ensure!(write.path.ends_with("/remove_extraroutes") && write.method == Method::PUT, "{write:?}");
        let body = write.json().context("a body")?;
        for route in body["router"]["routes"].as_array().context("routes")? {
            let destination = route["destination"].as_str().context("a destination")?;
            ensure!(dead.contains(destination), "forbidden: a removal of {destination}");
        }
    }
    happened.map(|()| counts)
}

/// The end that every run must come to.
async fn at_rest(env: &TestEnv) -> Result<()> {
    let left = env.destinations().await?;
    ensure!(left == [pods(1), pods(2), FOREIGN.0.to_owned()], "routes: {left:?}");
    let status = env.status("prod").await?;
    let removed: BTreeSet<_> =
        status.last_removed.iter().map(|one| (one.destination.clone(), one.times)).collect();
    ensure!(removed == BTreeSet::from([(pods(3), 1), (pods(4), 1)]), "removed: {removed:?}");
    ensure!(
        status.candidates.is_empty() && status.removing.is_empty() && status.contested.is_empty(),
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
async fn each_death_and_each_fault_leads_to_the_same_end_with_nothing_forbidden_on_the_way() {
    let env = TestEnv::start().await.unwrap();
    env.node(1).await.unwrap();
    env.node(2).await.unwrap();
    env.project.add_routes(&[FOREIGN]).await.unwrap();
    let counts = run(&env, Case::Undisturbed).await.unwrap();
    assert!(counts.writes >= 4, "candidates, intent, removal, result: {counts:?}");
    let slice = Slice::chosen("routegc", SLICES).unwrap();
    let calls = [(Side::Kubernetes, counts.kubernetes), (Side::Neutron, counts.neutron)];
    let whens = [When::BeforeForward, When::AfterServerActed, When::AfterAnswered];
    let cases = Case::all(counts.writes, &whens, &calls, &HARMS, slice);
    println!("{counts:?}: {} cases, {slice}", cases.len());
    let recover = || {
        env.api_proxy.clear();
        env.neutron.clear();
        env.writes.forget_actions();
    };
    sweep(&cases, async |case| run(&env, case).await.map(drop), recover).await.unwrap();
}
