//! Connections that came in by home are answered by home, whatever the routes say: they may come from anywhere in the
//! cluster, and nobody tells a plugin which networks that is.
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
    let Some(home) = &firewall.home else { return };
    let answers = || {
        Rule::new("answers go back by it")
            .back()
            .connection_marked(firewall.mark, MARK_MASK)
            .mark_packet(firewall.mark, MARK_MASK)
    };
    // Each packet, not only the first: a mark of an attachment that is gone since then is replaced by ours. Of several
    // attachments the oldest is heard last and so decides, whichever comes or goes beside it.
    let remember = Rule::new("came in by the pod's own network")
        .comes_by(home)
        .forth()
        .mark_connection(firewall.mark, MARK_MASK);
    // Answers to what was handed on come in by the attachment; to what was not, they are made here, what makes routing
    // decide again.
    ruleset.chains.push(Chain::base(
        "arrive",
        Kind::Filter,
        Hook::Prerouting,
        MANGLE,
        vec![remember, answers()],
    ));
    ruleset.chains.push(Chain::base("answer", Kind::Route, Hook::Output, MANGLE, vec![answers()]));
}
