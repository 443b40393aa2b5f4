//! Decides the datapath of one node. Pure.
//!
//! ```text
//!   nodes ── bindings ── pods ── ports ── Datapath
//! ```
//!
//! * A Service counts only if a binding of the store admits it. A Service that is not admitted changes nothing.
//! * A pod of an admitted Service never leaves with the address of its node: it is bound, or, where its VIP cannot be used, neither
//!   bound nor unbound, so that its packets to the outside are dropped.
//! * The result depends neither on the order of the input nor on the node, except for the parts that are the node's own.

mod bindings;
mod nodes;
mod pods;
mod ports;
pub mod problem;

use std::{collections::BTreeMap, net::Ipv4Addr};

use common::cache::ObjectKey;
use ipnet::Ipv4Net;

use super::{
    datapath::{Datapath, VipPath},
    snapshot::Snapshot,
    vxlan::plan::mac_of,
};
use crate::api::TunMac;
pub use bindings::{Admitted, Bindings, Path};
pub use nodes::Nodes;
pub use pods::{Pods, Selected, Selection};
use problem::{Problems, Reason};

/// The part of the configuration that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Pod networks. Empty: the `spec.podCIDRs` of all Nodes.
    pub cluster_cidrs: Vec<Ipv4Net>,
    /// Networks of ClusterIPs.
    pub service_cidrs: Vec<Ipv4Net>,
    /// Destinations that bound pods reach with the address that the CNI gives them, besides the nodes.
    pub exclude_cidrs: Vec<Ipv4Net>,
    /// The MAC address that a gateway must have.
    pub mac_rule: MacRule,
    /// The largest tunnel ID that the driver can program.
    pub max_tun_id: u32,
    /// The store `binds`.
    pub store: ObjectKey,
}

/// The MAC address that a gateway must have in the annotation `tun-mac`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacRule {
    /// The one that driver vxlan derives from the node's address, see [`mac_of`].
    Derived,
    /// Any: the MAC address of the tunnel interface is not known before the keeper reports it.
    Annotated,
}

impl MacRule {
    /// Whether a gateway with this address may have this MAC address.
    #[must_use]
    pub fn admits(self, node_ip: Ipv4Addr, mac: TunMac) -> bool {
        match self {
            MacRule::Derived => mac.octets() == mac_of(node_ip),
            MacRule::Annotated => true,
        }
    }
}

/// The decision for one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The desired datapath. None: it is unknown, and the datapath of the node stays as it is.
    pub datapath: Option<Datapath>,
    /// Problems that a person should know, sorted.
    pub problems: Vec<common::plan::Problem<Reason>>,
}

/// Decides the datapath of the node [`Snapshot::node`].
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot) -> Decision {
    let mut problems = Problems::new(config);
    let datapath = datapath(config, snapshot, &mut problems);
    Decision { datapath, problems: problems.sorted() }
}

fn datapath(config: &Config, snapshot: &Snapshot, problems: &mut Problems<'_>) -> Option<Datapath> {
    let nodes = Nodes::read(config, snapshot, problems);
    let Some(store) = &snapshot.store else {
        problems.node(snapshot, Reason::NoStore { service: config.store.to_string() });
        return None;
    };
    let nodes = nodes?;
    let bindings = Bindings::read(config, snapshot, store, &nodes, problems);
    let pods = Pods::assign(&bindings, snapshot, &nodes, problems);
    let mut ports = ports::by_vip(&bindings, &pods, problems);
    let mut vips: BTreeMap<Ipv4Addr, VipPath> = BTreeMap::new();
    for (vip, path) in &bindings.paths {
        let ports = ports.remove(vip).unwrap_or_default();
        vips.insert(*vip, VipPath { tun_id: path.tun_id, route: path.route, pods: BTreeMap::new(), ports });
    }
    for (address, (vip, pod)) in pods.bound {
        if let Some(path) = vips.get_mut(&vip) {
            path.pods.insert(address, pod);
        }
    }
    let pod_cidrs = nodes.networks_of_pods(snapshot, problems);
    Some(Datapath {
        node: super::datapath::Node { pod_cidrs, ..nodes.own },
        peers: nodes.peers,
        networks: nodes.networks,
        vips,
        unbound_pods: pods.unbound,
    })
}

#[cfg(test)]
pub(super) mod tests;
