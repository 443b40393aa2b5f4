//! What the story is played on: a real control plane, the Hetzner stand-in, three nodes without machines, and natgw.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::control_plane::ControlPlane;
use e2e::hetzner::{Hetzner, NewFloatingIp, NewNetwork, NewServer};
use e2e::hollow_node::{HollowNode, Outcome};
use e2e::program::{Launch, Program};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tempfile::TempDir;

use crate::prerequisite::{built, no_cluster_of_yours};

/// Where natgw and its Jobs live.
pub(crate) const NAMESPACE: &str = "natgw-system";
/// The Nodes: name, address in the network, floating IP that Hetzner has assigned to the server.
pub(crate) const NODES: [(&str, Ipv4Addr, Option<&str>); 3] = [
    ("gateway-1", Ipv4Addr::new(10, 0, 0, 2), Some("198.51.100.7")),
    ("gateway-2", Ipv4Addr::new(10, 0, 0, 3), Some("198.51.100.8")),
    ("worker-1", Ipv4Addr::new(10, 0, 0, 4), None),
];
/// A Node is NotReady after this silence: 50 s in a cluster as it comes, which is long to look at.
pub(crate) const GRACE: Duration = Duration::from_secs(8);
/// Eight beats in the grace: a busy machine misses a few.
const BEAT: Duration = Duration::from_secs(1);
/// How long a setup script runs on a node without a machine: about what it takes on a real one.
const SCRIPT: Duration = Duration::from_millis(300);
/// Numbers as Hetzner's: servers and floating IPs are counted apart, and differ here so that they are not mistaken.
const FIRST_SERVER: u64 = 5_001;
const FIRST_FLOATING_IP: u64 = 7_001;
/// A leader is replaced after this silence: 15 s, 10 s and 2 s if not set, which is long to look at.
const LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
];
/// As a user would write it; the endpoint is the stand-in's.
const SETTINGS: &str = "network: lan\nclients: {enabled: true}\n";

/// Everything around natgw.
pub(crate) struct Stage {
    nodes: BTreeMap<String, HollowNode>,
    pub(crate) hetzner: Arc<Hetzner>,
    pub(crate) network: u64,
    natgw: PathBuf,
    folder: TempDir,
    pub(crate) control_plane: ControlPlane,
}

impl Stage {
    /// The control plane and the namespace.
    pub(crate) async fn cluster() -> Result<ControlPlane> {
        no_cluster_of_yours()?;
        let control_plane = ControlPlane::builder().grace(GRACE).start().await?;
        let client = control_plane.client();
        let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, NAMESPACE);
        // No pod can be created before.
        e2e::natgw::wait_for("the namespace's service account", || async {
            Ok(accounts.get_opt("default").await?.is_some())
        })
        .await?;
        Ok(control_plane)
    }

    /// The cloud and the nodes, on that control plane.
    pub(crate) async fn on(control_plane: ControlPlane) -> Result<Stage> {
        let hetzner = Hetzner::start().await?;
        let network = hetzner.add_network(NewNetwork::new("lan", "10.0.0.0/16"))?;
        let mut nodes = BTreeMap::new();
        for ((name, ip, floating_ip), number) in NODES.into_iter().zip(0..) {
            let server = FIRST_SERVER + number;
            hetzner.add_server(NewServer::new(name).id(server).attached("lan", ip))?;
            if let Some(address) = floating_ip {
                let floating_ip = NewFloatingIp::new(&format!("egress-{}", number + 1), address);
                hetzner.add_floating_ip(floating_ip.id(FIRST_FLOATING_IP + number).server(name))?;
            }
            let node = HollowNode::builder(name)
                .provider_id(format!("hcloud://{server}"))
                .internal_ip(ip)
                .heartbeat(BEAT)
                .on_pod(|_| Outcome::Succeed(SCRIPT))
                .start(control_plane.client())
                .await?;
            nodes.insert(name.to_owned(), node);
        }
        let natgw = built("natgw")?;
        let folder = tempfile::tempdir()?;
        let stage = Stage { nodes, hetzner: Arc::new(hetzner), network, natgw, folder, control_plane };
        let endpoint = format!("hetzner: {{endpoint: '{}', pollInterval: 3s}}\n", stage.hetzner.url());
        std::fs::write(stage.settings_file(), format!("{SETTINGS}{endpoint}"))?;
        Ok(stage)
    }

    /// A Node's machine.
    pub(crate) fn node(&self, name: &str) -> Result<&HollowNode> {
        self.nodes.get(name).with_context(|| format!("there is no node {name}"))
    }

    /// Switches a Node's machine off.
    pub(crate) async fn power_off(&self, name: &str) -> Result<()> {
        self.node(name)?.silence().await;
        self.power(name, "off")
    }

    /// Switches it on: a new boot, with nothing left of what ran.
    pub(crate) async fn power_on(&self, name: &str) -> Result<()> {
        self.power(name, "running")?;
        self.node(name)?.reboot().await?;
        self.node(name)?.resume().await
    }

    fn power(&self, name: &str, status: &str) -> Result<()> {
        let env = self.hetzner.project();
        let server = env.servers.values().find(|server| server.name == name);
        self.hetzner.set_server_status(server.with_context(|| format!("no server {name}"))?.id, status)
    }

    /// natgw's settings.
    pub(crate) fn settings(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.settings_file())?)
    }

    /// natgw as a Deployment runs it, with more arguments at the end.
    pub(crate) fn controller(&self, arguments: &[&str]) -> Result<Arc<Program>> {
        let launch = self.natgw().args(["--admin-address=127.0.0.1:0", "--log-format=json"]).args(LEASE);
        Ok(Arc::new(launch.args(arguments.iter().copied()).start()?))
    }

    /// What natgw prints for a person.
    pub(crate) async fn ask(&self, arguments: &[&str]) -> Result<String> {
        let program = self.natgw().args(arguments.iter().copied()).arg("--log-filter=error").start()?;
        let status = program.wait_exit(Duration::from_secs(30)).await?;
        let text = program.output().lines().join("\n");
        ensure!(status.success(), "natgw {} ended with {status}:\n{text}", arguments.join(" "));
        Ok(text)
    }

    fn natgw(&self) -> Launch {
        Program::at(&self.natgw)
            .env("HCLOUD_TOKEN", self.hetzner.token())
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .env("POD_NAMESPACE", NAMESPACE)
            .env("PERIMETER_CONFIG", self.settings_file())
    }

    fn settings_file(&self) -> PathBuf {
        self.folder.path().join("natgw.yaml")
    }
}
