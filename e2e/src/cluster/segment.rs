//! An additional network: each node has an interface in it, and its gateway routes to the Internet. Unlike servers in the private network,
//! its hosts are neighbours on layer 2.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Cluster, Network};

/// The nodes' interface in it.
pub const SEGMENT_INTERFACE: &str = "eth1";
/// Its gateway. `node-1` is 198.18.50.11 and so on; the rest of the /24 is free.
pub const SEGMENT_GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 50, 1);
const SWITCH: &str = "segment";

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
        for node in self.nodes() {
            let port = format!("{}.s", node.name());
            let there = format!("/proc/{}/ns/net", node.pid()?);
            ip(&internet, &format!("link add {port} type veth peer name {SEGMENT_INTERFACE} netns {there}"))?;
            ip(&internet, &format!("link set {port} master {SWITCH} up"))?;
            let (network, last) = (node.network()?, 10 + node.number()?);
            ip(&network, &format!("address add 198.18.50.{last}/24 dev {SEGMENT_INTERFACE}"))?;
            ip(&network, &format!("link set {SEGMENT_INTERFACE} up"))?;
        }
        Ok(())
    }
}

/// ip(8) of this machine, in the network of another.
fn ip(network: &Network, arguments: &str) -> Result<()> {
    let arguments = arguments.to_owned();
    network.within(move || {
        let output = Command::new("ip").args(arguments.split(' ')).output().context("ip")?;
        ensure!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    })
}
