//! The content of the nf_tables table.
//!
//! Marks of packets select a routing table: that of a VIP's gateway, or that of pods on other nodes. Bits of a connection's mark remember
//! that it arrived from the tunnel, that it left through it, or that this node has translated it from a VIP. The chain of hook
//! postrouting drops everything of a bound pod that would leave with another address than its VIP, whatever the other chains did.

mod chains;
mod gateway;

use std::net::Ipv4Addr;

use common::netlink::nftables::{Chain, DataType, Element, Rule, Set, Verdict, interval};
use ipnet::{IpNet, Ipv4Net};

use super::mark_of;
use super::table::Table;
use crate::agent::datapath::{Datapath, VipPath};
use crate::agent::vxlan::Config;

/// Networks that no packet reaches through a gateway: link-local (metadata services of clouds, node-local DNS) and multicast.
const NEVER_OUTSIDE: [Ipv4Net; 2] = [
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),
];

/// The table of a node.
#[must_use]
pub fn table(datapath: &Datapath, config: &Config) -> Table {
    let mut table = Table::default();
    sets(&mut table, datapath);
    chains::add(&mut table, config, datapath.node.candidate);
    if datapath.node.candidate {
        gateway::add(&mut table, datapath, config);
    }
    for path in datapath.vips.values() {
        let rule = match mark_of(path.tun_id, config.mark_mask) {
            Some(mark) => Rule::new().set_mark(mark, config.mark_mask),
            None => Rule::new().counter().drop(),
        };
        table.chain(Chain::regular(chain_of(path)), [rule]);
    }
    table
}

/// Sets and maps of every node.
fn sets(table: &mut Table, datapath: &Datapath) {
    let node = &datapath.node;
    let networks = &datapath.networks;
    let inside =
        networks.pods.iter().chain(&networks.services).chain(&networks.excluded).chain(&NEVER_OUTSIDE);
    let inside: Vec<IpNet> = inside.map(|net| IpNet::V4(*net)).collect();
    let addresses = |set: &str| Set::new(set, &[DataType::Ipv4]);
    let element = |address: &Ipv4Addr| Element::new(address.octets());
    table.set(Set::networks("inside", false), interval::bounds(false, &inside));
    let known: Vec<IpNet> = node.pod_cidrs.iter().map(|net| IpNet::V4(*net)).collect();
    table.set(Set::networks("pod-networks", false), interval::bounds(false, &known));
    table.set(addresses("nodes"), datapath.peers.keys().map(element));
    table.set(addresses("vips"), datapath.vips.keys().map(element));
    let local = datapath.own_pods();
    table.set(addresses("pods"), local.keys().map(element));
    table.set(
        addresses("unbound"),
        datapath.unbound_pods.iter().filter(|pod| !local.contains_key(pod)).map(element),
    );
    let bound = local
        .iter()
        .map(|(pod, bound)| Element::with_verdict(pod.octets(), Verdict::Goto(chain_of(bound.path))));
    table.set(Set::verdict_map("bound", &[DataType::Ipv4]), bound);
}

/// Name of the chain that sets the mark of a VIP.
fn chain_of(path: &VipPath) -> String {
    format!("vip-{}", path.tun_id)
}
