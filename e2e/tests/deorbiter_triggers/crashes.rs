//! deorbiter is stopped at each of its writes, after the API server acts and in `make test-full` before it too, and restarted: the Kluster
//! is deorbited once, and is released.

use anyhow::{Result, ensure};
use common::api::deorbit::Phase;
use e2e::deorbiter::{keep_running, sweep_on_stages};
use e2e::sweep::{Case, Slice, Victim};
use serde_json::json;

use super::binding::binding;
use super::env::{TestEnv, wait};

/// From a running Kluster to one without our finalizer. Returns how many writes it took.
async fn run(env: &TestEnv, name: &str, case: Case<()>) -> Result<u64> {
    env.kubeconfig_secret(&format!("{name}-kubeconfig")).await;
    env.kluster(name, "Running").await;
    let launch = env.deorbiter().arg("--leader-elect=false");
    let before = env.api_proxy.counter().count();
    let victim = Victim::default();
    let armed = case.arm(env.api_proxy.counter(), &victim, |()| env.api_proxy.clone())?;
    victim.start(&launch)?;
    let course = async {
        let bound = || async { env.finalizers(name).await.unwrap().contains(&"deorbiter".to_owned()) };
        // The binding's status is awaited after each step. It would be written less often where steps follow at once, and after
        // the end or not at all.
        let counts = |bound: i32, deorbiting: i32| {
            wait("the binding's status", move || async move {
                let status = env.binding("klusters").await.unwrap()["status"].clone();
                status["bound"] == bound && status["deorbiting"] == deorbiting
            })
        };
        wait("the finalizer", bound).await;
        counts(1, 0).await;
        env.delete_kluster(name).await;
        counts(1, 1).await;
        env.patch_kluster(name, json!({ "status": { "phase": "Terminating" } })).await;
        wait("its release", || async { !bound().await }).await;
        counts(0, 0).await;
    };
    tokio::select! {
        () = course => {}
        ended = keep_running(&victim, &launch, &case) => ended?,
    }
    victim.kill()?;
    ensure!(env.finalizers(name).await.unwrap() == ["groundctl"]);
    let mut runs = env.deorbits().await;
    runs.retain(|one| one.metadata.name.as_ref().is_some_and(|run| run.starts_with(&format!("{name}-"))));
    let phases: Vec<Phase> = runs.into_iter().map(|one| one.status.unwrap_or_default().phase).collect();
    ensure!(phases == [Phase::Succeeded], "one Deorbit, complete before the release: {phases:?}");
    armed.happened()?;
    Ok(env.api_proxy.counter().count() - before)
}

async fn stage() -> Result<TestEnv> {
    let env = TestEnv::start().await;
    env.bind("klusters", binding()).await;
    Ok(env)
}

/// More than one: `make test` stops in one way at each write.
const SLICES: u64 = 2;

#[tokio::test]
async fn stopped_at_any_write_the_end_is_the_same() {
    let first = stage().await.unwrap();
    let mut writes = u64::MAX;
    for name in ["undisturbed", "undisturbed-2"] {
        writes = writes.min(run(&first, name, Case::Undisturbed).await.unwrap());
    }
    assert!(writes >= 5, "{writes}: finalizers added, a Deorbit, its status, finalizers removed");
    let slice = Slice::chosen("deorbiter, triggers", SLICES).unwrap();
    let cases = Case::stops(writes, slice.stops());
    let run = async |env: &TestEnv, name: &str, case| run(env, name, case).await.map(drop);
    let recover = |env: &TestEnv| env.api_proxy.counter().forget_actions();
    sweep_on_stages(first, stage, cases, run, recover).await.unwrap();
}
