//! A cluster and a cloud as large as wanted, and natgw on them with its default settings and no proxy in between.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use e2e::control_plane::ControlPlane;
use e2e::hetzner::{NewFloatingIp, NewServer};
use e2e::hollow_node::{HollowNode, Outcome};
use e2e::natgw::TestEnv;
use e2e::program::{Launch, Program};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::process::until_ready;

/// A route action of the real API takes about this long.
pub(crate) const ACTION: Duration = Duration::from_secs(1);
/// A kubelet's own heartbeat: 100 of them shall weigh on the API server as they do in a cluster.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How many Nodes are registered at the same time: few enough for the two cores that the API server may have.
const AT_ONCE: usize = 8;
/// Nodes from the first on whose servers hold a floating IP, label or not.
pub(crate) const WITH_FLOATING_IP: usize = 20;

/// A environment for natgw, with Nodes.
pub(crate) struct Stage {
    pub(crate) env: TestEnv,
    pub(crate) nodes: Vec<StageNode>,
    binary: PathBuf,
    first_id: u64,
}

/// A Node, its server, and the floating IP that is assigned to it.
pub(crate) struct StageNode {
    pub(crate) node: HollowNode,
    pub(crate) name: String,
    pub(crate) private_ip: Ipv4Addr,
    pub(crate) floating_ip: Option<String>,
}

impl Stage {
    /// An empty one for natgw as it is built at `binary`.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub(crate) async fn on(control_plane: ControlPlane, binary: &Path) -> Result<Self> {
        let env = TestEnv::on(control_plane).await?;
        env.hetzner.set_action_duration(ACTION);
        // Stages share a cluster, and no Node may look like another stage's server.
        static STAGES: AtomicU64 = AtomicU64::new(1);
        let first_id = STAGES.fetch_add(1, Ordering::Relaxed) * 1_000_000;
        Ok(Self { env, nodes: Vec::new(), binary: binary.to_owned(), first_id })
    }

    /// Adds Nodes up to that number.
    ///
    /// # Errors
    /// What the cloud or the API server refuses.
    pub(crate) async fn grow(&mut self, to: usize) -> Result<()> {
        let (env, first_id) = (&self.env, self.first_id);
        let add = |index: usize| async move {
            let name = format!("{}-{index}", env.namespace);
            let place = u16::try_from(index)?;
            let private_ip = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 10).to_bits() + u32::from(place));
            let server = first_id + u64::from(place);
            env.hetzner.add_server(NewServer::new(&name).id(server).attached("lan", private_ip))?;
            let floating_ip = (index < WITH_FLOATING_IP).then(|| format!("198.51.100.{}", place + 1));
            if let Some(ip) = &floating_ip {
                let new = NewFloatingIp::new(&format!("fip-{index}"), ip).server(&name);
                env.hetzner.add_floating_ip(new.id(server + 500_000))?;
            }
            let node = HollowNode::builder(&name)
                .provider_id(format!("hcloud://{server}"))
                .internal_ip(private_ip)
                .labels([("env", env.namespace.as_str())])
                .heartbeat(HEARTBEAT)
                .on_pod(|_| Outcome::Succeed(Duration::ZERO))
                .start(env.client.clone())
                .await?;
            anyhow::Ok(StageNode { node, name, private_ip, floating_ip })
        };
        let new: Vec<_> = stream::iter(self.nodes.len()..to).map(add).buffered(AT_ONCE).try_collect().await?;
        self.nodes.extend(new);
        Ok(())
    }

    /// natgw with its defaults; through the fault proxy, which counts, or straight to the API server over TLS.
    ///
    /// # Errors
    /// The settings cannot be written.
    pub(crate) fn natgw(&self, proxied: bool) -> Result<Launch> {
        let env = &self.env;
        let settings = env.settings(&format!("hetzner: {{endpoint: '{}'}}\n", env.hetzner.url()))?;
        let kubeconfig = if proxied { env.kubeconfig.as_path() } else { env.control_plane.kubeconfig() };
        let args: [OsString; 4] =
            ["--config".into(), settings.into(), "--namespace".into(), (&env.namespace).into()];
        Ok(Program::at(&self.binary)
            .env("HCLOUD_TOKEN", env.hetzner.token())
            .env("KUBECONFIG", kubeconfig)
            .args(args))
    }

    /// Starts natgw and waits until its first walk has succeeded.
    ///
    /// # Errors
    /// It ends, or does not get that far.
    pub(crate) async fn lead(&self, proxied: bool) -> Result<Program> {
        let (natgw, _) = until_ready(&self.natgw(proxied)?).await?;
        self.env
            .wait("natgw's first walk", || async {
                let success = [("result", "success")];
                let walks = natgw.metrics().await?.sum("controller_runtime_reconcile_total", &success);
                Ok(walks.is_some_and(|walks| walks >= 1.0))
            })
            .await?;
        Ok(natgw)
    }
}
