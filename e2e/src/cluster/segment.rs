//! An additional network: each node has an interface in it, and its gateway routes to the Internet. Unlike servers in the private network,
//! its hosts are neighbours on layer 2.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Cluster, Machine, Network, PodNetwork};

/// The nodes' interface in it.
pub const SEGMENT_INTERFACE: &str = "eth1";
/// Its gateway. `node-1` is 198.18.50.11 and so on; the rest of the /24 is free.
pub const SEGMENT_GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 50, 1);
pub(super) const SWITCH: &str = "segment";

impl Cluster {
    /// Creates the network. Nodes have no routes through it except to its own addresses.
    ///
    /// # Errors
    /// It already exists.
    pub fn segment(&self) -> Result<()> {
        let internet = self.machine("internet").network()?;
        ip(&internet, &format!("link add {SWITCH} type bridge"))?;
        ip(&internet, &format!("address add {SEGMENT_GATEWAY}/24 dev {SWITCH}"))?;
        ip(&internet, &format!("link set {SWITCH} up"))?;
        self.nodes().try_for_each(|node| node.connect())
    }

    /// As [`Cluster::segment`]. All nodes have their default route through it, and packets of pods leave with the address of their node,
    /// as most CNI plugins do it.
    ///
    /// # Errors
    /// It already exists.
    pub fn segment_to_internet(&self) -> Result<()> {
        self.segment()?;
        self.nodes().try_for_each(|node| node.route_to_internet())
    }
}

impl Machine {
    /// Creates the node's interface in the segment, again after each boot.
    ///
    /// # Errors
    /// There is no segment.
    pub fn connect(&self) -> Result<()> {
        let (port, there) = (format!("{}.s", self.name()), format!("/proc/{}/ns/net", self.pid()?));
        let internet = Network::of(self.scripts.pid("internet")?)?;
        // Of the previous boot, if the kernel still has it.
        let _ = ip(&internet, &format!("link delete {port}"));
        ip(&internet, &format!("link add {port} type veth peer name {SEGMENT_INTERFACE} netns {there}"))?;
        ip(&internet, &format!("link set {port} master {SWITCH} up"))?;
        let network = self.network()?;
        ip(&network, &format!("address add {}/24 dev {SEGMENT_INTERFACE}", self.segment_ip()?))?;
        ip(&network, &format!("link set {SEGMENT_INTERFACE} up"))
    }

    /// Creates the node's default route through the segment, and the translation of its pods' addresses to its own, which flannel has by
    /// itself; again after each boot.
    ///
    /// # Errors
    /// The node is not connected, or has another default route.
    pub fn route_to_internet(&self) -> Result<()> {
        let (network, second) = (self.network()?, self.scripts.second_byte());
        ip(&network, &format!("route add default via {SEGMENT_GATEWAY} dev {SEGMENT_INTERFACE}"))?;
        if self.scripts.pod_network == PodNetwork::Flannel {
            return Ok(());
        }
        let rule = format!("oifname {SEGMENT_INTERFACE} ip saddr 10.{second}.128.0/17 masquerade");
        let chain = format!("type nat hook postrouting priority srcnat;\n{rule}\n");
        network.run("nft", &[&format!("table ip cni {{\nchain postrouting {{\n{chain}}}\n}}")]).map(drop)
    }

    /// A node's address in the segment.
    ///
    /// # Errors
    /// It is no node.
    pub fn segment_ip(&self) -> Result<Ipv4Addr> {
        Ok(Ipv4Addr::new(198, 18, 50, 10 + self.number()?))
    }
}

impl Network {
    /// Runs a program of this machine in it. Returns its output.
    ///
    /// # Errors
    /// It fails; the error has its output.
    pub fn run(&self, program: &'static str, arguments: &[&str]) -> Result<String> {
        let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
        self.within(move || {
            let mut command = Command::new(program);
            let output =
                command.args(&arguments).env("PATH", crate::netns::PATH).output().context(program)?;
            let error = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{program} {}: {error}", arguments.join(" "));
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }
}

/// ip(8) of this machine, in the network of another.
fn ip(network: &Network, arguments: &str) -> Result<()> {
    network.run("ip", &arguments.split(' ').collect::<Vec<_>>()).map(drop)
}
