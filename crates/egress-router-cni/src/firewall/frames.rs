//! Frames of packet sockets (AF_PACKET): a program with CAP_NET_RAW makes them, with any addresses, and no hook of family inet is called for
//! them. The egress hook of the attachment's interface applies the same allow-list.
//!
//! There is no connection tracking in this hook, so packets of the kernel's own IP stack, which have been filtered, are accepted: they have a
//! route. A packet's mark would not do, because CAP_NET_RAW allows to set it.

use common::netlink::address::octets;
use common::netlink::nftables::{Chain, ChainType, Family, Hook, Rule, Set, interval};

use super::Firewall;
use crate::names;
use crate::nftables::Ruleset;

/// ETH_P_ARP, and the offset of the sender's protocol address (RFC 826).
const ARP: (u16, u32) = (0x0806, 14);
/// ETH_P_IP, and the offsets of the source and the destination address (RFC 791).
const IPV4: (u16, u32, u32) = (0x0800, 12, 16);
/// ETH_P_IPV6, and the same offsets (RFC 8200).
const IPV6: (u16, u32, u32) = (0x86dd, 8, 24);

/// The table of family netdev, if there is an allow-list.
pub(super) fn ruleset(firewall: &Firewall) -> Option<Ruleset> {
    let allowed = firewall.destinations.allowed.as_ref()?;
    let mut rules = vec![Rule::new().comment("filtered by the kernel's IP stack").routed().accept()];
    let own = |ipv6: bool| firewall.of_family(ipv6).map(octets);
    // The kernel's own ARP, too, has no route.
    rules.extend(
        own(false).map(|own| Rule::new().comment("ARP of an own address").frame(ARP.0, ARP.1, own).accept()),
    );
    let mut sets = Vec::new();
    for (name, ipv6, (kind, source, destination)) in [("allowed4", false, IPV4), ("allowed6", true, IPV6)] {
        let elements = interval::bounds(ipv6, allowed);
        if !elements.is_empty() {
            rules.extend(own(ipv6).map(|own| {
                Rule::new()
                    .comment("in the allow-list")
                    .frame(kind, source, own)
                    .frame_in(destination, ipv6, name)
                    .accept()
            }));
            sets.push((Set::networks(name, ipv6), elements));
        }
    }
    rules.push(Rule::new().comment("not in the allow-list").drop());
    let egress = Chain::base("egress", ChainType::Filter, Hook::Egress, super::forward::FILTER);
    Some(Ruleset {
        family: Family::Netdev,
        table: names::table(&firewall.interface),
        sets,
        chains: vec![(egress.device(firewall.interface.as_str()), rules)],
    })
}
