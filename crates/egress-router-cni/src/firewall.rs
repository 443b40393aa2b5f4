//! The nf_tables table of an attachment: the allow-list, redirects (DNAT and SNAT), the conntrack marks that route the reply
//! direction, and the record of the previous state.
//!
//! ```text
//!            prerouting                   forward                      postrouting
//!   primary ──▶ ct mark ────────────────▶ redirected traffic only, ──▶ snat to the attachment's ────▶ attachment
//!               dnat                      and its replies              address
//!   primary ◀── replies get the fwmark of their connection, ◀───────── attachment (prerouting), local programs (output)
//!               and an ip rule routes them
//!                                         local programs (output): only to the allow-list ──────────▶ attachment
//! ```
//!
//! Interfaces are named, not numbered: one that is replaced under its name is still meant. Each chain leaves alone what
//! neither comes from nor goes to the attachment or the primary interface, except what the pod would forward only because of
//! its redirects.

pub mod allow_list;
pub mod forward;
pub mod redirect;
pub mod reply_direction;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::config::destinations::Destinations;
use crate::names;
use crate::netlink::nftables::{Chain, RECORD, Rule, Ruleset, comment};

/// Which rules a table has: one more whenever the same [`Firewall`] gives other ones. What a build before has made is not taken for
/// changed by somebody.
pub const RULES: u32 = 2;

/// Everything that the table is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// The attachment's interface.
    pub interface: String,
    /// The interface of the pod's own network, if it has one.
    pub primary: Option<String>,
    /// The attachment's mark (see [`crate::names::mark`]).
    pub mark: u32,
    /// The attachment's addresses; the first of each family is the source of what is forwarded.
    pub addresses: Vec<IpAddr>,
    /// The allow-list and the redirects.
    pub destinations: Destinations,
    /// Families that the pod forwards only because of redirects: other traffic of theirs is not forwarded.
    pub forwards: Forwards,
    /// The record: one line each, of any length without a zero byte, kept as comments of rules in a chain of their own.
    /// [`crate::plan`] writes and reads them.
    pub record: Vec<String>,
}

/// Which families the pod forwards only because of redirects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forwards {
    /// IPv4 that arrives on the primary interface.
    pub v4: bool,
    /// IPv6, wherever it comes from.
    pub v6: bool,
}

impl Firewall {
    /// The table, named [`names::table`]. Two equal values give two equal tables.
    #[must_use]
    pub fn ruleset(&self) -> Ruleset {
        let mut ruleset = Ruleset {
            table: names::table(&self.interface),
            sets: Vec::new(),
            chains: vec![self.record_chain()],
        };
        reply_direction::add(self, &mut ruleset);
        redirect::add(self, &mut ruleset);
        forward::add(self, &mut ruleset);
        allow_list::add(self, &mut ruleset);
        ruleset
    }

    /// No packet comes by this chain. Its rules have a verdict only because nft(8) takes none without.
    fn record_chain(&self) -> Chain {
        let comments = self.record.iter().flat_map(|note| comment::split(note));
        Chain::inner(RECORD, comments.map(|comment| Rule::new(comment).return_to_caller()).collect())
    }

    /// The source of what is forwarded in this family.
    fn source(&self, ipv6: bool) -> Option<IpAddr> {
        self.of_family(ipv6).next()
    }

    /// The attachment's addresses of this family.
    fn of_family(&self, ipv6: bool) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied().filter(move |address| address.is_ipv6() == ipv6)
    }
}
