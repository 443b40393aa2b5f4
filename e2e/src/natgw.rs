//! An environment for natgw: a real control plane, the Hetzner stand-in, hollow nodes, and fault proxies between natgw and both
//! servers. natgw is a service account with the permissions of `manifests/natgw/rbac.yaml`.
//!
//! Environments can share a control plane: each has its own namespace, server IDs, role label and node selector, and natgw
//! ignores Nodes whose servers are not in its project.

mod observe;
mod responder;

pub use observe::{acts, persistent_annotations, run, task_of};
pub use responder::Responder;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, api::ListParams};
use tempfile::TempDir;

use crate::control_plane::ControlPlane;
use crate::fault_proxy::{FaultProxy, Upstream, WriteCounter};
use crate::hetzner::{Hetzner, NewFloatingIp, NewNetwork, NewServer};
use crate::hollow_node::{Builder, HollowNode, Outcome};
use crate::program::{Launch, Program};
use crate::rights::{Rights, User};
use crate::slots::{self, Slot};
pub use crate::wait::TIMEOUT;
use crate::wait::until_ok;

/// Duration of a cloud action.
const ACTION: Duration = Duration::from_millis(50);

/// The label that natgw's settings name as the floating-IP label in these environments: its default.
pub const FLOATING_IP_LABEL: &str = natgw::names::FLOATING_IP_LABEL;

/// A label of all Nodes of an environment, which no test changes. Its value is the namespace.
const ENVIRONMENT_LABEL: &str = "e2e-environment";

/// Everything around natgw.
pub struct TestEnv {
    /// Real etcd, kube-apiserver, kube-controller-manager.
    pub control_plane: ControlPlane,
    /// An administrator's client, past the proxy.
    pub client: Client,
    /// Namespace of natgw and its Jobs.
    pub namespace: String,
    /// The cloud.
    pub hetzner: Hetzner,
    /// ID of the network `lan`, 10.0.0.0/16 or a loopback range.
    pub network: u64,
    /// The first three parts of the addresses in it.
    range: [u8; 3],
    /// Between natgw and the API server.
    pub api_proxy: FaultProxy,
    /// Between natgw and the cloud.
    pub cloud_proxy: FaultProxy,
    /// Counts natgw's writes to both.
    pub writes: WriteCounter,
    /// natgw's kubeconfig, through the proxy.
    pub kubeconfig: PathBuf,
    /// natgw's service account.
    user: User,
    folder: TempDir,
    _slot: Option<Slot>,
    nodes: AtomicU64,
    first_server: u64,
}

/// One Node of a [`TestEnv`]: a hollow node and its server.
pub struct Gateway {
    /// The Node.
    pub node: HollowNode,
    /// Its name.
    pub name: String,
    /// Its server's ID.
    pub server: u64,
    /// Its address in the network.
    pub private_ip: Ipv4Addr,
    jobs: Arc<Course>,
}

/// The outcomes of the Jobs of one Node, and the Jobs that have run.
#[derive(Default)]
struct Course {
    /// Kinds of Jobs whose pods hang; all others succeed at once.
    hanging: Mutex<BTreeSet<String>>,
    /// `setup:198.51.100.1`, in the order in which the pods were started.
    started: Mutex<Vec<String>>,
}

impl Course {
    fn decide(&self, pod: &Pod) -> Outcome {
        let task = observe::task_of(pod);
        let kind = task.split(':').next().unwrap_or_default();
        let hangs = self.hanging.lock().unwrap_or_else(PoisonError::into_inner).contains(kind);
        self.started.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        if hangs { Outcome::Hang } else { Outcome::Succeed(Duration::ZERO) }
    }
}

