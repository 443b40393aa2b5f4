//! The desired state of the kernel for a datapath.

pub mod ruleset;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::Config;
use crate::agent::datapath::{Datapath, VipRoute};
use crate::api::TunId;

/// State of the kernel without the nf_tables table, desired or observed, and without objects of other programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The VXLAN device.
    pub device: Device,
    /// MAC address of each node on the device, by the node's address.
    pub neighbours: BTreeMap<Ipv4Addr, [u8; 6]>,
    /// Node of each MAC address.
    pub forwarding: BTreeMap<[u8; 6], Ipv4Addr>,
    /// Policy rules: mark and routing table.
    pub rules: BTreeSet<Lookup>,
    /// Routes by table and destination.
    pub routes: BTreeMap<(u32, Ipv4Net), Next>,
    /// VIPs that cannot be programmed, and why. Packets of their pods to the outside are dropped.
    pub problems: Vec<String>,
}

/// The VXLAN device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// VXLAN network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Source address of the outer packets: the node's.
    pub local: Ipv4Addr,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
}

/// A policy rule: packets with this mark use this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lookup {
    /// Priority.
    pub priority: u32,
    /// The mark.
    pub mark: u32,
    /// The bits of the mark that are compared.
    pub mask: u32,
    /// The table.
    pub table: u32,
}

/// The next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// Another node, through the device.
    Via(Ipv4Addr),
    /// The lookup continues with the next rule: the packet leaves from this node.
    Throw,
    /// The packet is dropped.
    Blackhole,
}

/// Name of the VXLAN device.
pub const DEVICE: &str = "cgw0";

/// Bit of a connection's mark: its original direction arrived from the device.
pub const ARRIVED: u32 = 0x1000_0000;
/// Bit of a connection's mark: its original direction left through the device.
pub const LEFT: u32 = 0x2000_0000;
/// Bit of a connection's mark: this node has translated it from a VIP to a pod.
pub const TRANSLATED: u32 = 0x4000_0000;

/// Priority of the first policy rule; the VIPs' is the next one. Between the tables local (0) and main (32766).
const RULE_PRIORITY: u32 = 9900;

/// The device's settings below `net.ipv4.conf.<device>`, which vanish with it. The kernel refuses a packet from the device without them: its
/// source has its best route elsewhere, or is an address of this node (a VIP, or the node itself as the client of a VIP).
pub const SETTINGS: [(&str, u32); 2] = [("rp_filter", 2), ("accept_local", 1)];

/// The device's address, of scope link and the same on all nodes. A device without an address refuses packets whose source has its best
/// route elsewhere even with rp_filter=2 (`__fib_validate_source` in linux/net/ipv4/fib_frontend.c). No packet has it.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 99, 103);

/// Protocol number of the driver's routes and rules (RTPROT_*), unused by others in rt_protos.
pub const PROTOCOL: u8 = 103;

/// The first routing table. A VIP's table is this plus its tunnel ID; the first one itself has the pods on other nodes.
pub const TABLES: u32 = 0x6300_0000;

/// Whether a routing table is one of the driver's.
#[must_use]
pub fn is_own_table(table: u32) -> bool {
    (TABLES..=TABLES | TunId::MAX).contains(&table)
}

/// Bytes that VXLAN over IPv4 adds to a packet.
const HEADERS: u32 = 50;

/// The routing table of a VIP.
#[must_use]
pub fn table_of(tun_id: TunId) -> u32 {
    TABLES | tun_id.number()
}

/// The MAC address of a node's device: locally administered, `02:63` and the four octets of its address.
#[must_use]
pub fn mac_of(node: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = node.octets();
    [0x02, 0x63, a, b, c, d]
}

/// The largest tunnel ID that has a mark: all bits of `mask` are the mark of [`to_pods`].
#[must_use]
pub fn max_tun_id(mask: u32) -> u32 {
    let bits = mask.count_ones().min(u32::BITS - 1);
    (1_u32 << bits).saturating_sub(2)
}

/// The mark of packets that leave for the gateway of a VIP: the tunnel ID in the bits of `mask`. None above [`max_tun_id`].
#[must_use]
pub fn mark_of(tun_id: TunId, mask: u32) -> Option<u32> {
    if tun_id.number() > max_tun_id(mask) {
        return None;
    }
    let (mut mark, mut rest) = (0, tun_id.number());
    for bit in (0..u32::BITS).map(|place| 1_u32 << place).filter(|bit| mask & bit != 0) {
        if rest & 1 == 1 {
            mark |= bit;
        }
        rest >>= 1;
    }
    Some(mark)
}

