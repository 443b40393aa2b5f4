//! Runs: each scenario undisturbed, then with each death and each fault.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use e2e::fault_proxy::When;
use e2e::sweep::Slice;
use futures::{StreamExt as _, stream};

use crate::natgw_sweep::disturbance::{Disturbance, Injection, Target, targets};
use crate::natgw_sweep::observed::End;
use crate::natgw_sweep::scenario::Scenario;
use crate::natgw_sweep::summary::Summary;
use crate::natgw_sweep::sweep_env::SweepEnv;

/// Worlds at a time: they mostly wait, for Jobs, for the cloud's actions and for leases. More only wait for the processors.
const AT_ONCE: usize = 20;
/// `make test` takes every so manyth fault.
const SLICES: u64 = 12;

/// What a run came to.
struct Outcome {
    end: End,
    writes: u64,
    targets: Vec<Target>,
    hits: u64,
    looks: u64,
}

/// Plays a scenario; `expected` is the end to come to, where it is known.
async fn run(scenario: Scenario, disturbance: &Disturbance, expected: Option<&End>) -> Result<Outcome> {
    let sweep_env = match scenario.set().await {
        Ok(sweep_env) => sweep_env,
        // Nothing has been played yet: a machine that was too busy for a kubelet's call is no fault of natgw's.
        Err(error) => {
            println!("sweep, {}: setting the scene again: {error:#}", scenario.name());
            scenario.set().await.context("setting the scene")?
        }
    };
    let played = play(scenario, &sweep_env, disturbance, expected).await;
    let words = if played.is_err() { sweep_env.log_tail() } else { String::new() };
    sweep_env.close().await?;
    played.with_context(|| format!("natgw's last words:\n{words}\n{}: {disturbance}", scenario.name()))
}

async fn play(
    scenario: Scenario,
    sweep_env: &SweepEnv,
    disturbance: &Disturbance,
    expected: Option<&End>,
) -> Result<Outcome> {
    if !scenario.starts_disturbed() {
        sweep_env.enter()?;
        sweep_env.first_reconcile().await?;
        if scenario.elects() {
            sweep_env.enter()?;
        }
        // One that is refused is none: the first list of a busy API server may be older than what natgw's start came after.
        let done =
            |call: &e2e::fault_proxy::Recorded| call.upstream_status.is_some_and(|status| status < 300);
        ensure!(!sweep_env.env.writes_in_order().iter().any(done), "it wrote where nothing was to be done");
    }
    let from = (sweep_env.env.api_proxy.requests().len(), sweep_env.env.cloud_proxy.requests().len());
    let injection = Injection::set(sweep_env, disturbance, scenario.elects())?;
    if scenario.starts_disturbed() {
        sweep_env.enter()?;
    }
    scenario.happen(sweep_env).await?;
    let over = |observed: &_| match expected {
        Some(expected) => sweep_env.end(observed) == *expected,
        None => scenario.is_over(sweep_env, observed),
    };
    let what = format!("the end {expected:#?}");
    sweep_env.wait_until(&what, over).await?;
    sweep_env.rest().await?;
    let observed = sweep_env.invariants.at_rest().await.context("the last look")?;
    let end = sweep_env.end(&observed);
    ensure!(expected.is_none_or(|expected| *expected == end), "another end: {end:#?}, not {expected:#?}");
    let violations = sweep_env.invariants.violations();
    ensure!(violations.is_empty(), "forbidden: {violations:#?}");
    Ok(Outcome {
        end,
        writes: sweep_env.env.writes.count(),
        targets: targets(sweep_env, from, &injection),
        hits: injection.hits(sweep_env),
        looks: sweep_env.invariants.looks(),
    })
}

