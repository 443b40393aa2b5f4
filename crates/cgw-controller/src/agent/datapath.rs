//! The desired datapath of one node. A driver turns it into routes and nf_tables, or into flows and iptables. IPv4 only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
    time::Duration,
};

use ipnet::Ipv4Net;
use serde::Serialize;

use crate::api::{TunId, TunMac};

/// The whole desired datapath of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datapath {
    /// This node.
    pub node: Node,
    /// All other nodes by main address.
    pub peers: BTreeMap<Ipv4Addr, Peer>,
    /// Networks of the cluster.
    pub networks: Networks,
    /// The bound VIPs.
    pub vips: BTreeMap<Ipv4Addr, VipPath>,
    /// Addresses of pods on this node that the agent has read and that are not bound. A packet to the outside from another
    /// address of the node's pod networks is dropped: its pod may be bound.
    pub unbound_pods: BTreeSet<Ipv4Addr>,
}

impl Datapath {
    /// The bound pods of all nodes by address. A pod has one VIP: the first one.
    #[must_use]
    pub fn bound_pods(&self) -> BTreeMap<Ipv4Addr, Bound<'_>> {
        let mut pods = BTreeMap::new();
        for (vip, path) in &self.vips {
            for (pod, bound) in &path.pods {
                pods.entry(*pod).or_insert(Bound { vip: *vip, path, node: bound.node_ip });
            }
        }
        pods
    }

    /// The bound pods of this node.
    #[must_use]
    pub fn own_pods(&self) -> BTreeMap<Ipv4Addr, Bound<'_>> {
        let mut pods = self.bound_pods();
        pods.retain(|_, bound| bound.node == self.node.ip);
        pods
    }

    /// Every port of a VIP once: that of the first Service.
    pub fn ports(&self) -> impl Iterator<Item = (Ipv4Addr, &ServicePort)> {
        let mut seen = BTreeSet::new();
        let ports = self.vips.iter().flat_map(|(vip, path)| path.ports.iter().map(|port| (*vip, port)));
        ports.filter(move |(vip, port)| seen.insert((*vip, port.protocol, port.port)))
    }
}

/// A bound pod with its VIP.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// Its VIP.
    pub vip: Ipv4Addr,
    /// The path of its VIP.
    pub path: &'a VipPath,
    /// Main address of its node.
    pub node: Ipv4Addr,
}

/// The node that the agent runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the Node.
    pub name: String,
    /// Its InternalIP.
    pub ip: Ipv4Addr,
    /// Networks that have all its pods: `spec.podCIDRs`, or the cluster's where the CNI does not use them. Empty if neither has: then
    /// packets of unknown pods are not dropped.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// Whether it may become the gateway of a VIP (label `cgw-controller.perimeter.dev/gateway`): DNAT and SNAT of all VIPs are
    /// programmed before it does.
    pub candidate: bool,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the Node.
    pub name: String,
    /// Whether it may become the gateway of a VIP.
    pub candidate: bool,
}

/// Networks of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// Pod networks. A packet between two of their addresses never leaves the cluster.
    pub pods: Vec<Ipv4Net>,
    /// Service networks (ClusterIP).
    pub services: Vec<Ipv4Net>,
    /// Destinations that bound pods reach with the address that the CNI gives them: nodes, and what the user excludes.
    pub excluded: Vec<Ipv4Net>,
}

/// The datapath of one VIP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipPath {
    /// The binding's number.
    pub tun_id: TunId,
    /// The gateway.
    pub route: VipRoute,
    /// Pods that leave the cluster with this VIP, of all nodes, by address.
    pub pods: BTreeMap<Ipv4Addr, BoundPod>,
    /// Ports of the Services that carry the VIP.
    pub ports: Vec<ServicePort>,
}

/// Where packets of bound pods go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum VipRoute {
    /// No usable gateway is known: packets to the outside are dropped.
    Drop,
    /// This node is the gateway.
    Local,
    /// Another node is the gateway.
    Remote {
        /// Its main address: one of [`Datapath::peers`], and a candidate.
        #[serde(rename = "nodeIP")]
        node_ip: Ipv4Addr,
        /// MAC address of its tunnel interface.
        #[serde(rename = "tunMAC")]
        tun_mac: TunMac,
    },
}

/// A pod behind a bound Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPod {
    /// `namespace/name`.
    pub name: String,
    /// Main address of its node: this node's or one of [`Datapath::peers`].
    pub node_ip: Ipv4Addr,
}

/// A port of a Service that carries a VIP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// `namespace/name` of the Service.
    pub service: String,
    /// Name of the port; may be empty.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port of the VIP.
    pub port: u16,
    /// Address and port of each ready pod, in ascending order. All nodes choose the same one for a connection.
    pub backends: Vec<(Ipv4Addr, u16)>,
    /// `sessionAffinity: ClientIP`, with its timeout.
    pub affinity: Option<Duration>,
    /// Disjoint networks with the clients that may open connections, see [`ServicePort::admits`]. None: all clients.
    pub sources: Option<Vec<Ipv4Net>>,
}

impl ServicePort {
    /// Whether a client may open connections: `source` is its address, that of a bound pod its VIP.
    #[must_use]
    pub fn admits(&self, source: Ipv4Addr) -> bool {
        self.sources.as_ref().is_none_or(|networks| networks.iter().any(|network| network.contains(&source)))
    }
}

/// Transport protocol of a Service's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

impl Protocol {
    /// Number of the protocol in an IP header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    /// Its name, as iptables has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

/// As a Service has it.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_ascii_uppercase())
    }
}