/// The mark of packets that a gateway sends to pods on other nodes.
#[must_use]
pub fn to_pods(mask: u32) -> u32 {
    mask
}

/// The desired state of the kernel without the table, which is that of [`ruleset::table`]. `link_mtu` is the MTU of the link that has the
/// node's address, in bytes.
#[must_use]
pub fn plan(datapath: &Datapath, config: &Config, link_mtu: u32) -> Kernel {
    let node = &datapath.node;
    let device = Device {
        name: DEVICE.to_owned(),
        vni: config.vni,
        port: config.port,
        local: node.ip,
        mac: mac_of(node.ip),
        mtu: config.mtu.unwrap_or_else(|| link_mtu.saturating_sub(HEADERS)),
    };
    // A gateway sends to every node. Other nodes send to candidates only.
    let peers = datapath.peers.iter().filter(|(_, peer)| node.candidate || peer.candidate);
    let neighbours: BTreeMap<_, _> = peers.map(|(ip, _)| (*ip, mac_of(*ip))).collect();
    let mut kernel = Kernel {
        device,
        forwarding: neighbours.iter().map(|(ip, mac)| (*mac, *ip)).collect(),
        neighbours,
        rules: BTreeSet::new(),
        routes: BTreeMap::new(),
        problems: Vec::new(),
    };
    if node.candidate {
        kernel.route_to_pods(datapath, config);
    }
    for (vip, path) in &datapath.vips {
        let Some(mark) = mark_of(path.tun_id, config.mark_mask) else {
            let cause =
                format!("its tunnel ID {} does not fit the mark mask {:#x}", path.tun_id, config.mark_mask);
            kernel.problems.push(format!("VIP {vip}: {cause}"));
            continue;
        };
        let table = table_of(path.tun_id);
        let priority = RULE_PRIORITY + 1;
        kernel.rules.insert(Lookup { priority, mark, mask: config.mark_mask, table });
        let next = kernel.to_gateway(path.route).unwrap_or_else(|cause| {
            kernel.problems.push(format!("VIP {vip}: {cause}"));
            Next::Blackhole
        });
        kernel.routes.insert((table, Ipv4Net::default()), next);
    }
    kernel
}

impl Kernel {
    /// The next hop to the gateway of a VIP, or why there is none.
    fn to_gateway(&self, route: VipRoute) -> Result<Next, String> {
        match route {
            VipRoute::Local => Ok(Next::Throw),
            VipRoute::Drop => Ok(Next::Blackhole),
            VipRoute::Remote { node_ip, tun_mac } => {
                let is_known = self.neighbours.get(&node_ip) == Some(&tun_mac.octets());
                is_known.then_some(Next::Via(node_ip)).ok_or_else(|| {
                    format!("its gateway {node_ip} with the MAC address {tun_mac} is no candidate's")
                })
            }
        }
    }

    /// The routes that differ because VIPs of `old`, which this state was planned for, have other gateways in `new`. A VIP that needs other
    /// changes too has none.
    #[must_use]
    pub fn moved(&self, old: &Datapath, new: &Datapath) -> Vec<((u32, Ipv4Net), Next)> {
        let moved = new.vips.iter().filter_map(|(vip, path)| {
            let before = old.vips.get(vip)?;
            let key = (table_of(path.tun_id), Ipv4Net::default());
            let is_same = before.tun_id == path.tun_id && self.routes.contains_key(&key);
            let next = self.to_gateway(path.route).ok()?;
            (is_same && before.route != path.route).then_some((key, next))
        });
        moved.collect()
    }

    /// The pods that a gateway sends to, on other nodes.
    fn route_to_pods(&mut self, datapath: &Datapath, config: &Config) {
        let (mark, mask) = (to_pods(config.mark_mask), config.mark_mask);
        self.rules.insert(Lookup { priority: RULE_PRIORITY, mark, mask, table: TABLES });
        for (pod, bound) in datapath.bound_pods() {
            if self.neighbours.contains_key(&bound.node) {
                self.routes.insert((TABLES, Ipv4Net::from(pod)), Next::Via(bound.node));
            }
        }
    }
}

#[cfg(test)]
mod tests;
