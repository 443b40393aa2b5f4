//! A private network and the Internet, like those of Hetzner's servers.
//!
//! ```text
//!   203.0.113.9  internet ── eth0 (public /32, gateway 172.31.1.1)     server …
//!                                                                        │ ens10 (private /32)
//!                router   ── first address of the range, on each cable ──┘
//! ```
//!
//! Each server has its own link to both sides and no neighbours except the router: traffic between servers goes through the router, and all
//! other traffic follows the router's default route.

use anyhow::Context;

use super::{Iptables, Lab, Listener, Node, Port};

/// Range of the private network.
const RANGE: &str = "10.0.0.0/16";
/// Its first address: the router.
const ROUTER: &str = "10.0.0.1";
/// The gateway of each public interface.
const UPLINK: &str = "172.31.1.1";
/// A host in the Internet.
const HOST: &str = "203.0.113.9";
/// The port that it listens on.
const PORT: u16 = 80;

/// Internet, router and the servers between them.
#[derive(Debug)]
pub struct PrivateNetwork {
    /// For further nodes and links.
    pub lab: Lab,
    /// Has [`PrivateNetwork::host`], and does not forward.
    pub internet: Node,
    /// The private network itself.
    pub router: Node,
    _listener: Listener,
}

/// A server: `ens10` is its private interface, `eth0` its public one if it has one.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its node.
    pub node: Node,
    /// Its address in the private network.
    pub private_ip: String,
}

impl PrivateNetwork {
    /// A network without servers.
    ///
    /// # Errors
    /// As [`Lab::new`].
    pub fn new() -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let (internet, router) = (lab.node("internet")?, lab.node("router")?);
        internet.sh(&format!("ip addr add {HOST}/32 dev lo"))?;
        router.sh("echo 1 >/proc/sys/net/ipv4/ip_forward")?;
        let _listener = internet.listen(HOST, PORT)?;
        Ok(Self { lab, internet, router, _listener })
    }

    /// Range of the network.
    pub fn range(&self) -> &'static str {
        RANGE
    }

    /// First address of the range: the router.
    pub fn gateway(&self) -> &'static str {
        ROUTER
    }

    /// The host in the Internet.
    pub fn host(&self) -> &'static str {
        HOST
    }

    /// A new server. It filters and forwards like a stock Node with Docker or ufw: strict rp_filter, no forwarding,
    /// policy DROP for FORWARD, `iptables` of `kind`.
    ///
    /// # Errors
    /// When `kind` is not available, or an address is wrong.
    pub fn server(
        &self,
        name: &str,
        kind: Iptables,
        private_ip: &str,
        public_ip: Option<&str>,
    ) -> anyhow::Result<Server> {
        let node = self.lab.node(name)?;
        node.use_iptables(kind)?;
        // New interfaces have the value of `default`.
        node.sh("for i in all default; do echo 1 >/proc/sys/net/ipv4/conf/$i/rp_filter; done; iptables -P FORWARD DROP")?;
        let own = format!("{private_ip}/32");
        let gateway = format!("{ROUTER}/32");
        self.lab.link(Port::new(&node, "ens10", &[&own]), Port::new(&self.router, name, &[&gateway]))?;
        self.router.sh(&format!("ip route add {private_ip}/32 dev {name}"))?;
        node.sh(&format!("ip route add {ROUTER} dev ens10; ip route add {RANGE} via {ROUTER} dev ens10"))?;
        if let Some(public_ip) = public_ip {
            let own = format!("{public_ip}/32");
            let gateway = format!("{UPLINK}/32");
            self.lab.link(Port::new(&node, "eth0", &[&own]), Port::new(&self.internet, name, &[&gateway]))?;
            self.internet.sh(&format!("ip route add {public_ip}/32 dev {name}"))?;
            node.sh(&format!(
                "ip route add {UPLINK} dev eth0; ip route add default via {UPLINK} dev eth0 src {public_ip}"
            ))?;
        }
        Ok(Server { node, private_ip: private_ip.to_owned() })
    }

    /// Sets the cloud's default route to `server`.
    ///
    /// # Errors
    /// When the server is not in this network.
    pub fn route_default_to(&self, server: &Server) -> anyhow::Result<()> {
        let (address, cable) = (&server.private_ip, server.node.name());
        self.router
            .sh(&format!("ip route replace default via {address} dev {cable} onlink"))
            .context("the route was not accepted")
            .map(drop)
    }

    /// Assigns a floating IP: the Internet routes it to `server`.
    ///
    /// # Errors
    /// The server has no public interface.
    pub fn assign(&self, floating_ip: &str, server: &Server) -> anyhow::Result<()> {
        let cable = server.node.name();
        self.internet
            .sh(&format!("ip route replace {floating_ip}/32 dev {cable}"))
            .context("the floating IP was not assigned")
            .map(drop)
    }

    /// The source address of a connection from `node` at the host; `None` without a connection.
    ///
    /// # Errors
    /// As [`Node::seen_by`].
    pub fn sees(&self, node: &Node) -> anyhow::Result<Option<String>> {
        node.seen_by(HOST, PORT)
    }

    /// Waits until the host sees the source address `expected` from `node`.
    ///
    /// # Errors
    /// As [`Node::wait_seen_as`].
    pub fn wait_sees(&self, node: &Node, expected: &str) -> anyhow::Result<()> {
        node.wait_seen_as(expected, HOST, PORT)
    }
}
