//! The law of the fault tests, for deorbiter: a run that is killed at any of its writes, or meets a fault at any of its calls,
//! ends as it does undisturbed, and at no time is there a forbidden state: an object deleted whose ID is not on record, a claim
//! of another driver deleted, a freeze left behind.
//!
//! `make test` kills at every write and takes a slice of the faults; `make test-full` takes all, `SWEEP=k/n` a part.

mod cloud_faults;

use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use common::api::deorbit::Phase;
use e2e::control_plane::ControlPlane;
use e2e::deorbiter::{Changes, Driver, TIMEOUT, TestEnv, kubeconfig};
use e2e::fault_proxy::{Answer, Fault, FaultProxy, Matcher, Then, Upstream, When, kill_process};
use e2e::program::{Launch, Program};
use e2e::sweep::Slice;
use futures::future::join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

const VOLUME: &str = "0d5c9f3e-0000-4000-8000-0000000000aa";

struct Stage {
    env: TestEnv,
    proxy: FaultProxy,
    launch: Launch,
    _driver: Driver,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn set() -> Result<Stage> {
        let env = TestEnv::start().await?;
        let (certificate, key) = env.control_plane.admin_identity_pem()?;
        let upstream = Upstream::kubernetes(env.control_plane.url())
            .ca_pem(env.control_plane.ca_pem()?)
            .client_certificate(certificate, key);
        let proxy = FaultProxy::start(upstream).await?;
        let text = kubeconfig(&proxy.url(), None, &[])?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, &text)?;
        let launch = env.launch()?.env("KUBECONFIG", &file);
        let driver = Driver::pretended(env.client.clone());
        Ok(Stage { env, proxy, launch, _driver: driver, _folder: folder })
    }

    /// The scenario: a claim, a Service, a claim of another driver.
    async fn play(&self, name: &str) -> Result<()> {
        let (claim, foreign, service) =
            (format!("{name}-data"), format!("{name}-nfs"), format!("{name}-web"));
        self.env.claim(&claim, VOLUME, "Delete").await?;
        self.env.claim_of(&foreign, "nfs.csi.k8s.io", "share", "Delete").await?;
        self.env.service(&service, "0d5c9f3e-0000-4000-8000-0000000000bb").await?;
        let spec = json!({"kubeconfig": null, "inCluster": true,
            "timeouts": {"loadBalancerGrace": "1s", "apiUnavailable": "2m"}});
        self.env.deorbit(name, spec).await.map(drop)
    }

    /// Forbidden states, looked for until the run is over; then the end.
    async fn watch(&self, name: &str) -> Result<()> {
        let end = tokio::time::Instant::now() + TIMEOUT;
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.env.client.clone(), &self.env.namespace);
        let mut changes = Changes::of(claims.clone()).and(Changes::of(self.env.deorbits()));
        loop {
            let all = claims.list(&ListParams::default()).await?.items;
            let find =
                |suffix: &str| all.iter().find(|one| one.metadata.name == Some(format!("{name}-{suffix}")));
            let foreign = find("nfs").is_some_and(|one| one.metadata.deletion_timestamp.is_none());
            ensure!(foreign, "the claim of another driver was deleted");
            let status = self.env.status(name).await?;
            if find("data").is_none_or(|one| one.metadata.deletion_timestamp.is_some()) {
                let recorded = status.inventory.records.iter().any(|one| one.id.as_deref() == Some(VOLUME));
                ensure!(recorded, "deleted without its ID on record: {status:#?}");
            }
            if status.phase.is_final() {
                ensure!(status.phase == Phase::Complete, "{status:#?}");
                ensure!(find("data").is_none(), "the claim is still there");
                break;
            }
            ensure!(tokio::time::Instant::now() < end, "it does not end: {status:#?}");
            changes.next().await;
        }
        self.env.wait("the freeze to be lifted", async || Ok(!self.env.is_frozen().await?)).await?;
        self.env.thawed().await?;
        // The Deorbit goes at once: its finalizer holds nothing up.
        self.env.deorbits().delete(name, &DeleteParams::default()).await?;
        self.env.wait("its end", async || Ok(self.env.deorbits().get_opt(name).await?.is_none())).await?;
        claims.delete(&format!("{name}-nfs"), &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Cases that are worth another stage, which takes some seconds to be set.
const WORTH_A_STAGE: usize = 3;

/// Plays the cases on this stage and on more of them that are `set`, as many as may be and are worth it: a run waits for its
/// next reconcile most of the time. How many of them `play` is true of.
async fn on_stages<S, C>(
    first: S,
    set: impl AsyncFn() -> Result<S>,
    cases: Vec<C>,
    play: impl AsyncFn(&S, C) -> bool,
) -> usize {
    let stages = cases.len().div_ceil(WORTH_A_STAGE).min(ControlPlane::most_reserved().unwrap());
    let cases = Mutex::new(cases.into_iter());
    // Eight API servers that start at once keep one another waiting for minutes.
    let setting = tokio::sync::Mutex::new(());
    let one = async |stage: Option<S>| {
        let stage = match stage {
            Some(stage) => stage,
            None => {
                let _alone = setting.lock().await;
                set().await.unwrap()
            }
        };
        let mut hits = 0;
        loop {
            let Some(case) = cases.lock().unwrap().next() else { return hits };
            hits += usize::from(play(&stage, case).await);
        }
    };
    let more = (1..stages).map(|_| None);
    join_all(std::iter::once(Some(first)).chain(more).map(one)).await.into_iter().sum()
}

/// Undisturbed: how many writes there are.
async fn undisturbed(stage: &Stage) -> u64 {
    let before = stage.proxy.counter().count();
    stage.play("calm").await.unwrap();
    let deorbiter = stage.launch.start().unwrap();
    stage.watch("calm").await.unwrap();
    drop(deorbiter);
    stage.proxy.counter().count() - before
}

/// Killed at its `n`th write, of which the last one lets the Deorbit go, and started again. Whether there was such a write.
async fn dies(stage: &Stage, n: u64, when: When) -> bool {
    let name = format!("dies-{n}-{}", if when == When::BeforeForward { "before" } else { "after" });
    stage.play(&name).await.unwrap();
    let cast: Arc<Mutex<Option<Program>>> = Arc::default();
    let victim = Arc::clone(&cast);
    let fired = stage
        .proxy
        .on_write(n, when, move || async move {
            let pid = victim.lock().unwrap().as_ref().map(Program::pid);
            if let Some(pid) = pid {
                // Our own child, which is not collected before it leaves the cast.
                kill_process(pid).await.unwrap();
            }
            Then::Cut
        })
        .unwrap();
    *cast.lock().unwrap() = Some(stage.launch.start().unwrap());
    let (launch, again) = (stage.launch.clone(), Arc::clone(&cast));
    let reviver = tokio::spawn(async move {
        let write = fired.wait(TIMEOUT).await?;
        let next = launch.start()?;
        *again.lock().unwrap() = Some(next);
        anyhow::Ok(write)
    });
    let seen = stage.watch(&name).await;
    assert!(seen.is_ok(), "killed at write {n} ({when:?}): {:#}", seen.unwrap_err());
    // A run may come to its end with fewer writes than the undisturbed one.
    stage.proxy.counter().forget_actions();
    let died = reviver.await.unwrap().is_ok();
    cast.lock().unwrap().take();
    died
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_write_a_run_ends_as_it_does_undisturbed() {
    let stage = Stage::set().await.unwrap();
    let writes = undisturbed(&stage).await;
    assert!(writes >= 10, "{writes} writes are too few for this scenario");
    let cases = (1..=writes).flat_map(|n| [(n, When::BeforeForward), (n, When::AfterServerActed)]).collect();
    let deaths =
        on_stages(stage, Stage::set, cases, async |stage, (n, when)| dies(stage, n, when).await).await;
    println!("{deaths} deaths at {writes} writes, 0 violations");
    assert!(deaths >= 20);
}

/// `make test` takes every so manyth fault.
const SLICES: u64 = 97;

/// One thing that can happen to a call.
type Named = (&'static str, fn() -> Fault);

/// What can happen to a call.
fn faults() -> Vec<Named> {
    vec![
        ("refused", || Fault::Refuse),
        ("swallowed", || Fault::Swallow),
        ("answered with 500", || Fault::Reject(Answer::internal())),
        ("answered with 429", || Fault::Reject(Answer::too_many_requests(1))),
        ("answered with 409", || Fault::Reject(Answer::conflict())),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_at_any_call_changes_nothing_of_the_end() {
    let stage = Stage::set().await.unwrap();
    stage.proxy.clear_requests();
    undisturbed(&stage).await;
    let calls = u64::try_from(stage.proxy.requests().len()).unwrap();
    let slice = Slice::chosen("deorbiter", SLICES).unwrap();
    println!("{slice}");
    let all = faults()
        .into_iter()
        .enumerate()
        .flat_map(|(place, (what, fault))| (0..calls).map(move |n| (place, what, fault, n)));
    let mine: Vec<_> =
        (0..).zip(all).filter(|(number, _)| slice.has(*number)).map(|(_, case)| case).collect();
    let tried = on_stages(stage, Stage::set, mine, async |stage, (place, what, fault, n)| {
        let name = format!("fault-{place}-{n}");
        stage.play(&name).await.unwrap();
        let rule = stage.proxy.rule(Matcher::any().after(n).times(1), fault());
        let deorbiter = stage.launch.start().unwrap();
        let seen = stage.watch(&name).await;
        assert!(seen.is_ok(), "call {n} {what}: {:#}", seen.unwrap_err());
        drop(deorbiter);
        stage.proxy.remove(rule);
        println!("call {n} of {calls} {what}: as undisturbed");
        true
    })
    .await;
    println!("{tried} faults at {calls} calls, 0 violations");
    assert!(tried > 0, "no faults are no sweep");
}
