//! The reply direction of connections that arrive on the primary interface leaves by the primary interface, whatever the routes
//! are: clients may be in any network of the cluster, and a plugin does not know all of them.
//!
//! The same holds, in both directions, for connections that are older than the attachment, where a running pod gets one:
//! their next packets would otherwise leave by the attachment, with a source address that the peer does not know.
//!
//! This does not widen an allow-list ([`super::allow_list`]): a packet with such a mark that did not arrive on the primary interface
//! does not leave by the attachment.
//!
//! The conntrack mark identifies these connections, and an ip rule (see [`crate::plan`]) looks their packets up in the primary
//! table.

use common::netlink::nftables::expression::Direction;
use common::netlink::nftables::{Chain, ChainType, Hook, Rule};

use super::Firewall;
use crate::names::MARK_MASK;
use crate::nftables::Ruleset;

/// NF_IP_PRI_MANGLE: after connection tracking (-200), before translation (-100) and routing.
pub(super) const MANGLE: i32 = -150;

/// Adds the chains, if the pod has a primary interface.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let primaries = firewall.primaries();
    if primaries.is_empty() {
        return;
    }
    let (mark, mask) = (firewall.mark, MARK_MASK);
    let replies = Rule::new()
        .comment("reply direction to the primary interface")
        .ct_direction(Direction::Reply)
        .ct_mark(mark, mask)
        .set_mark(mark, mask);
    // Every packet, not only the first: the mark of a deleted attachment is replaced by ours. Of several attachments the chain of
    // the oldest runs last and decides, whichever others are added or deleted.
    let remember = primaries.into_iter().map(|(family, primary)| {
        let rule = Rule::new().comment("original direction from the primary interface").iifname(primary);
        rule.only_family(family).ct_direction(Direction::Original).set_ct_mark(mark, mask)
    });
    let arriving = remember.chain([replies]).collect();
    ruleset
        .chains
        .push((Chain::base("prerouting_mark", ChainType::Filter, Hook::Prerouting, MANGLE), arriving));
    // Locally generated packets, in a route chain, which reroutes them. In either direction: of older connections, conntrack
    // may take the pod for the originator.
    let mut made: Vec<_> = [false, true].into_iter().filter_map(|ipv6| before(firewall, ipv6)).collect();
    made.push(
        Rule::new()
            .comment("reply direction to the primary interface")
            .ct_mark(mark, mask)
            .set_mark(mark, mask),
    );
    ruleset.chains.push((Chain::base("output_mark", ChainType::Route, Hook::Output, MANGLE), made));
}

/// TCP connections that would leave by the attachment and were not opened through it: their first tracked packet is no SYN.
fn before(firewall: &Firewall, ipv6: bool) -> Option<Rule> {
    firewall.source(ipv6)?;
    let (mark, mask) = (firewall.mark, MARK_MASK);
    let rule = Rule::new().comment("older than the attachment").oifname(&firewall.interface).family(ipv6);
    let rule = if ipv6 { rule.not_from_link_local() } else { rule };
    let rule = rule.saddr_not_in(firewall.of_family(ipv6)).mid_stream();
    Some(rule.set_ct_mark(mark, mask).set_mark(mark, mask))
}
