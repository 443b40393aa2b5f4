//! Faults between deorbiter and OpenStack: at any of its calls, refused, answered with an error before or after the service acted,
//! late, cut. The end must be the undisturbed one, and on the way nothing may be asked to go but what is on record: not the
//! neighbour's load balancer, not what is marked to be kept, not a volume that another driver has.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use common::api::deorbit::Phase;
use e2e::deorbiter::{Changes, Driver, TIMEOUT, TestEnv};
use e2e::fault_proxy::{FaultProxy, Matcher, Upstream};
use e2e::openstack::{OpenStack, Parts, Project, REGION, Release, Service};
use e2e::sweep::{Harm, Slice};
use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams};
use serde_json::json;

use super::on_stages;

/// `make test` takes every so manyth fault.
const SLICES: u64 = 151;
const BEHIND: [Service; 4] =
    [Service::Identity, Service::Network, Service::BlockStorage, Service::LoadBalancer];

const HARMS: [Harm; 13] = [
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
    Harm::LateAnswer,
];

/// Each stage has a region of its own, with its proxies.
static REGIONS: AtomicUsize = AtomicUsize::new(0);

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
        let url = |wanted: Service| {
            proxies.iter().find(|(service, _)| *service == wanted).map(|(_, proxy)| proxy.url())
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

    /// One run: a volume with a snapshot, of drivers that let go of them in the cluster and are dead in the cloud; a Service that
    /// names the neighbour's load balancer. Returns how many calls there were to each service.
    async fn run(
        &self,
        name: &str,
        disturbance: Option<(Service, u64, Harm)>,
    ) -> Result<Vec<(Service, u64)>> {
        let volume = self.project.volume(&format!("pvc-{name}"), json!({})).await?;
        self.env.claim(&format!("{name}-data"), &volume, "Delete").await?;
        self.env.service(&format!("{name}-web"), &self.neighbour).await?;
        for (_, proxy) in &self.proxies {
            proxy.clear_requests();
        }
        let rule = match disturbance {
            Some((service, call, harm)) => {
                let proxy = self.proxy(service);
                Some((proxy, proxy.rule(Matcher::any().after(call).times(1), harm.fault()?)))
            }
            None => None,
        };
        let deorbiter = self.env.deorbiter()?;
        let spec = json!({ "openstack": { "identityRef": { "name": "cloud" } }, "clusterName": "prod",
            "leftovers": "Delete", "timeouts": { "apiUnavailable": "5m" } });
        self.env.deorbit(name, spec).await?;
        let mut changes = Changes::of(self.env.deorbits());
        let end = tokio::time::Instant::now() + TIMEOUT;
        let status = loop {
            let going = asked_to_go(self.proxy(Service::BlockStorage));
            let status = self.env.status(name).await?;
            if going.contains(&volume) {
                let recorded = status.inventory.records.iter().any(|one| one.id.as_ref() == Some(&volume));
                ensure!(recorded, "deleted without its ID on record: {status:#?}");
            }
            if status.phase.is_final() {
                break status;
            }
            ensure!(tokio::time::Instant::now() < end, "it does not end: {status:#?}");
            changes.next().await;
        };
        ensure!(status.phase == Phase::Complete && status.debris_count == 0, "{status:#?}");
        let path = format!("/volumes/{volume}");
        ensure!(self.project.api().find(Service::BlockStorage, &path).await?.is_none(), "it is not gone");
        ensure!(!self.env.is_frozen().await?, "a freeze is left");
        self.nothing_else_went(&volume)?;
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.env.client.clone(), &self.env.namespace);
        let kept = claims.get("kept").await?;
        ensure!(kept.metadata.deletion_timestamp.is_none(), "the claim of a kept volume was deleted");
        let volumes = Api::<PersistentVolume>::all(self.env.client.clone());
        let kept = volumes.get(&format!("{}-kept", self.env.namespace)).await?;
        ensure!(kept.metadata.deletion_timestamp.is_none(), "a kept volume was deleted in the cluster");
        if let Some((proxy, rule)) = rule {
            proxy.remove(rule);
        }
        drop(deorbiter);
        self.env.deorbits().delete(name, &DeleteParams::default()).await?;
        self.env.thawed().await?;
        let calls = |proxy: &FaultProxy| proxy.requests().len() as u64;
        Ok(self.proxies.iter().map(|(service, proxy)| (*service, calls(proxy))).collect())
    }

    fn nothing_else_went(&self, volume: &str) -> Result<()> {
        for (_, proxy) in &self.proxies {
            let ids = asked_to_go(proxy);
            ensure!(!ids.contains(&self.neighbour), "the neighbour's load balancer was deleted");
            ensure!(!ids.contains(&self.kept), "a kept volume was deleted");
            ensure!(ids.iter().all(|id| *id == volume), "not on record: {ids:?}");
        }
        Ok(())
    }
}

/// IDs of everything that a service was asked to delete, whoever heard it.
fn asked_to_go(proxy: &FaultProxy) -> BTreeSet<String> {
    let requests = proxy.requests();
    let deletes = requests.iter().filter(|request| request.method == Method::DELETE);
    deletes
        .filter_map(|request| Some(request.path.split('?').next()?.rsplit('/').next()?.to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_openstack_at_any_call_changes_nothing_of_the_end() {
    let stage = Stage::set().await.unwrap();
    let calls = stage.run("calm", None).await.unwrap();
    // D16: few things are asked about by their IDs; no list of a project's volumes is read.
    let cinder = stage.proxy(Service::BlockStorage).requests();
    assert!(cinder.iter().any(|request| request.path.contains(&stage.kept)), "{cinder:#?}");
    let lists = cinder.iter().filter(|request| request.path.contains("/detail")).count();
    assert_eq!(lists, 0, "{cinder:#?}");
    let all: Vec<(Service, u64, Harm)> = calls
        .iter()
        .flat_map(|(service, count)| {
            (0..*count).flat_map(move |call| HARMS.map(|harm| (*service, call, harm)))
        })
        .collect();
    let slice = Slice::chosen("deorbiter, cloud", SLICES).unwrap();
    let mine: Vec<_> = (0..).zip(&all).filter(|(number, _)| slice.has(*number)).collect();
    println!("{calls:?}: {} of {} faults: {slice}", mine.len(), all.len());
    let violations = Mutex::new(Vec::new());
    let tried = on_stages(stage, Stage::set, mine, async |stage, (number, disturbance)| {
        match stage.run(&format!("run-{number}"), Some(*disturbance)).await {
            Ok(_) => println!("{number} of {}: {disturbance:?}: as undisturbed", all.len()),
            Err(error) => {
                println!("{number} of {}: {disturbance:?}: violation: {error:#}", all.len());
                violations.lock().unwrap().push(format!("{disturbance:?}: {error:#}"));
                stage.proxies.iter().for_each(|(_, proxy)| proxy.clear());
            }
        }
        true
    })
    .await;
    let violations = violations.into_inner().unwrap();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert!(tried > 0, "no faults are no sweep");
    println!("{tried} faults of OpenStack, 0 violations");
}
