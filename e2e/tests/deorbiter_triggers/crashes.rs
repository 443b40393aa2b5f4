//! deorbiter is stopped at each of its writes, before and after the API server knew of it, and started again: the Kluster is
//! deorbited once, and goes, whenever that was.

use std::sync::{Arc, Mutex};

use common::api::deorbit::Phase;
use e2e::fault_proxy::{Then, When};
use futures::future::join_all;
use nix::sys::signal::Signal;
use serde_json::json;

use super::binding::binding;
use super::env::{TIMEOUT, TestEnv, wait};

/// From a Kluster that runs to one that only others hold. How many writes it took.
async fn story(env: &TestEnv, name: &str, stop_at: Option<(u64, When)>) -> u64 {
    env.kubeconfig_secret(&format!("{name}-kubeconfig")).await;
    env.kluster(name, "Running").await;
    let launch = env.deorbiter().arg("--leader-elect=false");
    let deorbiter = Arc::new(launch.start().unwrap());
    let before = env.api_proxy.counter().count();
    let fired = stop_at.map(|(n, when)| {
        let victim = Arc::clone(&deorbiter);
        let kill = move || async move {
            // It may have been stopped at another write already.
            let _ = victim.signal(Signal::SIGKILL);
            Then::Cut
        };
        env.api_proxy.on_write(n, when, kill).unwrap()
    });
    let course = async {
        let bound = || async { env.finalizers(name).await.unwrap().contains(&"deorbiter".to_owned()) };
        wait("the finalizer", bound).await;
        env.delete_kluster(name).await;
        env.patch_kluster(name, json!({ "status": { "phase": "Terminating" } })).await;
        wait("it is let go", || async { !bound().await }).await;
    };
    let successor = async {
        let Some(fired) = fired else { return std::future::pending().await };
        // The story may be over before that write.
        if fired.wait(TIMEOUT).await.is_err() {
            return std::future::pending().await;
        }
        let _next = launch.start().unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = course => {}
        () = successor => {}
    }
    assert_eq!(env.finalizers(name).await.unwrap(), ["groundctl"]);
    let runs: Vec<_> = env
        .deorbits()
        .await
        .into_iter()
        .filter(|one| one.metadata.name.as_ref().unwrap().starts_with(name))
        .collect();
    assert_eq!(runs.len(), 1, "one Deorbit, whatever happened");
    assert_eq!(runs[0].status.as_ref().unwrap().phase, Phase::Complete, "not let go before");
    env.api_proxy.counter().forget_actions();
    let _ = deorbiter.signal(Signal::SIGKILL);
    env.api_proxy.counter().count() - before
}

/// So many clusters at a time, each with a deorbiter of its own: a story waits for the next reconcile most of the time.
const STAGES: usize = 3;

async fn stage() -> TestEnv {
    let env = TestEnv::start().await;
    env.bind("klusters", binding()).await;
    env
}

#[tokio::test]
async fn stopped_at_any_write_the_end_is_the_same() {
    let stages = join_all((0..STAGES).map(|_| stage())).await;
    let writes = story(&stages[0], "undisturbed", None).await;
    assert!(writes >= 5, "{writes}: finalizers on, a Deorbit, its status, finalizers off");
    let cases =
        (1..=writes).flat_map(|n| [(n, "before", When::BeforeForward), (n, "after", When::AfterServerActed)]);
    let cases = Mutex::new(cases);
    let play = async |env: &TestEnv| {
        loop {
            let Some((n, word, when)) = cases.lock().unwrap().next() else { return };
            story(env, &format!("k{n}{word}"), Some((n, when))).await;
        }
    };
    join_all(stages.iter().map(play)).await;
    println!("stopped at each of {writes} writes, before and after: one end");
}
