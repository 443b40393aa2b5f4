//! The forward chain: only redirected (DNAT) connections and their replies are forwarded to and from the attachment. Between other
//! interfaces the pod forwards only if it did so before.

use super::{Firewall, Forwards, redirect};
use crate::nftables::ruleset::{ChainType, Hook};
use crate::nftables::{Chain, Rule, Ruleset};

/// NF_IP_PRI_FILTER.
pub(super) const FILTER: i32 = 0;

/// Adds the chain.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let new = firewall.interface.as_str();
    let mut rules = Vec::new();
    let primaries = if redirect::any(firewall) { firewall.primary.each() } else { Vec::new() };
    for (family, primary) in &primaries {
        // Redirected by this attachment: the DNAT of another attachment or program must not use this one.
        let (mark, mask) = redirect::mark(firewall);
        let forth = Rule::new("redirected").iifname(primary).oifname(new).only_family(*family);
        let back = Rule::new("replies to redirected connections").iifname(new).oifname(primary);
        let both = [forth.original_direction(), back.only_family(*family).reply_direction()];
        rules.extend(both.map(|rule| rule.dnat_applied().ct_mark(mark, mask).accept()));
    }
    // Dropped silently from outside, so that the pod does not look like a router; rejected from inside, so that a client knows.
    rules.push(Rule::new("no forwarding from the attachment").iifname(new).drop());
    rules.push(Rule::new("only redirected traffic is forwarded").oifname(new).reject());
    let Forwards { v4, v6 } = firewall.forwards;
    if !primaries.is_empty() && (v4 || v6) {
        // Another attachment has redirected it, and its forward chain has checked it.
        rules.push(Rule::new("redirected by another attachment").dnat_applied().accept());
        // Replies to connections that went the other way, since a local program enabled forwarding.
        rules.extend(primaries.iter().map(|(family, primary)| {
            let rule = Rule::new("replies to forwarded connections").iifname(primary).only_family(*family);
            rule.reply_direction().accept()
        }));
        // Dropped without an error, as the kernel does where forwarding is off.
        if let (true, Some(primary)) = (v4, firewall.primary.of(false)) {
            rules.push(Rule::new("no other IPv4 forwarding").iifname(primary).family(false).drop());
        }
        if v6 {
            rules.push(Rule::new("no other IPv6 forwarding").family(true).drop());
        }
    }
    ruleset.chains.push(Chain::base("forward", ChainType::Filter, Hook::Forward, FILTER, rules));
}
