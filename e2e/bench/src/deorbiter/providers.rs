//! How much longer a clean-up takes than the deletion by the cluster's own cloud controller manager and Cinder driver: both, in
//! turn, of the same things, with the real programs and the real services.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use common::api::deorbit::{Deorbit, Phase};
use e2e::control_plane::ControlPlane;
use e2e::natgw::wait_for;
use e2e::openstack::{OpenStack, Project, Service};
use e2e::program::Program;
use e2e::providers::{self, DELETE, Providers};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service as KubeService};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, CustomResourceExt as _, ResourceExt as _};
use serde_json::{Value, json};

use super::stage::serve_bindings;
use crate::figures::Figures;
use crate::process::{stop, until_ready};
use crate::report::Report;

/// The cluster's name in OpenStack.
const CLUSTER: &str = "timed";
/// Where claims and Services are.
const SHOP: &str = "default";
/// Volumes a run.
const VOLUMES: usize = 5;
/// Runs with volumes, of either kind.
const VOLUME_RUNS: usize = 5;
/// Runs with a load balancer, of either kind: each is a minute.
const BALANCER_RUNS: usize = 2;
/// A load balancer of Octavia's takes half a minute to go, more on a busy machine.
const WITHIN: Duration = Duration::from_secs(300);
/// Between two looks at OpenStack, or at the Deorbit: a hundredth of what is measured.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a run deletes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Volumes,
    Balancer,
}

/// How long it took, from the first request.
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
    binary: &'a Path,
}

/// All runs.
///
/// # Errors
/// Something does not go, or deorbiter fails.
pub(crate) async fn measure(openstack: &OpenStack, binary: &Path, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(openstack, binary).await?;
    for (what, runs, name) in [
        (What::Volumes, VOLUME_RUNS, format!("{VOLUMES} volumes")),
        (What::Balancer, BALANCER_RUNS, "1 load balancer with floating IP".to_owned()),
    ] {
        let (mut alone, mut ours) = (Vec::new(), Vec::new());
        for run in 0..runs {
            alone.push(cluster.alone(what).await.with_context(|| format!("{name}, providers alone"))?);
            ours.push(cluster.deorbited(what, run).await.with_context(|| format!("{name}, deorbiter"))?);
        }
        report.row(
            format!("{name}: deleted by the providers alone"),
            "",
            Figures::milliseconds(alone.iter().copied())?,
            "From the first request to delete to the end of the last object in OpenStack, as `kubectl delete` would do",
        );
        report.row(
            format!("{name}: deleted in a Deorbit"),
            "",
            Figures::milliseconds(ours.iter().map(|took| took.gone))?,
            "From the Deorbit's creation to the end of the last object in OpenStack; inventory and freeze come before the first delete",
        );
        report.row(
            format!("{name}: last one gone → Complete"),
            "≤ 5 s",
            Figures::milliseconds(ours.iter().map(|took| took.complete.saturating_sub(took.gone)))?,
            "Until each ID was looked up in OpenStack and the freeze was lifted",
        );
        let pairs = ours.iter().zip(&alone);
        report.row(
            format!("{name}: longer than the providers alone"),
            "",
            Figures::milliseconds(pairs.map(|(took, alone)| took.complete.saturating_sub(*alone)))?,
            "The whole Deorbit, from its creation to Complete, less the providers' own time in the run before",
        );
    }
    Ok(())
}

