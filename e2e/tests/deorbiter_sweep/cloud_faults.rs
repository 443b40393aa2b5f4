//! Faults between deorbiter and OpenStack, at any of its calls: refused, an error before or after the service acted, late, cut. The
//! end must be the undisturbed one, and only what is on record may be deleted: not the load balancer of another cluster, and not a
//! volume with the keep metadata.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use common::api::deorbit::Phase;
use e2e::deorbiter::{Changes, Driver, TestEnv, keep_running, sweep_on_stages};
use e2e::fault_proxy::{FaultProxy, Upstream, WriteCounter};
use e2e::openstack::{OpenStack, Parts, Project, REGION, Release, Service};
use e2e::sweep::{Case, Harm, Kind, Slice, Victim};
use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::Api;
use serde_json::json;

/// `make test` takes one fault in so many.
const SLICES: u64 = 302;
/// Services behind a proxy.
const BEHIND: [Service; 4] =
    [Service::Identity, Service::Network, Service::BlockStorage, Service::LoadBalancer];

const OF_READS: [Harm; 8] = [
    Harm::Refused,
    Harm::Rejected(401),
    Harm::Rejected(403),
    Harm::Rejected(500),
    Harm::TooMany,
    Harm::NoSuchPage,
    Harm::Cut,
    Harm::LateResponse,
];
const OF_WRITES: [Harm; 13] = [
    Harm::Refused,
    Harm::Rejected(401),
    Harm::Rejected(403),
    Harm::Rejected(409),
    Harm::Rejected(500),
    Harm::Rejected(503),
    Harm::TooMany,
    Harm::NoSuchPage,
    Harm::Replaced(500),
    Harm::Swallowed,
    Harm::Cut,
    Harm::LateRequest,
    Harm::LateResponse,
];

/// Each stage has a region of its own, with its proxies.
static REGIONS: AtomicUsize = AtomicUsize::new(0);

/// The reads, or the writes, of a service.
type Calls = (Service, Kind);

struct Stage {
    env: TestEnv,
    _driver: Driver,
    _cloud: OpenStack,
    project: Project,
    proxies: Vec<(Service, FaultProxy)>,
    /// Of another cluster, and kept: they outlive all runs.
    neighbour: String,
    kept: String,
}

impl Stage {
    async fn set() -> Result<Stage> {
        let env = TestEnv::start().await?;
        let cloud = OpenStack::shared(Parts::All, Release::Main).await?;
        let project = cloud.project("faults").await?;
        let mut proxies = Vec::new();
        for service in BEHIND {
            let upstream = Upstream::neutron(cloud.endpoints().address(service)?);
            proxies.push((service, FaultProxy::start(upstream).await?));
        }
        let url = |desired: Service| {
            proxies.iter().find(|(service, _)| *service == desired).map(|(_, proxy)| proxy.url())
        };
        let at =
            |service: Service, path: &str| Ok::<_, anyhow::Error>(url(service).context("a proxy")? + path);
        let services = [
            ("network", at(Service::Network, "")?),
            ("block-storage", at(Service::BlockStorage, "/v3")?),
            ("load-balancer", at(Service::LoadBalancer, "")?),
        ];
        let region = format!("Disturbed-{}", REGIONS.fetch_add(1, Ordering::Relaxed));
        cloud.region(&region, &services).await?;
        let keystone = at(Service::Identity, "/v3")?;
        let text =
            project.clouds_yaml_of(&keystone, &project.credential, &project.secret).replace(REGION, &region);
        env.secret("cloud", "clouds.yaml", &text).await?;
        let name = format!("kube_service_stage_{}_web", env.namespace);
        let about = format!("Kubernetes external service {}/web from cluster stage", env.namespace);
        let neighbour = project.load_balancer(&name, &about).await?;
        let kept = project.volume("pvc-kept", json!({"janitor.capi.azimuth-cloud.com/keep": "true"})).await?;
        env.claim("kept", &kept, "Delete").await?;
        let driver = Driver::pretended(env.client.clone());
        Ok(Stage { env, _driver: driver, _cloud: cloud, project, proxies, neighbour, kept })
    }

    fn proxy(&self, service: Service) -> &FaultProxy {
        &self.proxies.iter().find(|(one, _)| *one == service).expect("it is behind a proxy").1
    }

