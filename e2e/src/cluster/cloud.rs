//! The simulated Hetzner API, with a server for each node, and a network that follows its routes and floating IPs.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::{Cluster, Machine};
use crate::hetzner::{Hetzner, NewFloatingIp, NewNetwork, NewServer, Project, Settings};

/// ID of the network: servers have the numbers of their nodes, and the stand-in counts all kinds together.
const NETWORK: u64 = 100;
/// Waits for changes of the project end with one, or with the cluster.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// The cloud of one cluster: private network `cluster`, server `node-1` with ID 1 and so on. Dropped: gone.
pub struct Cloud {
    /// The project; it listens on this machine's address in the private network.
    pub hetzner: Arc<Hetzner>,
    /// ID of the network.
    pub network: u64,
    follower: JoinHandle<()>,
}

impl Cluster {
    /// Starts the cloud: packets follow its default route and its floating IPs. Nodes have the uplinks of the cluster's options, independent
    /// of the API.
    ///
    /// # Errors
    /// The stand-in cannot listen.
    pub async fn cloud(&self, uplinks: usize) -> Result<Cloud> {
        let listen = (self.this_machine(), 0).into();
        let hetzner = Arc::new(Hetzner::start_with(Settings { listen, ..Settings::default() }).await?);
        let network = hetzner.add_network(NewNetwork::new("cluster", &self.range()).id(NETWORK))?;
        for (node, index) in self.nodes().zip(0..) {
            let server =
                NewServer::new(node.name()).id(node.number()?.into()).attached("cluster", node.ip()?);
            let server = if index < uplinks { server.public(node.public_ip()?) } else { server };
            hetzner.add_server(server)?;
        }
        let follower = Follower {
            hetzner: Arc::clone(&hetzner),
            fabric: self.machine("fabric"),
            internet: self.machine("internet"),
        };
        let follower = tokio::spawn(async move {
            if let Err(error) = follower.follow().await {
                eprintln!("the network no longer follows the cloud: {error:#}");
            }
        });
        Ok(Cloud { hetzner, network, follower })
    }
}

impl Cloud {
    /// A new floating IP, assigned to that node.
    ///
    /// # Errors
    /// It exists.
    pub fn floating_ip(&self, ip: Ipv4Addr, node: &str) -> Result<u64> {
        self.hetzner
            .add_floating_ip(NewFloatingIp::new(&format!("egress-{ip}"), &ip.to_string()).server(node))
    }

    /// The node that the network's default route leads to.
    pub fn gateway(&self) -> Option<String> {
        default_route(&self.hetzner.project()).map(|(_, name)| name)
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// The routes of the fabric and the Internet.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ways {
    default: Option<(Ipv4Addr, String)>,
    floating_ips: BTreeSet<(String, String)>,
}

impl Ways {
    fn of(project: &Project) -> Self {
        let owners = project.floating_ips.values().filter_map(|ip| {
            let server = project.servers.get(&ip.server?)?;
            // Without a public interface there is no cable to send it by.
            server.public_ipv4.map(|_| (ip.ip.clone(), server.name.clone()))
        });
        Self { default: default_route(project), floating_ips: owners.collect() }
    }
}

/// Next hop and its server.
fn default_route(project: &Project) -> Option<(Ipv4Addr, String)> {
    let gateway = project.networks.get(&NETWORK)?.default_gateway()?;
    Some((gateway, project.server_at(NETWORK, gateway)?.name.clone()))
}

struct Follower {
    hetzner: Arc<Hetzner>,
    fabric: Machine,
    internet: Machine,
}

impl Follower {
    async fn follow(&self) -> Result<()> {
        let mut done = Ways::default();
        loop {
            let desired = Ways::of(&self.hetzner.project());
            let default = match &desired.default {
                Some((ip, cable)) => format!("route replace default via {ip} dev {cable} onlink\n"),
                // Hetzner's router rejects packets without a route.
                None => "route replace unreachable default\n".to_owned(),
            };
            ip_batch(&self.fabric, &default).await?;
            let gone = done.floating_ips.difference(&desired.floating_ips);
            let gone = gone.map(|(ip, cable)| format!("route del {ip}/32 dev {cable}\n"));
            let new = desired.floating_ips.difference(&done.floating_ips);
            let new = new.map(|(ip, cable)| format!("route add {ip}/32 dev {cable}\n"));
            ip_batch(&self.internet, &gone.chain(new).collect::<String>()).await?;
            done = desired;
            self.hetzner.wait_until("a change", FOR_EVER, |env| Ways::of(env) != done).await?;
        }
    }
}

/// Lines for `ip -batch` in the network of a machine.
async fn ip_batch(machine: &Machine, lines: &str) -> Result<()> {
    let network = format!("--net=/proc/{}/ns/net", machine.pid()?);
    let mut command = Command::new(crate::netns::NSENTER);
    command.args([&network, "ip", "-batch", "-"]).env("PATH", crate::netns::PATH);
    command.stdin(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("nsenter")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
