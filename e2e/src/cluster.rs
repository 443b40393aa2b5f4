//! A real Kubernetes cluster without Docker: etcd and the control plane, and nodes with kubelet, containerd and kube-proxy,
//! each in its own namespaces, with a private network and an Internet like those of Hetzner's servers.
//!
//! ```text
//!   203.0.113.9  internet ── eth0 (192.0.2.11/32, gateway 172.31.1.1)    node-1, node-2 … control-plane
//!                                                                          │ ens10 (10.R.0.11/32)
//!                fabric   ── 10.R.0.1 on each cable ───────────────────────┤
//!                                                                     this machine (10.R.0.254)
//! ```
//!
//! The shell scripts in `e2e/cluster` create it; this module drives them. Each cluster has a number, which determines its network
//! (10.201.0.0/16 and up), cgroup and folder, so that several can run at the same time. A keeper process removes everything when the value
//! is dropped or this process is killed.
//!
//! It needs root. It pulls no image, and leaves no bridge, rule or route.

mod audit;
mod capture;
mod cloud;
pub mod image;
mod installation;
mod internet;
mod keeper;
mod machine;
mod namespace;
mod probe;
mod segment;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;
use tokio::process::Command;

pub use audit::Write;
pub use capture::{Capture, Packets};
pub use cloud::Cloud;
pub use installation::Installation;
pub use internet::{HOST, Servers};
pub use machine::Machine;
pub use namespace::Network;
pub use probe::{Probe, Prober, Target, client_in};
pub use segment::{SEGMENT_GATEWAY, SEGMENT_INTERFACE};

use keeper::Keeper;

/// Deadline until a cluster is ready: forty times the time on two idle cores.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The control plane's version; the pins of the nodes' programs follow it.
const KUBERNETES: &str = "1.36";

/// A running cluster. When dropped, it is removed with all processes, mounts, links, routes, cgroups and files.
pub struct Cluster {
    client: Client,
    nodes: usize,
    took: Duration,
    scripts: Arc<Scripts>,
    _keeper: Keeper,
}

/// Options of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Builder {
    nodes: usize,
    uplinks: usize,
    grace: Duration,
    eviction: Duration,
    proxy_mode: ProxyMode,
    pod_network: PodNetwork,
}

/// The network that connects the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNetwork {
    /// A bridge on each node, and routes between the nodes. Nothing is masqueraded.
    Bridge,
    /// flannel: a bridge on each node, VXLAN between them, and iptables rules that masquerade.
    Flannel,
}

/// How kube-proxy programs a node.
#[derive(Debug, Clone, Copy)]
pub enum ProxyMode {
    /// The newer one.
    Nftables,
    /// The default of Kubernetes.
    Iptables,
}

/// The environment of the scripts of one cluster.
#[derive(Debug)]
struct Scripts {
    number: u8,
    state: PathBuf,
    assets: PathBuf,
    pod_network: PodNetwork,
    environment: Vec<(&'static str, OsString)>,
}

impl Builder {
    /// Number of nodes: `node-1`, `node-2` …
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Number of nodes, from the first on, with a public interface; 0 if not set.
    #[must_use]
    pub fn uplinks(mut self, nodes: usize) -> Self {
        self.uplinks = nodes;
        self
    }

    /// Time until a silent node is NotReady, in whole seconds; 12 s if not set (40 s or 50 s by default in Kubernetes).
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Default toleration of pods on a node that is not ready; 30 s if not set (300 s by default in Kubernetes).
    #[must_use]
    pub fn eviction(mut self, eviction: Duration) -> Self {
        self.eviction = eviction;
        self
    }

    /// The mode of kube-proxy; nftables if not set.
    #[must_use]
    pub fn proxy_mode(mut self, mode: ProxyMode) -> Self {
        self.proxy_mode = mode;
        self
    }

    /// The network of the pods; bridges if not set.
    #[must_use]
    pub fn pod_network(mut self, network: PodNetwork) -> Self {
        self.pod_network = network;
        self
    }

