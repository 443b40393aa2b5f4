//! The pod is no router: what is forwarded from or to the attachment is what was handed on, and its answers. Between other
//! interfaces it is one only if it was before.

use super::{Firewall, Forwards, redirect};
use crate::netlink::nftables::ruleset::{Hook, Kind};
use crate::netlink::nftables::{Chain, Rule, Ruleset};

/// NF_IP_PRI_FILTER.
pub(super) const FILTER: i32 = 0;

/// Adds the chain.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let new = firewall.interface.as_str();
    let mut rules = Vec::new();
    if let Some(primary) = firewall.primary.as_deref().filter(|_| redirect::any(firewall)) {
        // Handed on by this attachment: another's redirect, or another program's, shall not pass by this one.
        let (mark, mask) = redirect::mark(firewall);
        let forth = Rule::new("redirected").iifname(primary).oifname(new).original_direction();
        let back =
            Rule::new("replies to redirected connections").iifname(new).oifname(primary).reply_direction();
        rules.extend([forth, back].map(|rule| rule.dnat_applied().ct_mark(mark, mask).accept()));
    }
    // In silence: whoever is out there and tries the pod as a router learns nothing. Whoever is inside is told.
    rules.push(Rule::new("no forwarding from the attachment").iifname(new).drop());
    rules.push(Rule::new("only redirected traffic is forwarded").oifname(new).reject());
    if let Some(primary) = firewall.primary.as_deref().filter(|_| redirect::any(firewall)) {
        let Forwards { v4, v6 } = firewall.forwards;
        if v4 || v6 {
            // By another attachment, whose own chain knows what it hands on.
            rules.push(Rule::new("redirected by another attachment").dnat_applied().accept());
            // Of what went the other way: the pod's own programs have begun to forward.
            rules.push(
                Rule::new("replies to forwarded connections").iifname(primary).reply_direction().accept(),
            );
        }
        // As the kernel does where forwarding is off: nobody is told.
        if v4 {
            rules.push(Rule::new("no other IPv4 forwarding").iifname(primary).family(false).drop());
        }
        if v6 {
            rules.push(Rule::new("no other IPv6 forwarding").family(true).drop());
        }
    }
    ruleset.chains.push(Chain::base("forward", Kind::Filter, Hook::Forward, FILTER, rules));
}
