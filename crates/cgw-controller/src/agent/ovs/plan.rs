//! The desired flows, chains and sysctls of a node. Pure: from the datapath and the facts about the node's bridge.
//!
//! Every node has the flows of its own bound pods and of all VIPs, and the guards of the table mangle. Gateway candidates also have
//! DNAT and SNAT of all VIPs, and compare the sources of ports with `loadBalancerSourceRanges`, so a change of a gateway changes flows only.

mod chains;
mod flows;
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use clap::ValueEnum;

use crate::agent::datapath::{Datapath, Networks};

pub use self::{chains::rules, flows::flows};

/// The program that translates the destination of packets to a VIP. With kube-proxy, the driver sets the marks only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PortMode {
    /// This one
    Own,
    /// kube-proxy, which knows the VIP from the Service's status or externalIPs
    KubeProxy,
}

/// After SNAT the kernel asks for a pod's MAC address with the VIP as the sender, and openshift-sdn drops every ARP packet of tun0 with
/// another sender than the address of tun0.
pub const ARP_ANNOUNCE: (&str, &str) = ("net/ipv4/conf/tun0/arp_announce", "2");

/// Values of files below `/proc/sys`.
#[must_use]
pub fn sysctls(datapath: &Datapath) -> BTreeMap<&'static str, &'static str> {
    if !datapath.node.candidate {
        return BTreeMap::new();
    }
    BTreeMap::from([ARP_ANNOUNCE, ("net/ipv4/ip_forward", "1")])
}

/// The pods whose SNAT address on a gateway candidate has changed. nat translates only the first packet of a connection, so the others
/// would leave with the address of the node, or with a VIP that another tenant may have by now.
#[must_use]
pub fn with_other_snat(old: &Datapath, new: &Datapath) -> BTreeSet<Ipv4Addr> {
    if !old.node.candidate {
        return BTreeSet::new();
    }
    let (before, after) = (vip_by_pod(old), vip_by_pod(new));
    let known = before.keys().chain(&old.unbound_pods).copied();
    known.filter(|pod| before.get(pod) != after.get(pod)).collect()
}

/// The same without an earlier datapath, after a start: whether a connection of a pod, of this source and destination, has another SNAT address
/// than a new one would have. Connections with the address of the node stay, if the pod is not bound.
pub fn has_other_snat(new: &Datapath) -> impl Fn((Ipv4Addr, Ipv4Addr), Ipv4Addr) -> bool {
    let Networks { pods, services, excluded } = &new.networks;
    let is_inside = move |address: Ipv4Addr| {
        [pods, services, excluded].into_iter().flatten().any(|net| net.contains(&address))
    };
    let vips = vip_by_pod(new);
    move |(source, destination), snat| {
        let is_translated = new.node.candidate && snat != source;
        is_translated
            && match vips.get(&source) {
                Some(vip) => snat != *vip && !is_inside(destination),
                None => new.vips.contains_key(&snat) && pods.iter().any(|net| net.contains(&source)),
            }
    }
}

/// The VIP of each bound pod.
fn vip_by_pod(datapath: &Datapath) -> BTreeMap<Ipv4Addr, Ipv4Addr> {
    datapath.bound_pods().into_iter().map(|(pod, bound)| (pod, bound.vip)).collect()
}

#[cfg(test)]
mod tests;
