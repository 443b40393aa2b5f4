//! A cluster and a cloud of any size, with natgw and its default configuration.

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

/// About as long as a route action of the real API.
pub(crate) const ACTION: Duration = Duration::from_secs(1);
/// As often as a kubelet: 100 Nodes are the load on the API server that they are in a cluster.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Nodes that are registered at the same time: few enough for two cores.
const CONCURRENCY: usize = 8;
/// The first Nodes' servers have a floating IP, with or without the label.
pub(crate) const WITH_FLOATING_IP: usize = 20;

pub(crate) struct Stage {
    pub(crate) env: TestEnv,
    pub(crate) nodes: Vec<StageNode>,
    program: PathBuf,
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
    /// Without Nodes.
    pub(crate) async fn on(control_plane: ControlPlane, program: &Path) -> Result<Self> {
        // Stages share a cluster, but not the IDs of servers.
        static STAGES: AtomicU64 = AtomicU64::new(1);
        let first_id = STAGES.fetch_add(1, Ordering::Relaxed) * 1_000_000;
        let env = TestEnv::on(control_plane).await?;
        env.hetzner.set_action_duration(ACTION);
        Ok(Self { env, nodes: Vec::new(), program: program.to_owned(), first_id })
    }

    /// Adds Nodes up to that number.
    pub(crate) async fn grow(&mut self, to: usize) -> Result<()> {
        let (env, first_id) = (&self.env, self.first_id);
        let add = async |index: usize| {
            let name = format!("{}-{index}", env.namespace);
            let number = u16::try_from(index)?;
            let private_ip = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 10).to_bits() + u32::from(number));
            let server = first_id + u64::from(number);
            env.hetzner.add_server(NewServer::new(&name).id(server).attached("lan", private_ip))?;
            let floating_ip = (index < WITH_FLOATING_IP).then(|| format!("198.51.100.{}", number + 1));
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
        let new = stream::iter(self.nodes.len()..to).map(add).buffered(CONCURRENCY);
        let new: Vec<_> = new.try_collect().await?;
        self.nodes.extend(new);
        Ok(())
    }

    /// natgw: through the fault proxy, which counts, or straight to the API server over TLS.
    pub(crate) fn natgw(&self, proxied: bool) -> Result<Launch> {
        let env = &self.env;
        let config = env.settings(&format!("hetzner: {{endpoint: '{}'}}\n", env.hetzner.url()))?;
        let kubeconfig = if proxied { env.kubeconfig.as_path() } else { env.control_plane.kubeconfig() };
        let launch = Program::at(&self.program).env("HCLOUD_TOKEN", env.hetzner.token());
        let launch = launch.env("KUBECONFIG", kubeconfig).arg("--config").arg(config);
        Ok(launch.args(["--namespace", &env.namespace]))
    }

    /// Starts natgw and waits until its first reconciliation has succeeded.
    pub(crate) async fn lead(&self, proxied: bool) -> Result<Program> {
        let (natgw, _) = until_ready(&self.natgw(proxied)?).await?;
        self.env
            .wait("natgw's first reconciliation", || async {
                let success = [("result", "success")];
                let count = natgw.metrics().await?.sum("controller_runtime_reconcile_total", &success);
                Ok(count.is_some_and(|count| count >= 1.0))
            })
            .await?;
        Ok(natgw)
    }
}
