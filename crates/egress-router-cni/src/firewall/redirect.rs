//! Redirects: DNAT of connections that arrive on the primary interface, and SNAT of all packets that leave by the attachment to its address.

use std::net::IpAddr;

use common::netlink::nftables::expression::Direction;
use common::netlink::nftables::{Chain, ChainType, Hook, Rule};

use super::Firewall;
use crate::config::destinations::Redirect;
use crate::names;
use crate::nftables::Ruleset;

/// NF_IP_PRI_NAT_DST.
const DESTINATION: i32 = -100;
/// Destinations are translated, and routing comes next.
const TRANSLATED: i32 = -90;
/// NF_IP_PRI_NAT_SRC.
const SOURCE: i32 = 100;

/// Adds the chains.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let rules = dnat(firewall);
    if !rules.is_empty() {
        ruleset
            .chains
            .push((Chain::base("prerouting_dnat", ChainType::Nat, Hook::Prerouting, DESTINATION), rules));
        let (mark, mask) = mark(firewall);
        let out = Rule::new()
            .comment("redirected traffic leaves by the attachment")
            .ct_direction(Direction::Original)
            .ct_mark(mark, mask);
        let rules = vec![out.set_mark(mark, mask)];
        ruleset
            .chains
            .push((Chain::base("prerouting_route", ChainType::Filter, Hook::Prerouting, TRANSLATED), rules));
    }
    ruleset
        .chains
        .push((Chain::base("postrouting_snat", ChainType::Nat, Hook::Postrouting, SOURCE), snat(firewall)));
}

/// The conntrack mark, with its mask, of connections that this attachment redirects, and the fwmark of their packets in the
/// original direction. Addresses are ambiguous: two attachments may redirect to the same target.
pub(super) fn mark(firewall: &Firewall) -> (u32, u32) {
    (names::egress_mark(firewall.mark), names::EGRESS_MARK_MASK)
}

/// The redirects of families in which the attachment has an address: without one there is no address for SNAT.
pub(super) fn redirects(firewall: &Firewall) -> impl Iterator<Item = &Redirect> {
    firewall.destinations.redirects.iter().filter(|redirect| firewall.source(redirect.to.is_ipv6()).is_some())
}

/// Targets of all ports without a redirect, at most one per family.
pub(super) fn fallbacks(firewall: &Firewall) -> impl Iterator<Item = IpAddr> {
    firewall.destinations.fallbacks().filter(|address| firewall.source(address.is_ipv6()).is_some())
}

/// Whether there is any redirect.
pub(super) fn any(firewall: &Firewall) -> bool {
    firewall.destinations.targets().any(|to| firewall.source(to.is_ipv6()).is_some())
}

fn dnat(firewall: &Firewall) -> Vec<Rule> {
    let (mark, mask) = mark(firewall);
    let arriving = |comment: &str, ipv6: bool| {
        Some(Rule::new().comment(comment).iifname(firewall.primary_of(ipv6)?).family(ipv6))
    };
    let by_port = redirects(firewall).filter_map(|redirect| {
        let rule = arriving("redirect", redirect.to.is_ipv6())?
            .l4proto(redirect.protocol.number())
            .dport(redirect.port)
            .daddr_is_local()
            .set_ct_mark(mark, mask);
        Some(rule.dnat(redirect.to, redirect.to_port))
    });
    let rest = fallbacks(firewall).filter_map(|address| {
        let rule = arriving("redirect all other ports", address.is_ipv6())?.daddr_is_local();
        Some(rule.set_ct_mark(mark, mask).dnat(address, None))
    });
    by_port.chain(rest).collect()
}

fn snat(firewall: &Firewall) -> Vec<Rule> {
    let families = [false, true].into_iter().filter_map(|ipv6| Some((ipv6, firewall.source(ipv6)?)));
    let rules = families.map(|(ipv6, source)| {
        let rule =
            Rule::new().comment("snat to the attachment's address").oifname(&firewall.interface).family(ipv6);
        // Packets between neighbours have link-local addresses, which must not be translated.
        let rule = if ipv6 { rule.not_from_link_local() } else { rule };
        rule.saddr_not_in(firewall.of_family(ipv6)).snat(source)
    });
    rules.collect()
}