impl TestEnv {
    /// An environment on the control plane that all tests of natgw share, one of a few at a time.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub async fn start() -> Result<TestEnv> {
        let slot = slots::NATGW.wait().await?;
        let mut env = Self::on(ControlPlane::shared("natgw").await?).await?;
        env._slot = Some(slot);
        Ok(env)
    }

    /// As [`TestEnv::start`], with private addresses of this machine's loopback interface, where a [`Responder`] can listen.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub async fn start_on_loopback() -> Result<TestEnv> {
        let slot = slots::NATGW.wait().await?;
        let mut env = Self::on_loopback(ControlPlane::shared("natgw").await?).await?;
        env._slot = Some(slot);
        Ok(env)
    }

    /// An environment on a control plane of its own.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub async fn on(control_plane: ControlPlane) -> Result<TestEnv> {
        Self::with_range(control_plane, [10, 0, 0]).await
    }

    /// As [`TestEnv::on`], with private addresses of this machine's loopback interface.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub async fn on_loopback(control_plane: ControlPlane) -> Result<TestEnv> {
        // Two environments may have the same addresses: each uses a free port.
        Self::with_range(control_plane, [127, 77, 0]).await
    }

    async fn with_range(control_plane: ControlPlane, range: [u8; 3]) -> Result<TestEnv> {
        let client = control_plane.client();
        let namespace = control_plane.namespace("natgw").await?;
        let hetzner = Hetzner::start_quick(ACTION).await?;
        let network =
            hetzner.add_network(NewNetwork::new("lan", &format!("{}.{}.0.0/16", range[0], range[1])))?;
        let writes = WriteCounter::new();
        let user = Rights::of("natgw")?.give(&client, &namespace).await?;
        let api_proxy = FaultProxy::start_counted(upstream(&control_plane, &user)?, &writes).await?;
        narrow(&api_proxy, &namespace);
        let cloud_proxy = FaultProxy::start_counted(Upstream::hetzner(hetzner.url()), &writes).await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_of(&api_proxy.url(), &namespace))?;
        // Environments of all test binaries of one run may share a cluster.
        static ENVIRONMENTS: AtomicU64 = AtomicU64::new(0);
        let env = ENVIRONMENTS.fetch_add(1, Ordering::Relaxed);
        Ok(TestEnv {
            client,
            namespace,
            hetzner,
            network,
            range,
            api_proxy,
            cloud_proxy,
            writes,
            kubeconfig,
            folder,
            _slot: None,
            nodes: AtomicU64::new(0),
            first_server: u64::from(std::process::id()) * 1_000_000 + env * 1_000,
            control_plane,
            user,
        })
    }

    /// One more fault proxy as [`TestEnv::api_proxy`], which counts its writes in `writes`.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn another_api_proxy(&self, writes: &WriteCounter) -> Result<FaultProxy> {
        let proxy = FaultProxy::start_counted(upstream(&self.control_plane, &self.user)?, writes).await?;
        narrow(&proxy, &self.namespace);
        Ok(proxy)
    }

    /// The role label in this environment's settings.
    #[must_use]
    pub fn role_label(&self) -> String {
        format!("node-role.kubernetes.io/{}", self.namespace)
    }

    /// Adds a server in the network and a Node on it, whose Jobs succeed at once; with a floating IP on the server and in
    /// the Node's label, if one is given.
    ///
    /// # Errors
    /// What the cloud or the API server refuses.
    pub async fn node(&self, floating_ip: Option<&str>) -> Result<Gateway> {
        self.node_as(floating_ip, |name, server| {
            HollowNode::builder(name).provider_id(format!("hcloud://{server}"))
        })
        .await
    }

    /// As [`TestEnv::node`], with a Node of its own kind, made from the name and the ID of the server.
    ///
    /// # Errors
    /// What the cloud or the API server refuses.
    pub async fn node_as(
        &self,
        floating_ip: Option<&str>,
        make: impl FnOnce(&str, u64) -> Builder,
    ) -> Result<Gateway> {
        let number = self.nodes.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{}-{number}", self.namespace);
        let server = self.first_server + number;
        let [a, b, c] = self.range;
        let last = u8::try_from(number + 1).context("too many nodes for one env")?;
        let private_ip = Ipv4Addr::new(a, b, c, last);
        self.hetzner.add_server(NewServer::new(&name).id(server).attached("lan", private_ip))?;
        if let Some(ip) = floating_ip {
            // All kinds of one project share their IDs here: far from those of servers.
            self.hetzner.add_floating_ip(
                NewFloatingIp::new(&format!("fip-{number}"), ip)
                    .id(server + observe::FLOATING_IP_IDS)
                    .server(&name),
            )?;
        }
        let mut labels =
            ["env", ENVIRONMENT_LABEL].map(|key| (key.to_owned(), self.namespace.clone())).to_vec();
        labels.extend(floating_ip.map(|ip| (FLOATING_IP_LABEL.to_owned(), ip.to_owned())));
        let jobs = Arc::new(Course::default());
        let course = Arc::clone(&jobs);
        let node = make(&name, server)
            .internal_ip(IpAddr::V4(private_ip))
            .labels(labels)
            .on_pod(move |pod| course.decide(pod))
            .start(self.client.clone())
            .await?;
        Ok(Gateway { name: node.name(), node, server, private_ip, jobs })
    }

    /// Writes a settings file with more lines of YAML.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn settings(&self, more: &str) -> Result<PathBuf> {
        let selector = if more.contains("nodeSelector:") {
            String::new()
        } else {
            format!("nodeSelector: {{matchLabels: {{env: {}}}}}\n", self.namespace)
        };
        let network = if more.contains("network:") { "" } else { "network: lan\n" };
        let hetzner = if more.contains("hetzner:") {
            String::new()
        } else {
            format!("hetzner: {{endpoint: '{}', pollInterval: 3s}}\n", self.cloud_proxy.url())
        };
        let role = if more.contains("roleLabel:") {
            String::new()
        } else {
            format!("roleLabel: {}\n", self.role_label())
        };
        let file = tempfile::Builder::new().suffix(".yaml").tempfile_in(self.folder.path())?;
        std::fs::write(file.path(), format!("{network}{selector}{role}{hetzner}{more}"))?;
        Ok(file.into_temp_path().keep()?)
    }

    /// natgw, ready to be started with these settings; more arguments can be added.
    ///
    /// # Errors
    /// natgw is not built, or the settings cannot be written.
    pub fn natgw(&self, more_settings: &str) -> Result<Launch> {
        Ok(self.command(more_settings)?.args([
            "--admin-address",
            "127.0.0.1:0",
            "--log-format",
            "json",
            "--log-filter",
            "info,natgw=debug",
        ]))
    }

    /// natgw with these settings and nothing else on its command line.
    ///
    /// # Errors
    /// As [`TestEnv::natgw`].
    pub fn command(&self, more_settings: &str) -> Result<Launch> {
        let settings = self.settings(more_settings)?;
        Ok(Program::binary("natgw")?
            .env("HCLOUD_TOKEN", self.hetzner.token())
            .env("KUBECONFIG", &self.kubeconfig)
            .arg("--config")
            .arg(settings))
    }

    /// Repeats a condition until it holds.
    ///
    /// # Errors
    /// It does not hold within [`TIMEOUT`]; or what it failed with last.
    pub async fn wait<F, Fut>(&self, what: &str, condition: F) -> Result<()>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<bool>>,
    {
        wait_for(what, condition).await
    }

    /// A Node as it is now.
    ///
    /// # Errors
    /// It is not there.
    pub async fn get(&self, name: &str) -> Result<Node> {
        Ok(Api::<Node>::all(self.client.clone()).get(name).await?)
    }

    /// An annotation of a Node as it is now.
    ///
    /// # Errors
    /// The Node is not there.
    pub async fn annotation(&self, name: &str, key: &str) -> Result<Option<String>> {
        Ok(self.get(name).await?.metadata.annotations.and_then(|mut all| all.remove(key)))
    }

    /// Names of the Nodes that have this environment's role label.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn role_holders(&self) -> Result<Vec<String>> {
        let list = ListParams::default().labels(&self.role_label());
        let nodes = Api::<Node>::all(self.client.clone()).list_metadata(&list).await?;
        Ok(nodes.items.into_iter().filter_map(|node| node.metadata.name).collect())
    }

    /// Next hop of the network's default route.
    ///
    /// # Errors
    /// The network is gone.
    pub fn route(&self) -> Option<String> {
        self.hetzner.default_gateway(self.network).map(|gateway| gateway.to_string())
    }

    /// Waits until the route and the role label are at this Node, and at no other.
    ///
    /// # Errors
    /// They are not within [`TIMEOUT`].
    pub async fn wait_for_primary(&self, gateway: &Gateway) -> Result<()> {
        let ip = gateway.private_ip.to_string();
        self.wait(&format!("{} as the primary", gateway.name), || async {
            Ok(self.route().as_ref() == Some(&ip) && self.role_holders().await? == [gateway.name.clone()])
        })
        .await
    }
}

