//! The state of a pod or node that a plugin could change.

use anyhow::Result;

use crate::netns::{Node, Snapshot};

/// Links with their kinds and modes, addresses, routes of all tables, rules, the whole ruleset of nf_tables and all sysctls
/// of both families. Counters, times and conntrack entries are omitted, and so is the operational state of a link, which follows its
/// cause up to a second later (linux/net/core/link_watch.c).
const TAKE: &str = r#"
section() { printf '\036%s\n' "$1"; }
{
  section link; ip -d -o link
  section address; ip -o addr
  section route; ip -4 route show table all
  section route6; ip -6 route show table all
  section rule; ip -4 rule
  section rule6; ip -6 rule
  section nft; nft -s list ruleset
  cd /proc/sys/net
  section sysctl; grep -rs '' ipv4 ipv6 || true
} | awk '
  /^\036/ { section = substr($0, 2); next }
  section ~ /^(link|address)$/ { sub(/^[0-9]+: /, "") }
  section == "link" {
    sub(/@[^:]*:/, ":"); gsub(/ [a-z_]+_timer +[0-9.]+/, "")
    sub(/NO-CARRIER,/, ""); sub(/,LOWER_UP/, ""); sub(/ state [A-Z]+/, "")
  }
  section == "address" { sub(/ valid_lft.*/, "") }
  section == "route6" { sub(/ expires [0-9]+sec/, " expires") }
  # The order of rules in a chain is state, and the name of its place besides.
  section == "nft" {
    if (/^table/) table = $0
    if (/^\tchain|^\tset|^\tmap/) { place = $2; n = 0 }
    $0 = table " " place " " ++n " " $0
  }
  section == "sysctl" && /stable_secret/ { next }
  { print section ": " $0 }'
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
