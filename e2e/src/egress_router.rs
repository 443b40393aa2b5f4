//! The environment of egress-router: a pod with a static egress address, in network namespaces with packets.
//!
//! ```text
//!   203.0.113.9, .10  outside ── lan0 192.168.50.1/24 ── uplink0 .2/24  node  cluster0 10.244.1.1/24 ── eth0 .10, .11 …  pods
//!                                      (macvlans of the pods are here)   │ fabric0 10.1.0.1
//!                                                                        └── 10.1.0.2  node2  10.244.2.5 a pod there
//! ```
//!
//! A service (172.30.0.10) has the rules of kube-proxy: the node does DNAT to the pod on the other node. Traffic
//! from the pods' network to the outside is masqueraded. Everything has an IPv6 side, with the same structure.

mod caller;
mod pod;
mod state;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::netns::{Lab, Listener, Node, Port, Transport};

pub use caller::{CallOutput, Plugin, config};
pub use pod::Pod;

/// Two external hosts, for each family.
pub const OUTSIDE: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];
/// Another external host.
pub const ELSEWHERE: [&str; 2] = ["203.0.113.10", "2001:db8:9::10"];
/// The gateway of the LAN.
pub const GATEWAY: [&str; 2] = ["192.168.50.1", "2001:db8:50::1"];
/// The node, in the LAN: the address of the pods' master interface.
pub const NODE: [&str; 2] = ["192.168.50.2", "2001:db8:50::2"];
/// The node, in its pods' network.
pub const BRIDGE: [&str; 2] = ["10.244.1.1", "fd00:244:1::1"];
/// A pod on the other node.
pub const REMOTE: [&str; 2] = ["10.244.2.5", "fd00:244:2::5"];
/// The address of a service of which that pod is the endpoint.
pub const SERVICE: [&str; 2] = ["172.30.0.10", "fd00:172::10"];
/// The port that all of them listen on.
pub const PORT: u16 = 80;
/// The node's interface in the LAN.
pub const UPLINK: &str = "uplink0";

/// Outside, node, the other node, and their listeners.
#[derive(Debug)]
pub struct TestEnv {
    /// For further nodes and links.
    pub lab: Lab,
    /// The LAN's gateway, and the external hosts.
    pub outside: Node,
    /// The node with the pods and the plugin.
    pub node: Node,
    /// The node of the other pod.
    pub node2: Node,
    _listeners: Vec<Listener>,
}

impl TestEnv {
    /// An environment without pods.
    ///
    /// # Errors
    /// As [`Lab::new`], or when the node's nf_tables lacks NAT.
    pub fn new() -> Result<Self> {
        let lab = Lab::new()?;
        let (outside, node, node2) = (lab.node("outside")?, lab.node("node")?, lab.node("node2")?);
        // A router resolves IPv6 neighbours with its link-local address, which nodes of a lab do not have by default.
        let lan = ["192.168.50.1/24", "2001:db8:50::1/64 nodad", "fe80::1/64 nodad"];
        let uplink = ["192.168.50.2/24", "2001:db8:50::2/64 nodad", "fe80::2/64 nodad"];
        let fabric = ["10.1.0.1/24", "fd00:1::1/64 nodad", "fe80::1/64 nodad"];
        let fabric2 = ["10.1.0.2/24", "fd00:1::2/64 nodad", "fe80::2/64 nodad"];
        lab.link(Port::new(&outside, "lan0", &lan), Port::new(&node, UPLINK, &uplink))?;
        lab.link(Port::new(&node, "fabric0", &fabric), Port::new(&node2, "fabric0", &fabric2))?;
        for [v4, v6] in [OUTSIDE, ELSEWHERE] {
            outside.sh(&format!("ip addr add {v4}/32 dev lo; ip addr add {v6}/128 dev lo nodad"))?;
        }
        let [v4, v6] = REMOTE;
        node2.sh(&format!(
            "ip addr add {v4}/32 dev lo; ip addr add {v6}/128 dev lo nodad
             ip route add 10.244.1.0/24 via 10.1.0.1; ip route add fd00:244:1::/64 via fd00:1::1"
        ))?;
        node.sh(include_str!("egress_router/node.sh")).context("the node's side of the cluster")?;
        // The administrator's settings.
        let settings = json!({
            "clusterNetworks": ["10.244.0.0/16", "fd00:244::/32"],
            "serviceNetworks": ["172.30.0.0/16", "fd00:172::/32"],
        });
        node.write("/etc/cni/net.d/egress-router.d/settings.json", "0600", &settings.to_string())?;
        let mut listeners = Vec::new();
        for (at, addresses) in [
            (&outside, OUTSIDE),
            (&outside, ELSEWHERE),
            (&outside, GATEWAY),
            (&node, NODE),
            (&node, BRIDGE),
            (&node2, REMOTE),
        ] {
            for address in addresses {
                listeners.push(at.start_listening(Transport::Tcp, address, PORT)?);
            }
        }
        for listener in &listeners {
            listener.wait()?;
        }
        Ok(Self { lab, outside, node, node2, _listeners: listeners })
    }

    /// A new pod whose interface is called `eth0`, with both families.
    ///
    /// # Errors
    /// When there are more than 200.
    pub fn pod(&self, name: &str) -> Result<Pod> {
        Pod::start(self, name, "eth0")
    }

    /// The same, with an interface of that name.
    ///
    /// # Errors
    /// As [`TestEnv::pod`].
    pub fn pod_with(&self, name: &str, interface: &str) -> Result<Pod> {
        Pod::start(self, name, interface)
    }

    /// A pod without an interface: `addresses` are empty.
    ///
    /// # Errors
    /// As [`Lab::node`].
    pub fn bare_pod(&self, name: &str) -> Result<Pod> {
        Pod::bare(self, name)
    }

    /// A second network interface of the node, `uplink1` (192.168.60.2/24), in another LAN whose gateway is 192.168.60.1.
    ///
    /// # Errors
    /// It already exists.
    pub fn second_uplink(&self) -> Result<()> {
        self.lab.link(
            Port::new(
                &self.outside,
                "lan1",
                &["192.168.60.1/24", "2001:db8:60::1/64 nodad", "fe80::1/64 nodad"],
            ),
            Port::new(
                &self.node,
                "uplink1",
                &["192.168.60.2/24", "2001:db8:60::2/64 nodad", "fe80::2/64 nodad"],
            ),
        )
    }
}

/// The plugin that was built with this program, or the one that `EGRESS_ROUTER` names.
///
/// # Errors
/// It cannot be built; the compiler's reason is on standard error.
pub fn plugin() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("EGRESS_ROUTER").filter(|program| !program.is_empty()) {
        return Ok(program.into());
    }
    crate::program::built("egress-router")
}

/// A program of Debian's containernetworking-plugins.
///
/// # Errors
/// It is not installed.
pub fn debian(name: &str) -> Result<PathBuf> {
    let path = PathBuf::from("/usr/lib/cni").join(name);
    ensure!(
        path.is_file(),
        "{} is not there; the Debian package is: containernetworking-plugins",
        path.display()
    );
    Ok(path)
}
