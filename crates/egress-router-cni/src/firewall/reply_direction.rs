//! Connections that came in by home are answered by home, whatever the routes say: they may come from anywhere in the
//! cluster, and nobody tells a plugin which networks that is.
//!
//! So do those that stood before the attachment, in either direction, when a pod gets it while it lives: what its programs send
//! next would otherwise leave by the attachment, with an address that the other side does not know.
//!
//! No allow-list is wider by that ([`super::allow_list`]): whatever bears a mark without having come in by home does not
//! leave by the attachment.
//!
//! The connection's mark remembers; a rule (see [`crate::plan`]) sends packets that bear it to home's own table.

use super::Firewall;
use crate::names::MARK_MASK;
use crate::netlink::nftables::ruleset::{Hook, Kind};
use crate::netlink::nftables::{Chain, Rule, Ruleset};

/// NF_IP_PRI_MANGLE: after connection tracking (-200), before translation (-100) and routing.
const MANGLE: i32 = -150;

/// Adds the chains, if there is a home.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let Some(primary) = &firewall.primary else { return };
    let (mark, mask) = (firewall.mark, MARK_MASK);
    let answers = Rule::new("reply direction to the primary interface")
        .reply_direction()
        .ct_mark(mark, mask)
        .set_mark(mark, mask);
    // Each packet, not only the first: a mark of an attachment that is gone since then is replaced by ours. Of several
    // attachments the oldest is heard last and so decides, whichever comes or goes beside it.
    let remember = Rule::new("original direction from the primary interface")
        .iifname(primary)
        .original_direction()
        .set_ct_mark(mark, mask);
    ruleset.chains.push(Chain::base(
        "prerouting_mark",
        Kind::Filter,
        Hook::Prerouting,
        MANGLE,
        vec![remember, answers],
    ));
    // What is made here, in a chain that makes routing decide again. Whatever bears the mark: of connections that stood
    // before, tracking may take the pod for the one who opened them.
    let mut made: Vec<_> = [false, true].into_iter().filter_map(|ipv6| before(firewall, ipv6)).collect();
    made.push(Rule::new("reply direction to the primary interface").ct_mark(mark, mask).set_mark(mark, mask));
    ruleset.chains.push(Chain::base("output_mark", Kind::Route, Hook::Output, MANGLE, made));
}

/// Connections of TCP, which tells, that would leave by the attachment and cannot have begun with it.
fn before(firewall: &Firewall, ipv6: bool) -> Option<Rule> {
    firewall.source(ipv6)?;
    let (mark, mask) = (firewall.mark, MARK_MASK);
    let rule = Rule::new("older than the attachment").oifname(&firewall.interface).family(ipv6);
    let rule = if ipv6 { rule.not_from_link_local() } else { rule };
    let rule = rule.saddr_not_in(firewall.of_family(ipv6)).mid_stream();
    Some(rule.set_ct_mark(mark, mask).set_mark(mark, mask))
}
