//! How much longer a clean-up takes than the deletion by the cluster's own cloud controller manager and Cinder driver. Both delete
//! the same things alternately, with the real programs and the real services.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::api::deorbit::{Deorbit, Phase};
use common::api::deorbit_binding::DeorbitBinding;
use e2e::control_plane::ControlPlane;
use e2e::natgw::wait_for;
use e2e::openstack::{OpenStack, Project, Service};
use e2e::program::Program;
use e2e::providers::{self, DELETE, Providers};
use e2e::wait::{TIMEOUT, until_ok};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service as KubeService};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::stage::until_phase;
use crate::process::{stop, until_ready};
use crate::report::{Bench, milliseconds};

/// The cluster's name in OpenStack.
const CLUSTER: &str = "timed";
/// The namespace of claims and Services.
const SHOP: &str = "default";
/// The Service.
const WEB: &str = "web";
/// Volumes a run.
const VOLUMES: usize = 5;
/// Runs with volumes, with and without deorbiter.
const VOLUME_RUNS: usize = 5;
/// Runs with a load balancer: each takes a minute.
const BALANCER_RUNS: usize = 2;
/// Between two polls of OpenStack: a hundredth of what is measured.
const POLL: Duration = Duration::from_millis(50);

/// The resources that a run deletes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Volumes,
    Balancer,
}

/// Time from the first request.
struct Took {
    /// To the end of the last object in OpenStack.
    gone: Duration,
    /// To the condition Complete.
    complete: Duration,
}

struct Cluster<'a> {
    control_plane: ControlPlane,
    providers: Providers,
    project: Project,
    namespace: String,
    claims: Api<PersistentVolumeClaim>,
    services: Api<KubeService>,
    program: &'a Path,
}

pub(crate) async fn measure(openstack: &OpenStack, bench: &mut Bench) -> Result<()> {
    let program = bench.program.clone();
    let cluster = Cluster::start(openstack, &program).await?;
    for (what, runs, name) in [
        (What::Volumes, VOLUME_RUNS, format!("{VOLUMES} volumes")),
        (What::Balancer, BALANCER_RUNS, "1 load balancer with floating IP".to_owned()),
    ] {
        let (mut alone, mut ours) = (Vec::new(), Vec::new());
        for run in 0..runs {
            alone.push(cluster.alone(what).await.with_context(|| format!("{name}, providers alone"))?);
            ours.push(cluster.deorbited(what, run).await.with_context(|| format!("{name}, deorbiter"))?);
        }
        bench
            .row(format!("{name}: deleted by the providers alone"), "", milliseconds(alone.iter().copied()))
            .means("From the first request to delete to the end of the last object in OpenStack, as with `kubectl delete`");
        bench
            .row(format!("{name}: deleted in a Deorbit"), "", milliseconds(ours.iter().map(|took| took.gone)))
            .means("From the Deorbit's creation to the end of the last object in OpenStack; inventory and block come before the first delete");
        let verified = ours.iter().map(|took| took.complete.saturating_sub(took.gone));
        bench
            .row(format!("{name}: last one gone → Complete"), "≤ 5 s", milliseconds(verified))
            .means("Until each ID was polled in OpenStack and the block was lifted");
        let longer = ours.iter().zip(&alone).map(|(took, alone)| took.complete.saturating_sub(*alone));
        bench
            .row(format!("{name}: longer than the providers alone"), "", milliseconds(longer))
            .means("The whole Deorbit, from its creation to Complete, less the providers' own time in the run before");
    }
    Ok(())
}