/// The scenarios that `SWEEP_ONLY` names a part of the names of; all of them if it is not set.
fn scenarios() -> Vec<Scenario> {
    let only = std::env::var("SWEEP_ONLY").unwrap_or_default();
    let all = Scenario::ALL.into_iter().filter(|scenario| scenario.name().contains(&only));
    let chosen: Vec<Scenario> = all.collect();
    assert!(!chosen.is_empty(), "SWEEP_ONLY={only} is part of no scenario's name");
    chosen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_death_and_each_fault_leads_to_the_same_end_with_nothing_forbidden_on_the_way() {
    let began = Instant::now();
    let slice = Slice::chosen("natgw", SLICES).unwrap();
    let mut summary = Summary::default();
    let undisturbed: Vec<(Scenario, Result<Outcome>)> = stream::iter(scenarios())
        .map(async |scenario| (scenario, run(scenario, &Disturbance::Nothing, None).await))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut cases = Vec::new();
    let mut ends = std::collections::BTreeMap::new();
    let mut number = 0;
    for (scenario, outcome) in undisturbed {
        let outcome = outcome.unwrap();
        let count = summary.of(scenario);
        (count.runs, count.writes, count.looks) = (1, outcome.writes, outcome.looks);
        count.calls = u64::try_from(outcome.targets.len()).unwrap();
        ensure_writes(scenario, outcome.writes);
        for when in [When::BeforeForward, When::AfterServerActed] {
            cases.extend((1..=outcome.writes).map(|n| (scenario, Disturbance::Kill { n, when })));
        }
        for target in outcome.targets {
            for harm in target.harms(scenario.starts_disturbed()) {
                count.possible += 1;
                if slice.has(number) {
                    cases.push((scenario, Disturbance::Fault(target.clone(), harm)));
                }
                number += 1;
            }
        }
        ends.insert(scenario, outcome.end);
    }
    println!("sweep: {} runs to come, {:.1?} so far", cases.len(), began.elapsed());
    let ends = &ends;
    let mut runs = stream::iter(cases)
        .map(async |(scenario, disturbance)| {
            let outcome = run(scenario, &disturbance, Some(&ends[&scenario])).await;
            (scenario, disturbance, outcome)
        })
        .buffer_unordered(AT_ONCE);
    let mut failures = Vec::new();
    let mut done = 0;
    while let Some((scenario, disturbance, outcome)) = runs.next().await {
        done += 1;
        if done % 200 == 0 {
            println!("sweep: {done} runs done, {:.0?}", began.elapsed());
        }
        let count = summary.of(scenario);
        count.runs += 1;
        match outcome {
            Ok(outcome) => {
                count.looks += outcome.looks;
                match &disturbance {
                    Disturbance::Kill { .. } => count.kills += outcome.hits,
                    _ if outcome.hits > 0 => count.faults += 1,
                    _ => {
                        println!("sweep, {}: never met: {disturbance}", scenario.name());
                        count.unmet += 1;
                    }
                }
            }
            Err(error) => {
                count.violations += 1;
                println!("sweep, {}: VIOLATION, {disturbance}: {error:?}", scenario.name());
                failures.push(format!("{}: {disturbance}", scenario.name()));
            }
        }
    }
    let total = summary.print(&slice.to_string(), began.elapsed());
    assert!(failures.is_empty(), "{} violations: {failures:#?}", total.violations);
    assert!(total.kills >= total.writes, "somebody was not killed");
}

/// What natgw cannot do the work of a scenario without; fewer writes were another scenario.
fn ensure_writes(scenario: Scenario, writes: u64) {
    let least = match scenario {
        // marker, Job, record, route, role
        Scenario::FirstGateway => 5,
        // old route away, new route, role on, role off
        Scenario::Cordon | Scenario::NotReady | Scenario::TwoLeaders => 4,
        // the same, and twice marker, Job, record, with the first Job away between them
        Scenario::IpChanged | Scenario::LabelFlap => 10,
        // the same, and marker, Job, record
        Scenario::LabelLost | Scenario::Reboot => 7,
        // the first gateway's, and failure, Job away, marker, Job
        Scenario::JobFailed => 9,
        // new route, role on, role off
        Scenario::StaleCache => 3,
        // old route away, new route, role on
        Scenario::ForeignRoute => 3,
    };
    assert!(writes >= least, "{}: {writes} writes", scenario.name());
}