    /// Starts it, and returns when each node is Ready and DNS responds.
    ///
    /// # Errors
    /// What is missing (root, a program) or not ready; the scripts' output is on standard error.
    pub async fn start(self) -> Result<Cluster> {
        let begun = Instant::now();
        ensure!(
            nix::unistd::geteuid().is_root(),
            "a cluster needs root: its nodes are namespaces with mounts, cgroups and routes of their own"
        );
        let (assets, control, flannel) = tokio::task::spawn_blocking(move || {
            let flannel = match self.pod_network {
                PodNetwork::Bridge => PathBuf::new(),
                PodNetwork::Flannel => crate::assets::flannel()?,
            };
            anyhow::Ok((crate::assets::cluster()?, crate::assets::control_plane(KUBERNETES)?, flannel))
        })
        .await??;
        let keeper = tokio::task::spawn_blocking(Keeper::start).await??;
        let number = keeper.number();
        let state = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let proxy_mode = match self.proxy_mode {
            ProxyMode::Nftables => "nftables",
            ProxyMode::Iptables => "iptables",
        };
        let environment = vec![
            ("CLUSTER_NUMBER", number.to_string().into()),
            ("ASSETS", assets.clone().into()),
            ("CONTROL_ASSETS", control.into()),
            ("UPLINKS", self.uplinks.to_string().into()),
            ("PROVIDER_ID", "hcloud://%d".into()),
            ("GRACE", self.grace.as_secs().to_string().into()),
            ("PROXY_MODE", proxy_mode.into()),
            ("FLANNEL", flannel.into()),
            ("EVICT", self.eviction.as_secs().to_string().into()),
        ];
        let state = state.join(format!("perimeter-{number}"));
        let scripts = Arc::new(Scripts { number, state, assets, pod_network: self.pod_network, environment });
        scripts.run("up.sh", [self.nodes.to_string()]).await.context("the cluster did not start")?;
        let client = crate::control_plane::ControlPlane::client_of(&scripts.kubeconfig()).await?;
        Ok(Cluster { client, nodes: self.nodes, took: begun.elapsed(), scripts, _keeper: keeper })
    }
}

impl Cluster {
    /// Starts one with this number of nodes and default options.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub async fn start(nodes: usize) -> Result<Self> {
        Self::builder().nodes(nodes).start().await
    }

    /// Options before the start.
    pub fn builder() -> Builder {
        let (grace, eviction) = (Duration::from_secs(12), Duration::from_secs(30));
        let (proxy_mode, pod_network) = (ProxyMode::Nftables, PodNetwork::Bridge);
        Builder { nodes: 1, uplinks: 0, grace, eviction, proxy_mode, pod_network }
    }

    /// The administrator's client, without retries.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.scripts.kubeconfig()
    }

    /// The time until everything was ready.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The folder of kubectl, ctr and the nodes' other programs.
    pub fn programs(&self) -> &Path {
        &self.scripts.assets
    }

    /// Range of the private network: machines, pods and Services are in it.
    pub fn range(&self) -> String {
        format!("10.{}.0.0/16", self.scripts.second_byte())
    }

    /// Range of the Services' addresses.
    pub fn services(&self) -> String {
        format!("10.{}.64.0/18", self.scripts.second_byte())
    }

    /// This machine's address in the private network, which nodes and pods can reach.
    pub fn this_machine(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.scripts.second_byte(), 0, 254)
    }

    /// A machine: `node-1` …, `control-plane`; also `fabric` and `internet`.
    pub fn machine(&self, name: &str) -> Machine {
        Machine::new(name, Arc::clone(&self.scripts))
    }

    /// The nodes, `node-1` first.
    pub fn nodes(&self) -> impl Iterator<Item = Machine> {
        (1..=self.nodes).map(|number| self.machine(&format!("node-{number}")))
    }

    /// Runs `kubectl` as the administrator. Returns its standard output.
    ///
    /// # Errors
    /// It fails; the error has its output.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.scripts.assets.join("kubectl"));
        command.env("KUBECONFIG", self.kubeconfig()).args(arguments);
        output(command, &format!("kubectl {}", arguments.join(" "))).await
    }

    /// Imports the image of an OCI archive on each node, also on nodes that start later.
    ///
    /// # Errors
    /// It is not an archive.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        self.scripts.run("image.sh", [archive]).await.with_context(|| archive.display().to_string()).map(drop)
    }

    /// Builds an image of static programs and imports it on each node; the first program is its entry point. `programs` are
    /// paths here, with `:PATH` for a place other than `/`.
    ///
    /// # Errors
    /// A program is missing.
    pub async fn make_image(&self, name: &str, programs: &[String]) -> Result<()> {
        let arguments = std::iter::once(name).chain(programs.iter().map(String::as_str));
        self.scripts.run("image.sh", arguments).await.with_context(|| format!("image {name}")).map(drop)
    }
}

impl Scripts {
    fn kubeconfig(&self) -> PathBuf {
        self.state.join("admin.conf")
    }

    fn second_byte(&self) -> u8 {
        200 + self.number
    }

    /// Process 1 of a running machine.
    fn pid(&self, machine: &str) -> Result<u32> {
        let file = self.state.join(machine).join("pid");
        let text = std::fs::read_to_string(&file).with_context(|| format!("{machine} does not run"))?;
        text.trim().parse().with_context(|| file.display().to_string())
    }

    async fn run<A: AsRef<std::ffi::OsStr>>(
        &self,
        script: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        let mut command = Command::new(keeper::folder().join(script));
        command
            .args(arguments)
            .env_remove("STATE")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        output(command, script).await
    }
}

/// The standard output of a command.
async fn output(mut command: Command, what: &str) -> Result<String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output =
        ended.with_context(|| format!("{what} still runs after {TIMEOUT:?}"))?.context(what.to_owned())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what}: {}: {}", output.status, stderr.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
