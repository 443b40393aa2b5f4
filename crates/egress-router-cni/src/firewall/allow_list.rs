//! The allow-list: which destinations the pod's local programs may reach through the attachment.

use super::forward::FILTER;
use super::{Firewall, redirect};
use crate::names::{EGRESS_MARK_MASK, MARK_MASK};
use crate::nftables::rule::{ICMP, ICMPV6};
use crate::nftables::ruleset::{Hook, Kind};
use crate::nftables::{Chain, Rule, Ruleset, Set};

/// ICMPv6 that a link needs: multicast listener reports and done messages (131, 132, 143), router solicitation
/// (133), neighbour solicitation and advertisement (135, 136). They are outside of connection tracking.
const DISCOVERY: [u8; 6] = [131, 132, 133, 135, 136, 143];

/// Adds the chains and sets, if there is a list.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let Some(allowed) = &firewall.destinations.allowed else { return };
    let discovery = Set::icmpv6_types("discovery", &DISCOVERY);
    let mut rules = vec![
        Rule::new("reply direction").reply_direction().accept(),
        // Errors only: a helper's expected connections are related as well, and may go anywhere.
        Rule::new("ICMP errors of known connections").protocol(ICMP).related().accept(),
        Rule::new("ICMP errors of known connections").protocol(ICMPV6).related().accept(),
        Rule::new("neighbour discovery and MLD").icmpv6_type_in(&discovery).accept(),
    ];
    ruleset.sets.push(discovery);
    for (name, ipv6) in [("allowed4", false), ("allowed6", true)] {
        let set = Set::prefixes(name, ipv6, allowed);
        if !set.is_empty() {
            rules.push(Rule::new("in the allow-list").daddr_in(&set).accept());
            ruleset.sets.push(set);
        }
    }
    // Local programs may connect to redirect targets too: to the same address and port, and no other.
    rules.extend(redirect::redirects(firewall).map(|redirect| {
        let port = redirect.to_port.unwrap_or(redirect.port);
        Rule::new("redirect target")
            .to(redirect.to)
            .protocol(redirect.protocol.number())
            .to_port(port)
            .accept()
    }));
    rules.extend(
        redirect::fallbacks(firewall).map(|address| Rule::new("redirect target").to(address).accept()),
    );
    // connect() holds the socket lock while the kernel makes an ICMP error for it: the error is only recorded then, and reported a
    // second later, after the first retransmission. A reset is processed as soon as the lock is released.
    rules.push(Rule::new("not in the allow-list").reset());
    rules.push(Rule::new("not in the allow-list").reject());
    let leave = Rule::new("apply the allow-list").oifname(&firewall.interface).jump("allow");
    ruleset.chains.push(Chain::base("output", Kind::Filter, Hook::Output, FILTER, vec![leave]));
    // Connections older than the attachment were rerouted to the primary interface (reply_direction), but the output hook still
    // has the old oifname. In postrouting it is the final one: without a route there, they do not leave by the attachment.
    if !firewall.primary.each().is_empty() {
        // The mark of any attachment, because connections that are older than two attachments have the mark of the first.
        let stood = |rule: Rule| rule.ct_mark(0, EGRESS_MARK_MASK).ct_mark_any(MARK_MASK);
        rules.insert(0, stood(Rule::new("connection of the primary interface")).accept());
        let lost =
            stood(Rule::new("older than the attachment").oifname(&firewall.interface).original_direction())
                .drop();
        ruleset.chains.push(Chain::base(
            "postrouting_filter",
            Kind::Filter,
            Hook::Postrouting,
            FILTER,
            vec![lost],
        ));
    }
    ruleset.chains.push(Chain::inner("allow", rules));
}
