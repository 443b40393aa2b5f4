//! The allow-list: which destinations the pod's local programs may reach through the attachment.
//!
//! Replies pass, but only of connections that arrived on the attachment, which its prerouting chain marks. A program can make conntrack take
//! its own packets for replies: it sends a packet to itself, over the loopback, from the address that it wants to reach. That needs a raw
//! socket, and in IPv6 nothing (IPV6_FREEBIND).
//!
//! The output hook decides first, because only there a packet can be rejected with an error. The postrouting hook decides again, for the
//! interface by which the packet leaves: between them the kernel translates replies that a program makes, from the attachment's address back to
//! any address that SNAT or DNAT has replaced, and routes them again.

use std::net::Ipv6Addr;

use common::netlink::nftables::expression::{Direction, Reject};
use common::netlink::nftables::rule::inet::{ICMP, ICMPV6};
use common::netlink::nftables::rule::{STATE_RELATED, STATUS_DNAT};
use common::netlink::nftables::{Chain, ChainType, DataType, Element, Hook, Rule, Set, interval};
use ipnet::{IpNet, Ipv6Net};

use super::forward::FILTER;
use super::reply_direction::MANGLE;
use super::{Firewall, redirect};
use crate::names::{EGRESS_MARK_MASK, MARK_MASK};
use crate::nftables::Ruleset;

/// ICMPv6 that a link needs: multicast listener reports and done messages (131, 132, 143), router solicitation
/// (133), neighbour solicitation and advertisement (135, 136). They are outside of connection tracking.
const DISCOVERY: [u8; 6] = [131, 132, 133, 135, 136, 143];
/// Link-local addresses and groups, which no router forwards to (RFC 4291, 2.4): with the attachment's networks, the destinations of
/// [`DISCOVERY`]. A program with a raw socket may send any bytes as such a message.
const LINK_LOCAL: [Ipv6Net; 2] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    Ipv6Net::new_assert(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0), 16),
];

/// Adds the chains and sets, if there is a list.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let Some(allowed) = &firewall.destinations.allowed else { return };
    let (mark, mask) = redirect::mark(firewall);
    let arrived = Rule::new()
        .comment("arrived on the attachment")
        .iifname(&firewall.interface)
        .ct_direction(Direction::Original);
    let arrived = vec![arrived.set_ct_mark(mark, mask)];
    ruleset
        .chains
        .push((Chain::base("prerouting_arrived", ChainType::Filter, Hook::Prerouting, MANGLE), arrived));
    // Errors only: a helper's expected connections are related as well, and may go anywhere.
    let error = |protocol| {
        Rule::new().comment("ICMP errors of its connections").l4proto(protocol).ct_state(STATE_RELATED)
    };
    let mut rules = vec![
        Rule::new().comment("reply direction").ct_direction(Direction::Reply).ct_mark(mark, mask).accept(),
        error(ICMP).ct_mark(mark, mask).accept(),
        error(ICMPV6).ct_mark(mark, mask).accept(),
    ];
    if firewall.source(true).is_some() {
        let near: Vec<IpNet> =
            LINK_LOCAL.map(IpNet::V6).into_iter().chain(firewall.networks.clone()).collect();
        let types = DISCOVERY.map(|kind| Element::new([kind])).to_vec();
        ruleset.sets.push((Set::new("discovery", &[DataType::Icmpv6Type]), types));
        ruleset.sets.push((Set::networks("neighbours", true), interval::bounds(true, &near)));
        let rule = Rule::new().comment("neighbour discovery and MLD");
        rules.push(rule.icmpv6_in("discovery", "neighbours").accept());
    }
    for (name, ipv6) in [("allowed4", false), ("allowed6", true)] {
        let elements = interval::bounds(ipv6, allowed);
        if !elements.is_empty() {
            rules.push(Rule::new().comment("in the allow-list").daddr_in(ipv6, name).accept());
            ruleset.sets.push((Set::networks(name, ipv6), elements));
        }
    }
    // Local programs may connect to redirect targets too: to the same address and port, and no other.
    rules.extend(redirect::redirects(firewall).map(|redirect| {
        let port = redirect.to_port.unwrap_or(redirect.port);
        Rule::new()
            .comment("redirect target")
            .daddr(redirect.to)
            .l4proto(redirect.protocol.number())
            .dport(port)
            .accept()
    }));
    rules.extend(
        redirect::fallbacks(firewall)
            .map(|address| Rule::new().comment("redirect target").daddr(address).accept()),
    );
    // The mark of any attachment, because connections that are older than two attachments have the mark of the first.
    let stood = |rule: Rule| rule.ct_mark(0, EGRESS_MARK_MASK).ct_mark_any(MARK_MASK);
    let leaves = |comment: &str| Rule::new().comment(comment).oifname(&firewall.interface);
    let mut last = Vec::new();
    if !firewall.primaries().is_empty() {
        // Connections older than the attachment were rerouted to the primary interface (reply_direction), but the output hook still
        // has the old oifname. Without a route there, they do not leave by the attachment.
        rules.insert(0, stood(Rule::new().comment("connection of the primary interface")).accept());
        // In both directions: a program may bind its socket to the attachment, also for replies to the primary interface.
        last.push(stood(leaves("connection of the primary interface")).drop());
        // Redirected ones have both marks.
        let reply = leaves("reply direction to the primary interface").ct_direction(Direction::Reply);
        last.push(reply.ct_mark_any(MARK_MASK).drop());
        if redirect::any(firewall) {
            let redirected = leaves("redirected").ct_direction(Direction::Original).ct_status(STATUS_DNAT);
            last.push(redirected.ct_mark(mark, mask).accept());
        }
    }
    last.push(leaves("apply the allow-list").jump("allow"));
    last.push(leaves("not in the allow-list").drop());
    let output = vec![
        leaves("apply the allow-list").jump("allow"),
        // connect() holds the socket lock while the kernel makes an ICMP error for it: the error is only recorded then, and reported a
        // second later, after the first retransmission. A reset is processed as soon as the lock is released.
        leaves("not in the allow-list").reset(),
        leaves("not in the allow-list").reject(Reject::Prohibited),
    ];
    let filter = |name, hook, rules| (Chain::base(name, ChainType::Filter, hook, FILTER), rules);
    ruleset.chains.push(filter("output", Hook::Output, output));
    ruleset.chains.push(filter("postrouting_filter", Hook::Postrouting, last));
    ruleset.chains.push((Chain::regular("allow"), rules));
}
