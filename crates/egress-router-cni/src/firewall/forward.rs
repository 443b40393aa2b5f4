//! The forward chain: only redirected (DNAT) connections and their replies are forwarded to and from the attachment. Between other
//! interfaces the pod forwards only if it did so before.

use common::netlink::nftables::expression::{Direction, Reject};
use common::netlink::nftables::rule::STATUS_DNAT;
use common::netlink::nftables::{Chain, ChainType, Hook, Rule};

use super::{Firewall, Forwards, redirect};
use crate::nftables::Ruleset;

/// NF_IP_PRI_FILTER.
pub(super) const FILTER: i32 = 0;

/// Adds the chain.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let new = firewall.interface.as_str();
    let mut rules = Vec::new();
    let primaries = if redirect::any(firewall) { firewall.primaries() } else { Vec::new() };
    for (family, primary) in &primaries {
        // Redirected by this attachment: the DNAT of another attachment or program must not use this one.
        let (mark, mask) = redirect::mark(firewall);
        let forth = Rule::new().comment("redirected").iifname(primary).oifname(new).only_family(*family);
        let back = Rule::new().comment("replies to redirected connections").iifname(new).oifname(primary);
        let both = [
            forth.ct_direction(Direction::Original),
            back.only_family(*family).ct_direction(Direction::Reply),
        ];
        rules.extend(both.map(|rule| rule.ct_status(STATUS_DNAT).ct_mark(mark, mask).accept()));
    }
    // Dropped silently from outside, so that the pod does not look like a router; rejected from inside, so that a client knows.
    rules.push(Rule::new().comment("no forwarding from the attachment").iifname(new).drop());
    rules.push(
        Rule::new().comment("only redirected traffic is forwarded").oifname(new).reject(Reject::Prohibited),
    );
    let Forwards { v4, v6 } = firewall.forwards;
    if !primaries.is_empty() && (v4 || v6) {
        // Another attachment has redirected it, and its forward chain has checked it.
        rules.push(Rule::new().comment("redirected by another attachment").ct_status(STATUS_DNAT).accept());
        // Replies to connections that went the other way, since a local program enabled forwarding.
        rules.extend(primaries.iter().map(|(family, primary)| {
            let rule =
                Rule::new().comment("replies to forwarded connections").iifname(primary).only_family(*family);
            rule.ct_direction(Direction::Reply).accept()
        }));
        // Dropped without an error, as the kernel does where forwarding is off.
        if let (true, Some(primary)) = (v4, firewall.primary_of(false)) {
            rules.push(Rule::new().comment("no other IPv4 forwarding").iifname(primary).family(false).drop());
        }
        if v6 {
            rules.push(Rule::new().comment("no other IPv6 forwarding").family(true).drop());
        }
    }
    ruleset.chains.push((Chain::base("forward", ChainType::Filter, Hook::Forward, FILTER), rules));
}
