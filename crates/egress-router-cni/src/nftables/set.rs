//! Named sets of addresses or ICMPv6 types.

use common::netlink::nftables::{Element, interval};
use ipnet::IpNet;

/// A named set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Unique in its table.
    pub name: &'static str,
    /// Type of its elements.
    pub key: Key,
    /// Elements are the bounds of ranges, not values.
    pub interval: bool,
    /// Ascending, each once.
    pub elements: Vec<Element>,
}

/// nft(8)'s types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// ipv4_addr.
    Ipv4,
    /// ipv6_addr.
    Ipv6,
    /// icmpv6_type.
    Icmpv6Type,
}

impl Key {
    /// nft(8)'s number of the type. The kernel keeps it, and `nft list` reads it.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Ipv4 => 7,
            Self::Ipv6 => 8,
            Self::Icmpv6Type => 29,
        }
    }

    /// In bytes.
    #[must_use]
    pub fn length(self) -> u32 {
        match self {
            Self::Ipv4 => 4,
            Self::Ipv6 => 16,
            Self::Icmpv6Type => 1,
        }
    }
}

impl Set {
    /// The set of exactly the addresses in the `prefixes` of this family, which may overlap.
    #[must_use]
    pub fn prefixes(name: &'static str, ipv6: bool, prefixes: &[IpNet]) -> Self {
        let key = if ipv6 { Key::Ipv6 } else { Key::Ipv4 };
        Self { name, key, interval: true, elements: interval::bounds(ipv6, prefixes) }
    }

    /// The set of these types of ICMPv6 messages.
    #[must_use]
    pub fn icmpv6_types(name: &'static str, types: &[u8]) -> Self {
        let mut elements: Vec<_> = types.iter().map(|kind| Element::new([*kind])).collect();
        elements.sort_unstable();
        elements.dedup();
        Self { name, key: Key::Icmpv6Type, interval: false, elements }
    }

    /// Nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Its elements are IPv6 addresses.
    #[must_use]
    pub fn ipv6(&self) -> bool {
        self.key == Key::Ipv6
    }

    /// NFTA_SET_FLAGS: NFT_SET_INTERVAL or nothing.
    #[must_use]
    pub fn flags(&self) -> u32 {
        if self.interval { 4 } else { 0 }
    }
}