    /// One run: a volume whose driver deletes it in the cluster and not in OpenStack, and a Service that names the load balancer of
    /// another cluster. Returns how many reads and writes there were of each service.
    async fn run(&self, name: &str, case: Case<Calls>) -> Result<Vec<(Calls, u64)>> {
        let volume = self.project.volume(&format!("pvc-{name}"), json!({})).await?;
        self.env.claim(&format!("{name}-data"), &volume, "Delete").await?;
        self.env.service(&format!("{name}-web"), &self.neighbour).await?;
        for (_, proxy) in &self.proxies {
            proxy.clear_requests();
        }
        let victim = Victim::default();
        let armed =
            case.arm(&WriteCounter::new(), &victim, |(service, kind)| kind.at(self.proxy(service)))?;
        let launch = self.env.launch()?;
        victim.start(&launch)?;
        tokio::select! {
            checked = self.check(name, &volume) => checked?,
            ended = keep_running(&victim, &launch, &case) => ended?,
        }
        victim.kill()?;
        armed.happened()?;
        let counts =
            self.proxies.iter().flat_map(|(service, proxy)| Kind::count(*service, &proxy.requests()));
        Ok(counts.collect())
    }

    /// Checks for forbidden states until the run is over, then the end.
    async fn check(&self, name: &str, volume: &String) -> Result<()> {
        let spec = json!({ "openstack": { "identityRef": { "name": "cloud" } }, "clusterName": "prod",
            "orphanPolicy": "Delete", "timeouts": { "apiUnavailable": "5m" } });
        self.env.deorbit(name, spec).await?;
        let mut changes = Changes::of(self.env.deorbits());
        let end = tokio::time::Instant::now() + e2e::wait::TIMEOUT;
        let status = loop {
            let deleted = deletes(self.proxy(Service::BlockStorage));
            let status = self.env.status(name).await?;
            if deleted.contains(volume) {
                let records = self.env.records(name).await?;
                ensure!(
                    records.iter().any(|one| one["id"] == volume.as_str()),
                    "deleted without its ID on record: {status:#?}"
                );
            }
            if status.phase.is_final() {
                break status;
            }
            ensure!(tokio::time::Instant::now() < end, "it does not end: {status:#?}");
            changes.next().await;
        };
        ensure!(status.phase == Phase::Succeeded && status.debris_count == 0, "{status:#?}");
        let path = format!("/volumes/{volume}");
        ensure!(self.project.api().find(Service::BlockStorage, &path).await?.is_none(), "it is not gone");
        ensure!(self.env.is_blocked().await?, "the block stays as long as the Deorbit exists");
        self.nothing_else_was_deleted(volume)?;
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.env.client.clone(), &self.env.namespace);
        let kept = claims.get("kept").await?;
        ensure!(kept.metadata.deletion_timestamp.is_none(), "the claim of a kept volume was deleted");
        let volumes = Api::<PersistentVolume>::all(self.env.client.clone());
        let kept = volumes.get(&format!("{}-kept", self.env.namespace)).await?;
        ensure!(kept.metadata.deletion_timestamp.is_none(), "a kept volume was deleted in the cluster");
        self.env.delete(name).await
    }

    fn nothing_else_was_deleted(&self, volume: &str) -> Result<()> {
        for (_, proxy) in &self.proxies {
            let ids = deletes(proxy);
            ensure!(!ids.contains(&self.neighbour), "the load balancer of another cluster was deleted");
            ensure!(!ids.contains(&self.kept), "a kept volume was deleted");
            ensure!(ids.iter().all(|id| *id == volume), "not on record: {ids:?}");
        }
        Ok(())
    }
}

/// IDs in all DELETE requests to a service.
fn deletes(proxy: &FaultProxy) -> BTreeSet<String> {
    let requests = proxy.requests();
    let deletes = requests.iter().filter(|request| request.method == Method::DELETE);
    deletes
        .filter_map(|request| Some(request.path.split('?').next()?.rsplit('/').next()?.to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_fault_at_any_call_to_openstack_a_run_ends_like_the_undisturbed_one() {
    let stage = Stage::set().await.unwrap();
    let calls = stage.run("undisturbed", Case::Undisturbed).await.unwrap();
    // D16: a few things are read by their IDs; no list of a project's volumes is read.
    let cinder = stage.proxy(Service::BlockStorage).requests();
    assert!(cinder.iter().any(|request| request.path.contains(&stage.kept)), "{cinder:#?}");
    let lists = cinder.iter().filter(|request| request.path.contains("/detail")).count();
    assert_eq!(lists, 0, "{cinder:#?}");
    let slice = Slice::chosen("deorbiter, cloud", SLICES).unwrap();
    let cases = slice.pick(Case::faults_by_kind(&calls, &OF_READS, &OF_WRITES));
    println!("{calls:?}: {} faults, {slice}", cases.len());
    let run = async |stage: &Stage, name: &str, case| stage.run(name, case).await.map(drop);
    let recover = |stage: &Stage| stage.proxies.iter().for_each(|(_, proxy)| proxy.clear());
    sweep_on_stages(stage, Stage::set, cases, run, recover).await.unwrap();
}
