//! A real control plane, a simulated Hetzner Cloud, three simulated Nodes, and natgw as a program.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::control_plane::ControlPlane;
use e2e::hetzner::{Hetzner, NewFloatingIp, NewNetwork, NewServer};
use e2e::hollow_node::{HollowNode, Outcome};
use e2e::natgw::wait_for;
use e2e::program::{Launch, Program};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tempfile::TempDir;

/// The namespace of natgw and its Jobs.
pub(super) const NAMESPACE: &str = "natgw-system";
/// The Nodes: name, address in the private network, floating IP that is assigned to the server.
pub(super) const NODES: [(&str, Ipv4Addr, Option<&str>); 3] = [
    ("gateway-1", Ipv4Addr::new(10, 0, 0, 2), Some("198.51.100.7")),
    ("gateway-2", Ipv4Addr::new(10, 0, 0, 3), Some("198.51.100.8")),
    ("worker-1", Ipv4Addr::new(10, 0, 0, 4), None),
];
/// When Kubernetes marks a silent Node as NotReady: a cluster's default of 50 s is long for a demo.
pub(super) const GRACE: Duration = Duration::from_secs(8);
/// Eight heartbeats in the grace period, so that a busy machine may miss some.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a Job's script runs: about as long as on a real node.
const SCRIPT: Duration = Duration::from_millis(300);
/// Servers and floating IPs have separate IDs, as at Hetzner. Different ranges cannot be confused.
const FIRST_SERVER: u64 = 5_001;
const FIRST_FLOATING_IP: u64 = 7_001;
/// Another replica takes over after 6 s. The default of 15 s is long for a demo.
const LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
];

pub(super) struct Environment {
    nodes: BTreeMap<&'static str, HollowNode>,
    pub(super) hetzner: Arc<Hetzner>,
    pub(super) network: u64,
    folder: TempDir,
    pub(super) control_plane: ControlPlane,
}

impl Environment {
    /// The control plane with the namespace.
    pub(super) async fn control_plane() -> Result<ControlPlane> {
        let control_plane = ControlPlane::builder().grace(GRACE).start().await?;
        let client = control_plane.client();
        let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, NAMESPACE);
        // No pod can be created before.
        wait_for("the default service account", || async {
            Ok(accounts.get_opt("default").await?.is_some())
        })
        .await?;
        Ok(control_plane)
    }

    /// The cloud and the Nodes on that control plane.
    pub(super) async fn on(control_plane: ControlPlane) -> Result<Self> {
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
                .heartbeat(HEARTBEAT)
                .on_pod(|_| Outcome::Succeed(SCRIPT))
                .start(control_plane.client())
                .await?;
            nodes.insert(name, node);
        }
        let env =
            Self { nodes, hetzner: Arc::new(hetzner), network, folder: tempfile::tempdir()?, control_plane };
        let config = format!(
            "network: lan\nclients: {{enabled: true}}\nhetzner: {{endpoint: '{}', pollInterval: 3s}}\n",
            env.hetzner.url()
        );
        std::fs::write(env.config_file(), config)?;
        Ok(env)
    }

    pub(super) fn node(&self, name: &str) -> Result<&HollowNode> {
        self.nodes.get(name).with_context(|| format!("there is no Node {name}"))
    }

    /// Powers a Node's server off.
    pub(super) async fn power_off(&self, name: &str) -> Result<()> {
        self.node(name)?.silence().await;
        self.set_power(name, "off")
    }

    /// Powers it on: a new boot without the processes and rules of the one before.
    pub(super) async fn power_on(&self, name: &str) -> Result<()> {
        self.set_power(name, "running")?;
        self.node(name)?.reboot().await?;
        self.node(name)?.resume().await
    }

    fn set_power(&self, name: &str, status: &str) -> Result<()> {
        let project = self.hetzner.project();
        let server = project.servers.values().find(|server| server.name == name);
        self.hetzner.set_server_status(server.with_context(|| format!("no server {name}"))?.id, status)
    }

    /// natgw's configuration.
    pub(super) fn config(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.config_file())?)
    }

    fn config_file(&self) -> PathBuf {
        self.folder.path().join("natgw.yaml")
    }

    /// natgw with access to both APIs.
    pub(super) fn natgw(&self) -> Result<Launch> {
        Ok(Program::binary("natgw")?
            .env("HCLOUD_TOKEN", self.hetzner.token())
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .env("POD_NAMESPACE", NAMESPACE)
            .env("PERIMETER_CONFIG", self.config_file()))
    }

    /// Starts natgw as a Deployment does, with more arguments.
    pub(super) fn controller(&self, arguments: &[&str]) -> Result<Arc<Program>> {
        let launch = self.natgw()?.args(["--admin-address=127.0.0.1:0", "--log-format=json"]).args(LEASE);
        Ok(Arc::new(launch.args(arguments.iter().copied()).start()?))
    }
}
