//! The state of a pod or node that a plugin could change.

use anyhow::Result;

use crate::netns::{Node, Snapshot};

/// Links with their kinds and modes, addresses, routes of all tables, rules, the whole ruleset of nf_tables and all sysctls
/// of both families. Counters, times and conntrack entries are omitted, and so is the operational state of a link, which follows its
/// cause up to a second later (linux/net/core/link_watch.c).
const TAKE: &str = r#"
section() { sed "s|^|$1: |"; }
ip -d -o link | sed -E 's/^[0-9]+: //; s/@[^:]*:/:/; s/ [a-z_]+_timer +[0-9.]+//g; s/NO-CARRIER,//; s/,LOWER_UP//; s/ state [A-Z]+//' | section link
ip -o addr | sed -E 's/^[0-9]+: //; s/ valid_lft.*//' | section address
ip -4 route show table all | section route
ip -6 route show table all | sed -E 's/ expires [0-9]+sec/ expires/' | section route6
ip -4 rule | section rule
ip -6 rule | section rule6
# The order of rules in a chain is state, and the name of its place besides.
nft -s list ruleset | awk '/^table/ { t = $0 } /^\tchain|^\tset|^\tmap/ { c = $2; n = 0 } { print t, c, ++n, $0 }' | section nft
cd /proc/sys/net
{ grep -rs '' ipv4 ipv6 || true; } | grep -v stable_secret | section sysctl
"#;

impl Node {
    /// The state that a CNI plugin could change.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn network_state(&self) -> Result<Snapshot> {
        Ok(Snapshot::read(&self.sh(TAKE)?))
    }
}
