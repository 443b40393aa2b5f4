//! natgw under stops and faults: each scenario, stopped at each write and with each fault at each call, reaches the end state of the
//! undisturbed run, and the invariant checker sees no forbidden state (listed in `invariants`) in between.
//!
//! ```text
//!   scenario     how each scenario starts, what happens, when it is over
//!   calls        natgw's calls, and the faults that can occur at each
//!   env          the environment, and the natgw processes in it
//!   observed     what the API server and the cloud report at one time
//!   invariants   checks the environment after each write
//!   proofs       each forbidden state, made by hand, is reported by the checker
//!   outages      faults that last, or that need a control plane of their own
//! ```
//!
//! By default, a slice of the stops after each write and a slice of the faults are run. `SWEEP=all` stops natgw before and after each
//! write, and runs all faults. `SWEEP_ONLY=cordon` runs the scenarios whose name contains the text.

mod calls;
mod env;
mod invariants;
mod observed;
mod outages;
mod proofs;
mod scenario;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, ensure};
use e2e::hetzner::ActionFailure;
use e2e::natgw::TestEnv;
use e2e::slots::NATGW;
use e2e::sweep::{Case, Slice, sweep_at_once};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use calls::Call;
use env::SweepEnv;
use observed::End;
use scenario::Scenario;

/// The default tier runs one of so many slices of the stops, and of the faults: about 15 runs.
const SLICES_OF_STOPS: u64 = 10;
const SLICES_OF_FAULTS: u64 = 320;
/// One failure of each command.
const SLICES_OF_ACTIONS: u64 = 2;

/// One run of a scenario.
#[derive(Clone, Copy)]
struct Run {
    scenario: Scenario,
    case: Case<Call>,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {}", self.scenario, self.case)
    }
}

/// The result of a run.
struct Outcome {
    end: End,
    /// Those that were accepted: a refused one (409, after a kubelet's report) is repeated, and not in each run.
    writes: u64,
    /// The calls, each with the number of its kind.
    calls: Vec<(Call, u64)>,
}

impl Run {
    /// `expected` is the undisturbed run; `None` in the undisturbed run itself.
    async fn play(self, expected: Option<&Outcome>) -> Result<Outcome> {
        let env = self.scenario.prepare(TestEnv::start().await?).await?;
        let outcome = self.play_in(&env, expected).await;
        let log = if outcome.is_err() { env.log_tail() } else { String::new() };
        env.close().await?;
        if outcome.is_err() && !log.is_empty() {
            println!("{self}: the end of natgw's log:\n{log}");
        }
        outcome
    }

    async fn play_in(self, env: &SweepEnv, expected: Option<&Outcome>) -> Result<Outcome> {
        let Run { scenario, case } = self;
        if !scenario.starts_disturbed() {
            env.start()?;
            env.first_reconcile().await?;
            if scenario.elects() {
                env.start()?;
            }
            // A refused write changed nothing: the first list of a busy API server may be older than the last change.
            let writes = env.env.writes_in_order();
            let accepted = writes.iter().find(|call| call.is_accepted());
            ensure!(accepted.is_none(), "natgw wrote where nothing was to be done: {accepted:?}");
        }
        let from = (env.env.api_proxy.requests().len(), env.env.cloud_proxy.requests().len());
        let (before, writes, place) =
            (env.env.writes.count(), &env.env.writes, |call: Call| call.place(&env.env));
        let mut armed = vec![case.arm(writes, &env.victims[0], place)?];
        if let (Case::Stop { write, when }, Some(expected), Some(second)) =
            (case, expected, env.victims.get(1))
            && write < expected.writes
        {
            // The next leader is stopped at its first write.
            armed.push(Case::Stop { write: write + 1, when }.arm(writes, second, place)?);
        }
        if scenario.starts_disturbed() {
            env.start()?;
        }
        scenario.happen(env).await?;
        let over = |observed: &observed::ObservedState| match expected {
            Some(expected) => observed.end(&env.checker.machines()) == expected.end,
            None => scenario.is_over(env, observed),
        };
        env.wait_until(&format!("the end {:#?}", expected.map(|expected| &expected.end)), over).await?;
        env.rest().await?;
        // Polls of the cloud and events of a watch occur by the clock: they may come after the end.
        env.wait_while_running(|| armed.iter().all(e2e::sweep::Armed::has_happened)).await;
        for armed in armed {
            armed.happened()?;
        }
        env.rest().await?;
        let observed = env.checker.at_rest().await.context("the state at rest")?;
        let end = observed.end(&env.checker.machines());
        if let Some(expected) = expected {
            ensure!(end == expected.end, "another end: {end:#?}, not {:#?}", expected.end);
        }
        let violations = env.checker.violations();
        ensure!(violations.is_empty(), "forbidden: {violations:#?}");
        let calls = calls::of(&env.env, from)?;
        let writes = env.env.writes_in_order();
        let accepted = writes.iter().filter(|call| call.write > Some(before) && call.is_accepted());
        Ok(Outcome { end, writes: accepted.count() as u64, calls })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stop_and_each_fault_leads_to_the_same_end_and_no_forbidden_state() {
    let of_stops = Slice::chosen("stops of natgw", SLICES_OF_STOPS).unwrap();
    let slice = Slice::chosen("natgw", SLICES_OF_FAULTS).unwrap();
    let only = std::env::var("SWEEP_ONLY").unwrap_or_default().to_lowercase();
    let scenarios = Scenario::ALL.into_iter().filter(|one| format!("{one:?}").to_lowercase().contains(&only));
    let undisturbed: BTreeMap<Scenario, Outcome> = stream::iter(scenarios)
        .map(|scenario| async move {
            let outcome = Run { scenario, case: Case::Undisturbed }.play(None).await;
            anyhow::Ok((scenario, outcome.with_context(|| format!("{scenario:?}, undisturbed"))?))
        })
        .buffer_unordered(NATGW.count())
        .try_collect()
        .await
        .unwrap();
    let (mut stops, mut faults) = (Vec::new(), Vec::new());
    for (&scenario, Outcome { writes, calls, .. }) in &undisturbed {
        assert!(*writes >= scenario.least_writes(), "{scenario:?} with {writes} writes is another scenario");
        let run = |case| Run { scenario, case };
        stops.extend(Case::stops(*writes, slice.stops()).into_iter().map(run));
        faults.extend(calls::faults(calls, scenario.starts_disturbed()).into_iter().map(run));
    }
    println!("{} stops, {} faults; {slice}", stops.len(), faults.len());
    let mut cases = of_stops.pick(stops);
    cases.extend(slice.pick(faults));
    let run = async |run: Run| run.play(undisturbed.get(&run.scenario)).await.map(drop);
    sweep_at_once(NATGW.count(), &cases, run, || ()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_actions_of_the_cloud_lead_to_the_same_end() {
    let run = Run { scenario: Scenario::Cordon, case: Case::Undisturbed };
    let expected = run.play(None).await.unwrap();
    let failures = ["add_route", "delete_route"]
        .into_iter()
        .flat_map(|command| [ActionFailure::of(command), ActionFailure::of(command).acting()]);
    for failure in Slice::chosen("failed actions", SLICES_OF_ACTIONS).unwrap().pick(failures) {
        let env = run.scenario.prepare(TestEnv::start().await.unwrap()).await.unwrap();
        env.env.hetzner.fail_action(failure.clone());
        run.play_in(&env, Some(&expected)).await.unwrap();
        assert_eq!(env.env.hetzner.failures_left(), 0, "it never happened: {failure:?}");
        env.close().await.unwrap();
    }
}