impl<'a> Cluster<'a> {
    async fn start(openstack: &OpenStack, program: &'a Path) -> Result<Self> {
        let project = openstack.project(CLUSTER).await?;
        let control_plane = providers::control_plane().start().await?;
        let providers = Providers::start(&control_plane, &project, CLUSTER).await?;
        let (server, address) = project.server("node-1").await?;
        providers.node("node-1", &server, &address).await?;
        let (client, namespace) = (control_plane.client(), control_plane.namespace("deorbiter").await?);
        control_plane.serve::<Deorbit>().await?;
        control_plane.serve::<DeorbitBinding>().await?;
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "name": "cloud" }, "stringData": { "clouds.yaml": project.clouds_yaml()? },
        }))?;
        Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &secret).await?;
        let claims = Api::namespaced(client.clone(), SHOP);
        let services = Api::namespaced(client, SHOP);
        Ok(Self { control_plane, providers, project, namespace, claims, services, program })
    }

    /// As with `kubectl delete`.
    async fn alone(&self, what: What) -> Result<Duration> {
        let objects = self.create(what).await?;
        let began = Instant::now();
        match what {
            What::Volumes => {
                for index in 0..VOLUMES {
                    self.claims.delete(&claim(index), &DeleteParams::default()).await?;
                }
            }
            What::Balancer => drop(self.services.delete(WEB, &DeleteParams::default()).await?),
        }
        self.until_gone(&objects, began).await?;
        let took = began.elapsed();
        self.until_empty().await?;
        Ok(took)
    }

    async fn deorbited(&self, what: What, run: usize) -> Result<Took> {
        let objects = self.create(what).await?;
        let launch = Program::at(self.program)
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .env("POD_NAMESPACE", &self.namespace)
            .arg("--log-format=json");
        let (deorbiter, _) = until_ready(&launch).await?;
        // A program leads within a second of its start, which is not measured here.
        wait_for("deorbiter to lead", || async {
            let leads = deorbiter.metrics().await?.sum("leader_election_master_status", &[]);
            Ok(leads == Some(1.0))
        })
        .await?;
        let deorbits = Api::<Deorbit>::namespaced(self.control_plane.client(), &self.namespace);
        let name = format!("{}-{run}", if what == What::Volumes { "volumes" } else { "balancer" });
        let deorbit: Deorbit = serde_json::from_value(json!({
            "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": { "name": name },
            "spec": { "inCluster": true, "clusterSurvives": true, "clusterName": CLUSTER, "openstack": { "identityRef": { "name": "cloud" } } },
        }))?;
        let began = Instant::now();
        deorbits.create(&PostParams::default(), &deorbit).await?;
        self.until_gone(&objects, began).await?;
        let gone = began.elapsed();
        until_phase(&deorbits, &name, Phase::Succeeded, TIMEOUT).await?;
        let complete = began.elapsed();
        stop(&deorbiter).await?;
        self.until_empty().await?;
        Ok(Took { gone, complete })
    }

    /// Creates the objects; the service and the path of each in OpenStack.
    async fn create(&self, what: What) -> Result<Vec<(Service, String)>> {
        if what == What::Balancer {
            self.admitted(async || self.providers.balancer(SHOP, WEB).await).await?;
            self.providers.address(SHOP, WEB).await?;
            let service = self.services.get(WEB).await?;
            let id = service.annotations().get("loadbalancer.openstack.org/load-balancer-id");
            let id = id.context("the Service names no load balancer")?;
            let ips = self.project.api().get(Service::Network, "/floatingips").await?;
            let ips = ips.get("floatingips").and_then(Value::as_array).context("no list of floating IPs")?;
            let ids = ips.iter().filter_map(|ip| ip.get("id")?.as_str());
            let ips = ids.map(|id| (Service::Network, format!("/floatingips/{id}")));
            return Ok(ips.chain([(Service::LoadBalancer, format!("/loadbalancers/{id}"))]).collect());
        }
        for index in 0..VOLUMES {
            self.admitted(async || self.providers.claim(SHOP, &claim(index), DELETE).await).await?;
        }
        let mut objects = Vec::new();
        for index in 0..VOLUMES {
            let bound = self.providers.bound(SHOP, &claim(index)).await?;
            objects.push((Service::BlockStorage, format!("/volumes/{}", bound.handle)));
        }
        Ok(objects)
    }

    /// Retries, because the API server's watch reports the end of a block a moment later.
    async fn admitted(&self, create: impl AsyncFn() -> Result<()>) -> Result<()> {
        until_ok("the end of the block", async || create().await.map(Some)).await
    }

    /// Waits until OpenStack has none of the objects.
    async fn until_gone(&self, objects: &[(Service, String)], began: Instant) -> Result<()> {
        for (service, path) in objects {
            // Octavia still shows a deleted load balancer for some time.
            while let Some(found) = self.project.api().find(*service, path).await?
                && found.pointer("/loadbalancer/provisioning_status").is_none_or(|status| status != "DELETED")
            {
                ensure!(began.elapsed() < TIMEOUT, "{path} still exists");
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// Waits until the cluster has nothing of the run: the next one uses the same names.
    async fn until_empty(&self) -> Result<()> {
        wait_for("an empty cluster", || async {
            let left = self.claims.list(&ListParams::default()).await?.items.len();
            Ok(left == 0 && self.services.get_opt(WEB).await?.is_none())
        })
        .await
    }
}

fn claim(index: usize) -> String {
    format!("data-{index}")
}
