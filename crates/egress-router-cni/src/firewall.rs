//! The nf_tables table of an attachment: the allow-list, redirects (DNAT and SNAT), and the conntrack marks that route
//! the reply direction.
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
//! Rules match interfaces by name, so that they also apply to an interface that was re-created. Chains ignore packets that neither come
//! from nor go to the attachment or the primary interface, except packets that the pod would forward only because of its redirects.

pub mod allow_list;
pub mod forward;
pub mod frames;
pub mod redirect;
pub mod reply_direction;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::destinations::Destinations;
use crate::names;
use crate::nftables::{self, Ruleset};
use crate::plan::Family;

/// The inputs of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// The attachment's interface.
    pub interface: String,
    /// The primary interface of each family that has one. A pod may have its default routes of IPv4 and of IPv6 through different ones.
    pub primary: BTreeMap<Family, String>,
    /// The attachment's mark (see [`crate::names::mark`]).
    pub mark: u32,
    /// The attachment's addresses; the first of each family is the SNAT address of redirected traffic.
    pub addresses: Vec<IpAddr>,
    /// The networks that the attachment is in, and its gateways: the destinations of neighbour discovery.
    pub networks: Vec<IpNet>,
    /// The allow-list and the redirects.
    pub destinations: Destinations,
    /// Families that the pod forwards only because of redirects: their other traffic is not forwarded.
    pub forwards: Forwards,
}

/// The families that the pod forwards only because of redirects.
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
            family: nftables::Family::Inet,
            table: names::table(&self.interface),
            sets: Vec::new(),
            chains: Vec::new(),
        };
        reply_direction::add(self, &mut ruleset);
        redirect::add(self, &mut ruleset);
        forward::add(self, &mut ruleset);
        allow_list::add(self, &mut ruleset);
        ruleset
    }

    /// The table of family netdev for frames of packet sockets, if there is an allow-list. Its interface must exist.
    #[must_use]
    pub fn frames(&self) -> Option<Ruleset> {
        frames::ruleset(self)
    }

    /// The primary interface of this family.
    fn primary_of(&self, ipv6: bool) -> Option<&str> {
        self.primary.get(&if ipv6 { Family::V6 } else { Family::V4 }).map(String::as_str)
    }

    /// Each primary interface with its family; without a family, it is that of both or the only one.
    fn primaries(&self) -> Vec<(Option<bool>, &str)> {
        match (self.primary_of(false), self.primary_of(true)) {
            (Some(v4), Some(v6)) if v4 != v6 => vec![(Some(false), v4), (Some(true), v6)],
            (v4, v6) => v4.or(v6).map(|interface| (None, interface)).into_iter().collect(),
        }
    }

    /// The SNAT address of this family.
    fn source(&self, ipv6: bool) -> Option<IpAddr> {
        self.of_family(ipv6).next()
    }

    /// The attachment's addresses of this family.
    fn of_family(&self, ipv6: bool) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied().filter(move |address| address.is_ipv6() == ipv6)
    }
}
