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
    if let Some(home) = firewall.home.as_deref().filter(|_| redirect::any(firewall)) {
        // Handed on by this attachment: another's redirect, or another program's, shall not pass by this one.
        let (mark, mask) = redirect::mark(firewall);
        let there = Rule::new("handed on").comes_by(home).leaves_by(new).forth();
        let back = Rule::new("answers to what was handed on").comes_by(new).leaves_by(home).back();
        rules.extend([there, back].map(|rule| rule.handed_on().connection_marked(mark, mask).accept()));
    }
    // In silence: whoever is out there and tries the pod as a router learns nothing. Whoever is inside is told.
    rules.push(Rule::new("no way through the pod").comes_by(new).drop());
    rules.push(Rule::new("only what is handed on leaves").leaves_by(new).reject());
    if let Some(home) = firewall.home.as_deref().filter(|_| redirect::any(firewall)) {
        let Forwards { v4, v6 } = firewall.forwards;
        if v4 || v6 {
            // By another attachment, whose own chain knows what it hands on.
            rules.push(Rule::new("handed on by another").handed_on().accept());
            // Of what went the other way: the pod's own programs have begun to forward.
            rules.push(Rule::new("answers to what was forwarded").comes_by(home).back().accept());
        }
        // As the kernel does where forwarding is off: nobody is told.
        if v4 {
            rules.push(Rule::new("forwards no IPv4 by itself").comes_by(home).family(false).drop());
        }
        if v6 {
            rules.push(Rule::new("forwards no IPv6 by itself").family(true).drop());
        }
    }
    ruleset.chains.push(Chain::base("forward", Kind::Filter, Hook::Forward, FILTER, rules));
}