impl<'a> Cluster<'a> {
    async fn start(openstack: &OpenStack, binary: &'a Path) -> Result<Self> {
        let project = openstack.project(CLUSTER).await?;
        let control_plane = providers::control_plane().start().await?;
        let providers = Providers::start(&control_plane, &project, CLUSTER).await?;
        let (server, address) = project.server("node-1").await?;
        providers.node("node-1", &server, &address).await?;
        let client = control_plane.client();
        let namespace = control_plane.namespace("deorbiter").await?;
        let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
        kinds.create(&PostParams::default(), &Deorbit::crd()).await?;
        let deorbits = Api::<Deorbit>::namespaced(client.clone(), &namespace);
        wait_for("the kind Deorbit", || async { Ok(deorbits.list(&ListParams::default()).await.is_ok()) })
            .await?;
        serve_bindings(&client).await?;
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "name": "cloud" }, "stringData": { "clouds.yaml": project.clouds_yaml()? } }))?;
        Api::namespaced(client, &namespace).create(&PostParams::default(), &secret).await?;
        Ok(Self { control_plane, providers, project, namespace, binary })
    }

    /// As `kubectl delete` would do.
    async fn alone(&self, what: What) -> Result<Duration> {
        let there = self.make(what).await?;
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.control_plane.client(), SHOP);
        let services = Api::<KubeService>::namespaced(self.control_plane.client(), SHOP);
        let began = Instant::now();
        match what {
            What::Volumes => {
                for index in 0..VOLUMES {
                    claims.delete(&claim(index), &DeleteParams::default()).await?;
                }
            }
            What::Balancer => drop(services.delete("web", &DeleteParams::default()).await?),
        }
        self.gone(&there, began).await?;
        let took = began.elapsed();
        self.empty().await?;
        Ok(took)
    }

    /// By a Deorbit.
    async fn deorbited(&self, what: What, run: usize) -> Result<Took> {
        let there = self.make(what).await?;
        let launch = Program::at(self.binary)
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .env("POD_NAMESPACE", &self.namespace)
            .arg("--log-format=json");
        let (deorbiter, _) = until_ready(&launch).await?;
        let deorbits = Api::<Deorbit>::namespaced(self.control_plane.client(), &self.namespace);
        let name = format!("{}-{run}", if what == What::Volumes { "volumes" } else { "balancer" });
        let deorbit: Deorbit = serde_json::from_value(json!({
            "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": { "name": name },
            "spec": { "inCluster": true, "clusterName": CLUSTER, "openstack": { "identityRef": { "name": "cloud" } } },
        }))?;
        // Who leads does so within a second of its start, and is not measured here.
        wait_for("deorbiter to lead", || async {
            let leads = deorbiter.metrics().await?.sum("leader_election_master_status", &[]);
            Ok(leads == Some(1.0))
        })
        .await?;
        let began = Instant::now();
        deorbits.create(&PostParams::default(), &deorbit).await?;
        self.gone(&there, began).await?;
        let gone = began.elapsed();
        loop {
            let status = deorbits.get(&name).await?.status.unwrap_or_default();
            if status.phase == Phase::Complete {
                break;
            }
            ensure!(!status.phase.is_final() && began.elapsed() < WITHIN, "it is not complete: {status:?}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let complete = began.elapsed();
        stop(&deorbiter).await?;
        self.empty().await?;
        Ok(Took { gone, complete })
    }

    /// Makes what is to be deleted: where OpenStack has it.
    async fn make(&self, what: What) -> Result<Vec<(Service, String)>> {
        if what == What::Balancer {
            self.admitted(async || self.providers.balancer(SHOP, "web").await).await?;
            self.providers.address(SHOP, "web").await?;
            let services = Api::<KubeService>::namespaced(self.control_plane.client(), SHOP);
            let service = services.get("web").await?;
            let id = service.annotations().get("loadbalancer.openstack.org/load-balancer-id");
            let id = id.context("the Service names no load balancer")?;
            let ips = self.project.api().get(Service::Network, "/floatingips").await?;
            let ips = ips.get("floatingips").and_then(Value::as_array).context("no list of floating IPs")?;
            let ids = ips.iter().filter_map(|ip| ip.get("id")?.as_str());
            let mut there: Vec<_> = ids.map(|id| (Service::Network, format!("/floatingips/{id}"))).collect();
            there.push((Service::LoadBalancer, format!("/loadbalancers/{id}")));
            return Ok(there);
        }
        for index in 0..VOLUMES {
            self.admitted(async || self.providers.claim(SHOP, &claim(index), DELETE).await).await?;
        }
        let mut there = Vec::new();
        for index in 0..VOLUMES {
            let bound = self.providers.bound(SHOP, &claim(index)).await?;
            there.push((Service::BlockStorage, format!("/volumes/{}", bound.handle)));
        }
        Ok(there)
    }

    /// The API server learns of the end of a freeze by a watch: for a moment it goes on refusing.
    async fn admitted(&self, create: impl AsyncFn() -> Result<()>) -> Result<()> {
        let began = Instant::now();
        while let Err(error) = create().await {
            ensure!(began.elapsed() < Duration::from_secs(30), "{error:#}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Waits until none of it is in OpenStack.
    async fn gone(&self, there: &[(Service, String)], began: Instant) -> Result<()> {
        for (service, path) in there {
            loop {
                let found = self.project.api().find(*service, path).await?;
                // A load balancer that is gone is still shown for a while.
                let status =
                    found.as_ref().and_then(|each| each.pointer("/loadbalancer/provisioning_status"));
                if found.is_none() || status.is_some_and(|status| status == "DELETED") {
                    break;
                }
                ensure!(began.elapsed() < WITHIN, "{path} is still there");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        Ok(())
    }

    /// Waits until the cluster has nothing of the run any more either: the next one takes the same names.
    async fn empty(&self) -> Result<()> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.control_plane.client(), SHOP);
        let services = Api::<KubeService>::namespaced(self.control_plane.client(), SHOP);
        wait_for("an empty cluster", || async {
            let left = claims.list(&ListParams::default()).await?.items.len();
            Ok(left == 0 && services.get_opt("web").await?.is_none())
        })
        .await
    }
}

fn claim(index: usize) -> String {
    format!("data-{index}")
}
