//! routegc is stopped at each of its writes, and has each fault at each of its calls, on Kubernetes' side and on Neutron's. The
//! end must be the undisturbed one, and nothing forbidden may be asked for on the way: a removal of anything but the dead routes.
//!
//! `make test` has every death and a slice of the faults, another one each day; `make sweep` has all, `SWEEP=k/n` a part.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::fault_proxy::{FaultProxy, Matcher, Then, When};
use e2e::natgw::TIMEOUT;
use e2e::program::Program;
use e2e::routegc::{TestEnv, hop, pods};
use e2e::sweep::{Harm, Slice};
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

#[derive(Clone, Copy, Debug)]
enum Disturbance {
    Nothing,
    Kill { n: u64, when: When },
    Fault { side: Side, call: u64, harm: Harm },
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disturbance::Nothing => f.write_str("undisturbed"),
            Disturbance::Kill { n, when } => write!(f, "killed at write {n}, {when:?}"),
            Disturbance::Fault { side, call, harm } => write!(f, "{harm:?} at call {} to {side:?}", call + 1),
        }
    }
}

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

/// One pass, which may be disturbed: it may fail or die, but not hang and not panic.
async fn pass(env: &TestEnv, running: &Arc<Mutex<Option<Program>>>) -> Result<()> {
    let launch = env.routegc()?.args(["--once", "--leader-elect=false"]);
    *running.lock().unwrap() = Some(launch.start()?);
    let begun = tokio::time::Instant::now();
    loop {
        {
            let mut held = running.lock().unwrap();
            let program = held.as_ref().context("it was started")?;
            if program.exited()?.is_some() {
                let said = program.output().lines().join("\n");
                held.take();
                ensure!(!said.contains("panicked"), "{said}");
                return Ok(());
            }
            ensure!(begun.elapsed() < TIMEOUT, "it hangs: {}", program.output().lines().join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn run(env: &TestEnv, disturbance: Disturbance) -> Result<Counts> {
    set(env).await?;
    let seen = env.neutron.writes().len();
    let from = (env.writes.count(), env.api_proxy.requests().len(), env.neutron.requests().len());
    let running = Arc::new(Mutex::new(None::<Program>));
    match disturbance {
        Disturbance::Nothing => {}
        Disturbance::Kill { n, when } => {
            let victim = Arc::clone(&running);
            env.writes.on_write(n, when, move || async move {
                if let Some(program) = victim.lock().unwrap().as_ref() {
                    program.kill().unwrap();
                }
                Then::Cut
            })?;
        }
        Disturbance::Fault { side, call, harm } => {
            proxy(env, side).rule(Matcher::any().after(call).times(1), harm.fault()?);
        }
    }
    for _ in 0..2 {
        pass(env, &running).await?;
    }
    let counts = Counts {
        writes: env.writes.count() - from.0,
        kubernetes: (env.api_proxy.requests().len() - from.1) as u64,
        neutron: (env.neutron.requests().len() - from.2) as u64,
    };
    env.api_proxy.clear();
    env.neutron.clear();
    env.writes.forget_actions();
    let mut last = Ok(());
    for _ in 2..ENOUGH {
        last = at_rest(env).await;
        if last.is_ok() {
            break;
        }
        pass(env, &running).await?;
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
    Ok(counts)
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
    let counts = run(&env, Disturbance::Nothing).await.unwrap();
    assert!(counts.writes >= 4, "candidates, intent, removal, result: {counts:?}");
    let mut cases = Vec::new();
    for when in [When::BeforeForward, When::AfterServerActed, When::AfterAnswered] {
        cases.extend((1..=counts.writes).map(|n| Disturbance::Kill { n, when }));
    }
    let deaths = cases.len();
    let slice = Slice::chosen(SLICES).unwrap();
    let mut possible = 0;
    for (side, calls) in [(Side::Kubernetes, counts.kubernetes), (Side::Neutron, counts.neutron)] {
        for call in 0..calls {
            for harm in HARMS {
                if slice.has(possible) {
                    cases.push(Disturbance::Fault { side, call, harm });
                }
                possible += 1;
            }
        }
    }
    println!("{counts:?}: {deaths} deaths, {} of {possible} faults: {slice}", cases.len() - deaths);
    let mut violations = Vec::new();
    for (number, disturbance) in (1..).zip(&cases) {
        println!("{number} of {}: {disturbance}", cases.len());
        if let Err(error) = run(&env, *disturbance).await {
            println!("violation: {error:#}");
            violations.push(format!("{disturbance}: {error:#}"));
            env.api_proxy.clear();
            env.neutron.clear();
            env.writes.forget_actions();
        }
    }
    println!("{} runs, {} violations", cases.len() + 1, violations.len());
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}
