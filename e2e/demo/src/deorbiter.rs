//! `demo deorbiter`: a cluster is cleaned up before it is deleted, on a real OpenStack with the real drivers.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::api::deorbit::{Deorbit, Phase};
use e2e::openstack::{CLOUD, OpenStack, Parts, Release, Service};
use e2e::providers::{self, DELETE, Providers, RETAIN};
use e2e::wait::TIMEOUT;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::screen::Screen;
use crate::tenant::{SECRET, Tenant, printed};

/// The Deorbit, the project, and the name that the drivers write on what they create in OpenStack.
const NAME: &str = "prod";
/// The namespace of the claims and of the Service.
const SHOP: &str = "shop";
/// A volume of the project that does not belong to the cluster.
const UNRELATED: &str = "unrelated";
/// Shorter than any phase lasts.
const POLL: Duration = Duration::from_millis(250);
/// Service, path, key of the list, what it is called, field of the state.
const KINDS: [(Service, &str, &str, &str, &str); 3] = [
    (Service::BlockStorage, "/volumes/detail", "volumes", "volume", "status"),
    (Service::BlockStorage, "/snapshots", "snapshots", "snapshot", "status"),
    (Service::LoadBalancer, "/loadbalancers", "loadbalancers", "load balancer", "provisioning_status"),
];

pub(crate) async fn run(screen: &Screen) -> Result<()> {
    screen.title("1/4 ── A cluster, and what it created in its cloud");
    screen.say(
        "Keystone, Neutron, Nova, Cinder and Octavia as their projects publish them, and a Kubernetes control plane with \
         OpenStack's own cloud controller manager and Cinder CSI driver, all on this machine's loopback interface. The \
         cluster's users created three claims, a snapshot and a Service of type LoadBalancer. The reclaim policy of the claim \
         `archive` is Retain. One more volume of the project does not belong to the cluster.",
    );
    let demo = screen.progress("Starting OpenStack and Kubernetes", DeorbiterDemo::start()).await?;
    demo.show_cloud(screen).await?;

    screen.title("2/4 ── A dry run");
    screen.command(&format!("deorbiter --dry-run --cloud {CLOUD}"));
    screen.output(&printed(demo.tenant.launch().args(["--dry-run", "--cloud", CLOUD])).await?);

    screen.title("3/4 ── A Deorbit");
    screen.command("kubectl apply -f deorbit.yaml && kubectl wait --for=condition=Complete deorbit/prod");
    let _controller = demo.tenant.controller()?;
    demo.create().await?;
    demo.follow(screen).await?;

    screen.title("4/4 ── What is left in OpenStack");
    let left = demo.show_cloud(screen).await?;
    let client = demo.tenant.control_plane.client();
    let archive = Api::<PersistentVolumeClaim>::namespaced(client, SHOP).get("archive").await?;
    let archive = archive.spec.and_then(|spec| spec.volume_name).context("archive has no volume")?;
    let mut expected = [archive, UNRELATED.to_owned()];
    expected.sort();
    ensure!(left == expected, "only {expected:?} should be left, but {left:?} are");

    screen.title("What you have seen");
    screen.say(
        "deorbiter recorded the IDs before the first delete. The cluster's own drivers deleted the volumes and the load \
         balancer. deorbiter then polled each ID in OpenStack until it was gone. The retained volume and the unrelated one \
         are left. Everything ran on the loopback interface and is removed now. docs/deorbiter.md describes the installation.",
    );
    Ok(())
}

struct DeorbiterDemo {
    _providers: Providers,
    tenant: Tenant,
    _cloud: OpenStack,
}

impl DeorbiterDemo {
    async fn start() -> Result<Self> {
        let cloud = OpenStack::start(Parts::All, Release::Main, Default::default()).await?;
        let project = cloud.project(NAME).await?;
        project.volume(UNRELATED, json!({})).await?;
        let control_plane = providers::control_plane().start().await?;
        let providers = Providers::start(&control_plane, &project, NAME).await?;
        let (server, address) = project.server("node-1").await?;
        providers.node("node-1", &server, &address).await?;
        let shop: Namespace = serde_json::from_value(json!({"metadata": {"name": SHOP}}))?;
        Api::all(control_plane.client()).create(&PostParams::default(), &shop).await?;
        let claims = [("data-1", DELETE), ("data-2", DELETE), ("archive", RETAIN)];
        for (name, class) in claims {
            providers.claim(SHOP, name, class).await?;
        }
        providers.balancer(SHOP, "web").await?;
        for (name, _) in claims {
            providers.bound(SHOP, name).await?;
        }
        providers.snapshot(SHOP, "data-1-monday", "data-1", DELETE).await?;
        providers.address(SHOP, "web").await?;
        let tenant = Tenant::new::<Deorbit>("deorbiter", project, control_plane).await?;
        Ok(Self { _providers: providers, tenant, _cloud: cloud })
    }

    async fn create(&self) -> Result<()> {
        let deorbit: Deorbit = serde_json::from_value(json!({
            "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": {"name": NAME},
            "spec": {
                "inCluster": true, "clusterName": NAME,
                "openstack": {"identityRef": {"name": SECRET, "cloudName": CLOUD}},
            },
        }))?;
        self.tenant.objects().create(&PostParams::default(), &deorbit).await?;
        Ok(())
    }

    /// Shows each phase, and how many objects remain, until the Deorbit is complete.
    async fn follow(&self, screen: &Screen) -> Result<()> {
        let (began, mut shown) = (Instant::now(), String::new());
        loop {
            let status = self.tenant.objects::<Deorbit>().get(NAME).await?.status.unwrap_or_default();
            let line = format!("{}, {} remaining", status.phase, status.remaining);
            if line != shown {
                screen.event(began.elapsed(), "deorbit", &line);
                shown = line;
            }
            if status.phase == Phase::Succeeded {
                let complete = status.conditions.iter().find(|condition| condition.kind == "Complete");
                screen.because(&complete.context("the Deorbit has no condition Complete")?.message);
                return Ok(());
            }
            ensure!(!status.phase.is_final(), "the Deorbit failed: {status:#?}");
            ensure!(began.elapsed() < TIMEOUT, "the Deorbit is not complete after {TIMEOUT:?}: {status:#?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Shows all volumes, snapshots and load balancers of the project; their names, sorted.
    async fn show_cloud(&self, screen: &Screen) -> Result<Vec<String>> {
        screen.command(
            "openstack volume list && openstack volume snapshot list && openstack loadbalancer list",
        );
        let (mut rows, mut names) = (Vec::new(), Vec::new());
        for (service, path, key, kind, state) in KINDS {
            let list = self.tenant.project.api().get(service, path).await?;
            let list =
                list.get(key).and_then(Value::as_array).with_context(|| format!("{path}: no {key}"))?;
            for each in list {
                let text =
                    |field: &str| each.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
                names.push(text("name"));
                rows.push([kind.to_owned(), text("name"), text(state), text("id")]);
            }
        }
        names.sort();
        screen.table(["kind", "name", "state", "id"], &rows);
        Ok(names)
    }
}
