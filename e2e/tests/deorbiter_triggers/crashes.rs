//! deorbiter is stopped at each of its writes, after the API server acts and in `make test-full` before it too, and restarted: the Kluster,
//! or the Cluster with its Machine, is deorbited once, and is released.

use anyhow::{Result, ensure};
use common::api::deorbit::Phase;
use e2e::deorbiter::{keep_running, sweep_on_stages};
use e2e::sweep::{Case, Slice, Victim};
use serde_json::json;

use super::env::{TestEnv, wait};
use super::{binding, machines};

/// Runs deorbiter, stopped as the case says, until the course has ended. Returns how many writes it took.
async fn disturbed(
    env: &TestEnv,
    name: &str,
    case: Case<()>,
    course: impl Future<Output = ()>,
) -> Result<u64> {
    let launch = env.deorbiter().arg("--leader-elect=false");
    let before = env.api_proxy.counter().count();
    let victim = Victim::default();
    let armed = case.arm(env.api_proxy.counter(), &victim, |()| env.api_proxy.clone())?;
    victim.start(&launch)?;
    tokio::select! {
        () = course => {}
        ended = keep_running(&victim, &launch, &case) => ended?,
    }
    victim.kill()?;
    let phases = phases(env, name).await;
    ensure!(phases == [Phase::Succeeded], "one Deorbit, complete before the release: {phases:?}");
    armed.happened()?;
    Ok(env.api_proxy.counter().count() - before)
}

async fn phases(env: &TestEnv, name: &str) -> Vec<Phase> {
    let mut runs = env.deorbits().await;
    runs.retain(|one| one.metadata.name.as_ref().is_some_and(|run| run.starts_with(&format!("{name}-"))));
    runs.into_iter().map(|one| one.status.unwrap_or_default().phase).collect()
}

/// The status of the binding is awaited after each step. It would be written less often where steps follow at once, and after the end or
/// not at all.
async fn counts(env: &TestEnv, binding: &str, bound: i32, deorbiting: i32) {
    wait("the binding's status", move || async move {
        let status = env.binding(binding).await.unwrap()["status"].clone();
        status["bound"] == bound && status["deorbiting"] == deorbiting
    })
    .await;
}

/// From a running Kluster to one without our finalizer.
async fn kluster(env: &TestEnv, name: &str, case: Case<()>) -> Result<u64> {
    env.kubeconfig_secret(&format!("{name}-kubeconfig")).await;
    env.kluster(name, "Running").await;
    let course = async {
        let bound = || async { env.finalizers(name).await.unwrap().contains(&"deorbiter".to_owned()) };
        wait("the finalizer", bound).await;
        counts(env, "klusters", 1, 0).await;
        env.delete_kluster(name).await;
        counts(env, "klusters", 1, 1).await;
        env.patch_kluster(name, json!({ "status": { "phase": "Terminating" } })).await;
        wait("its release", || async { !bound().await }).await;
        counts(env, "klusters", 0, 0).await;
    };
    let writes = disturbed(env, name, case, course).await?;
    ensure!(env.finalizers(name).await.unwrap() == ["groundctl"]);
    Ok(writes)
}

/// From a Cluster with a Machine to one without our finalizer and hook.
async fn cluster(env: &TestEnv, name: &str, case: Case<()>) -> Result<u64> {
    env.kubeconfig_secret(&format!("{name}-kubeconfig")).await;
    let machine = format!("{name}-w1");
    machines::cluster(env, name).await;
    machines::machine(env, &machine, name).await;
    let course = async {
        wait("the hook", || machines::has_hook(env, &machine)).await;
        counts(env, "clusters", 1, 0).await;
        machines::delete(env, "Cluster", name).await;
        machines::delete(env, "Machine", &machine).await;
        wait("the Machine may go", || async { !machines::has_hook(env, &machine).await }).await;
        assert_eq!(phases(env, name).await, [Phase::Succeeded], "the hook was removed before");
        counts(env, "clusters", 0, 0).await;
    };
    let writes = disturbed(env, name, case, course).await?;
    ensure!(machines::finalizers(env, name).await == [machines::OTHERS]);
    Ok(writes)
}

/// `make test` stops at one of this many writes.
const SLICES: u64 = 6;

async fn sweep(
    test: &str,
    stage: impl AsyncFn() -> Result<TestEnv>,
    run: impl AsyncFn(&TestEnv, &str, Case<()>) -> Result<u64>,
) {
    let first = stage().await.unwrap();
    let mut writes = u64::MAX;
    for name in ["undisturbed", "undisturbed-2"] {
        writes = writes.min(run(&first, name, Case::Undisturbed).await.unwrap());
    }
    assert!(writes >= 5, "{writes}: finalizers added, a Deorbit, its status, finalizers removed");
    let slice = Slice::chosen(test, SLICES).unwrap();
    let cases = slice.pick(Case::stops(writes, slice.stops()));
    let run = async |env: &TestEnv, name: &str, case| run(env, name, case).await.map(drop);
    let recover = |env: &TestEnv| env.api_proxy.counter().forget_actions();
    sweep_on_stages(first, stage, cases, run, recover).await.unwrap();
}

#[tokio::test]
async fn stopped_at_any_write_the_end_is_the_same() {
    let stage = async || {
        let env = TestEnv::start().await;
        env.bind("klusters", binding::binding()).await;
        Ok(env)
    };
    sweep("deorbiter, triggers", stage, kluster).await;
}

#[tokio::test]
async fn stopped_at_any_write_the_machines_of_a_cluster_wait() {
    let stage = async || {
        let env = TestEnv::start().await;
        env.bind("clusters", machines::binding()).await;
        Ok(env)
    };
    sweep("deorbiter, machines", stage, cluster).await;
}
