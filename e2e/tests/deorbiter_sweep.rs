//! A run that is stopped at any of its writes, or has a fault at any of its calls, ends like the undisturbed one. At no time is there
//! a forbidden state: a deleted object without its ID on record, a deleted claim of another driver, a block that outlives its Deorbit.
//!
//! `make test` takes a slice of the writes, after which it stops, and of the faults; `make test-full` stops before and after every write,
//! and takes all faults, `SWEEP=k/n` a part.

mod cloud_faults;

use anyhow::{Result, ensure};
use common::api::deorbit::Phase;
use e2e::deorbiter::{Changes, Driver, TestEnv, keep_running, kubeconfig, sweep_on_stages, upstream};
use e2e::fault_proxy::FaultProxy;
use e2e::program::Launch;
use e2e::sweep::{Case, Harm, Kind, Slice, Victim};
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
        let proxy = FaultProxy::start(upstream(&env.control_plane)?).await?;
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

    /// Checks for forbidden states until the run is over, then the end, and deletes the Deorbit.
    async fn check(&self, name: &str) -> Result<()> {
        let end = tokio::time::Instant::now() + e2e::wait::TIMEOUT;
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
                let records = self.env.records(name).await?;
                ensure!(
                    records.iter().any(|one| one["id"] == VOLUME),
                    "deleted without its ID on record: {status:#?}"
                );
            }
            if status.phase.is_final() {
                ensure!(status.phase == Phase::Succeeded && status.debris_count == 0, "{status:#?}");
                // The list above is older than the status.
                let data = claims.get_opt(&format!("{name}-data")).await?;
                ensure!(data.is_none(), "the claim is still there");
                break;
            }
            ensure!(tokio::time::Instant::now() < end, "it does not end: {status:#?}");
            changes.next().await;
        }
        ensure!(self.env.is_blocked().await?, "the block stays as long as the Deorbit exists");
        self.env.delete(name).await?;
        claims.delete(&format!("{name}-nfs"), &DeleteParams::default()).await?;
        Ok(())
    }

    /// One run. Returns the numbers of its requests.
    async fn run(&self, name: &str, case: Case<Calls>) -> Result<Counts> {
        self.play(name).await?;
        let (stops, requests) = (self.proxy.counter().count(), self.proxy.requests().len());
        let victim = Victim::default();
        let armed =
            case.arm(self.proxy.counter(), &victim, |(Server::Kubernetes, kind)| kind.at(&self.proxy))?;
        victim.start(&self.launch)?;
        tokio::select! {
            checked = self.check(name) => checked?,
            ended = keep_running(&victim, &self.launch, &case) => ended?,
        }
        victim.kill()?;
        armed.happened()?;
        let calls = Kind::count(Server::Kubernetes, &self.proxy.requests().split_off(requests));
        Ok(Counts { stops: self.proxy.counter().count() - stops, calls })
    }

    /// How many there are in every undisturbed run: a fast run has fewer polls and status writes than a slow one.
    async fn undisturbed(&self) -> Result<Counts> {
        let one = self.run("undisturbed-1", Case::Undisturbed).await?;
        let other = self.run("undisturbed-2", Case::Undisturbed).await?;
        let calls = [0, 1].map(|kind| one.calls[kind].min(other.calls[kind]));
        Ok(Counts { stops: one.stops.min(other.stops), calls })
    }

    /// Removes the stop and the faults of a run that failed.
    fn recover(&self) {
        self.proxy.clear();
        self.proxy.counter().forget_actions();
    }
}

/// The only server of this scenario: management cluster and target at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    Kubernetes,
}

/// The reads, or the writes, of the server.
type Calls = (Server, Kind);

#[derive(Debug)]
struct Counts {
    /// Writes at which deorbiter is stopped: without Leases and Events.
    stops: u64,
    calls: [(Calls, u64); 2],
}

async fn sweep(stage: Stage, cases: Vec<Case<Calls>>) {
    let run = async |stage: &Stage, name: &str, case| stage.run(name, case).await.map(drop);
    sweep_on_stages(stage, Stage::set, cases, run, Stage::recover).await.unwrap();
}

/// `make test` takes one stop, and one fault, in so many.
const SLICES_OF_STOPS: u64 = 8;
const SLICES_OF_FAULTS: u64 = 194;

const OF_READS: [Harm; 3] = [Harm::Refused, Harm::Rejected(500), Harm::TooMany];
const OF_WRITES: [Harm; 5] =
    [Harm::Refused, Harm::Swallowed, Harm::Rejected(500), Harm::TooMany, Harm::Rejected(409)];

/// In one test, so that the undisturbed runs and the stages are shared.
#[tokio::test(flavor = "multi_thread")]
async fn stopped_at_each_write_or_with_a_fault_at_any_call_a_run_ends_like_the_undisturbed_one() {
    let stage = Stage::set().await.unwrap();
    let counts = stage.undisturbed().await.unwrap();
    let stops = counts.stops;
    assert!(stops >= 10, "{stops} writes are too few for this scenario");
    let slice = Slice::chosen("stops of deorbiter", SLICES_OF_STOPS).unwrap();
    let mut cases = slice.pick(Case::stops(stops, slice.stops()));
    let slice = Slice::chosen("deorbiter", SLICES_OF_FAULTS).unwrap();
    cases.extend(slice.pick(Case::faults_by_kind(&counts.calls, &OF_READS, &OF_WRITES)));
    println!("{counts:?}: {} stops and faults, {slice}", cases.len());
    sweep(stage, cases).await;
}