/// Repeats a condition until it holds.
///
/// # Errors
/// It does not hold within [`TIMEOUT`]; or what it failed with last.
pub async fn wait_for<F, Fut>(what: &str, condition: F) -> Result<()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<bool>>,
{
    until_ok(what, async || Ok(condition().await?.then_some(()))).await
}

/// Hides the Nodes of other environments, which share the control plane: natgw would reconcile at all their events, and removes its
/// annotations from any Node that asks for it.
fn narrow(proxy: &FaultProxy, namespace: &str) {
    proxy.narrow("/api/v1/nodes", &format!("labelSelector={ENVIRONMENT_LABEL}%3D{namespace}"));
}

fn upstream(control_plane: &ControlPlane, user: &User) -> Result<Upstream> {
    let (certificate, key) = control_plane.admin_identity_pem()?;
    Ok(Upstream::kubernetes(control_plane.url())
        .ca_pem(control_plane.ca_pem()?)
        .client_certificate(certificate, key)
        .impersonate(&user.name, user.groups.clone()))
}

fn kubeconfig_of(url: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: proxy\nclusters: [{{name: proxy, cluster: {{server: '{url}'}}}}]\n\
         users: [{{name: natgw, user: {{}}}}]\ncontexts: [{{name: proxy, context: {{cluster: proxy, user: natgw, namespace: {namespace}}}}}]\n"
    )
}
