//! The pod is no router: what is forwarded from or to the attachment is what was handed on, and its answers.

use super::{Firewall, redirect};
use crate::netlink::nftables::ruleset::{Hook, Kind};
use crate::netlink::nftables::{Chain, Rule, Ruleset, Set};

/// NF_IP_PRI_FILTER.
pub(super) const FILTER: i32 = 0;

/// Adds the chain, and sets of whom is handed on to.
pub(super) fn add(firewall: &Firewall, ruleset: &mut Ruleset) {
    let new = firewall.interface.as_str();
    let mut rules = Vec::new();
    if let Some(home) = &firewall.home {
        for (name, ipv6) in [("targets4", false), ("targets6", true)] {
            let redirects = redirect::redirects(firewall).map(|redirect| redirect.to);
            let targets = Set::addresses(name, ipv6, redirects.chain(redirect::fallbacks(firewall)));
            if targets.is_empty() {
                continue;
            }
            // To ours only: another attachment's redirect, or another program's, shall not pass through this one's list.
            let rule = Rule::new("handed on").comes_by(home).leaves_by(new).forth().handed_on();
            rules.push(rule.to_any_of(&targets).accept());
            ruleset.sets.push(targets);
        }
        if !rules.is_empty() {
            rules.push(
                Rule::new("answers to what was handed on")
                    .comes_by(new)
                    .leaves_by(home)
                    .back()
                    .handed_on()
                    .accept(),
            );
        }
    }
    // In silence: whoever is out there and tries the pod as a router learns nothing. Whoever is inside is told.
    rules.push(Rule::new("no way through the pod").comes_by(new).drop());
    rules.push(Rule::new("only what is handed on leaves").leaves_by(new).reject());
    ruleset.chains.push(Chain::base("forward", Kind::Filter, Hook::Forward, FILTER, rules));
}
