//! A pod's sandbox when a secondary plugin is called: one interface, routes, and a named network namespace.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use super::{BRIDGE, TestEnv};
use crate::netns::{Node, Port};

/// First host number of pods in their node's network.
const FIRST: u32 = 10;

/// A pod of the node.
#[derive(Debug)]
pub struct Pod {
    /// Its namespaces.
    pub inside: Node,
    /// Its address in the pods' network, of either family.
    pub addresses: [String; 2],
    /// The interface with that address.
    pub interface: String,
    /// `CNI_NETNS`: a path on the node.
    pub netns: String,
}

impl Pod {
    pub(super) fn start(env: &TestEnv, name: &str, interface: &str) -> Result<Self> {
        static PODS: AtomicU32 = AtomicU32::new(0);
        // Unique in this process, and therefore in each environment.
        let number = FIRST + PODS.fetch_add(1, Ordering::Relaxed) % 200;
        let inside = env.lab.node(name)?;
        let addresses = [format!("10.244.1.{number}"), format!("fd00:244:1::{number:x}")];
        let [v4, v6] = [format!("{}/24", addresses[0]), format!("{}/64 nodad", addresses[1])];
        // With link-local addresses, as on a normal node.
        let ipv6 = "/proc/sys/net/ipv6/conf/default";
        inside.sh(&format!("echo 0 >{ipv6}/addr_gen_mode; echo 0 >{ipv6}/accept_dad"))?;
        let cable = format!("veth{number}");
        env.lab.link(Port::new(&env.node, &cable, &[]), Port::new(&inside, interface, &[&v4, &v6]))?;
        let netns = format!("/run/netns/{name}");
        env.node.sh(&format!("ip link set {cable} master cluster0"))?;
        keep(env, &inside, &netns)?;
        inside.sh(&format!(
            "ip route add default via {}; ip -6 route add default via {}; echo 1 >{ipv6}/accept_dad",
            BRIDGE[0], BRIDGE[1]
        ))?;
        env.node.sh("until ip link show cluster0 | grep -q 'state UP'; do sleep 0.01; done")?;
        inside.sh(&format!("until ip -6 -o addr show dev {interface} scope link | grep -v tentative | grep -q fe80; do sleep 0.01; done"))?;
        Ok(Self { inside, addresses, interface: interface.to_owned(), netns })
    }

    /// A sandbox without an interface, for a complete list of plugins.
    pub(super) fn bare(env: &TestEnv, name: &str) -> Result<Self> {
        let inside = env.lab.node(name)?;
        let netns = format!("/run/netns/{name}");
        keep(env, &inside, &netns)?;
        Ok(Self { inside, addresses: Default::default(), interface: "eth0".to_owned(), netns })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.inside.name()
    }
}

/// Binds the namespace to its path, like a container runtime, so that it exists without processes.
fn keep(env: &TestEnv, inside: &Node, netns: &str) -> Result<()> {
    env.node.sh(&format!("touch {netns}; mount --bind /proc/{}/ns/net {netns}", inside.pid())).map(drop)
}
