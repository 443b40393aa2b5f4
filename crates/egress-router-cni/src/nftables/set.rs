//! Named sets of addresses or ICMPv6 types.

use std::net::IpAddr;

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

/// A value of a set or, in a set of ranges, a bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// In network order.
    pub key: Vec<u8>,
    /// NFT_SET_ELEM_INTERVAL_END: the first value that is no longer in the range before it.
    pub end: bool,
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
        let last = if ipv6 { u128::MAX } else { u128::from(u32::MAX) };
        let of_family = prefixes.iter().filter(|prefix| prefix.network().is_ipv6() == ipv6);
        let mut ranges: Vec<_> =
            of_family.map(|prefix| (number(prefix.network()), number(prefix.broadcast()))).collect();
        ranges.sort_unstable();
        let mut elements = Vec::with_capacity(ranges.len().saturating_mul(2).saturating_add(1));
        let mut bound = |number, end| elements.push(Element { key: bytes(number, ipv6), end });
        let mut ranges = ranges.into_iter().peekable();
        // Like nft(8), the set begins with an end bound before the first range, so that the kernel has the same elements.
        if ranges.peek().is_some_and(|(first, _)| *first != 0) {
            bound(0, true);
        }
        while let Some((first, mut end)) = ranges.next() {
            // The kernel refuses overlapping ranges; adjacent ones are merged too.
            while let Some((_, next)) = ranges.next_if(|(next, _)| *next <= end.saturating_add(1)) {
                end = end.max(next);
            }
            bound(first, false);
            // A range up to the last address has no end bound.
            if end < last {
                bound(end.saturating_add(1), true);
            }
        }
        let key = if ipv6 { Key::Ipv6 } else { Key::Ipv4 };
        Self { name, key, interval: true, elements }
    }

    /// The set of these types of ICMPv6 messages.
    #[must_use]
    pub fn icmpv6_types(name: &'static str, types: &[u8]) -> Self {
        let mut elements: Vec<_> =
            types.iter().map(|kind| Element { key: vec![*kind], end: false }).collect();
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

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The last 4 or all 16 bytes of `number`.
fn bytes(number: u128, ipv6: bool) -> Vec<u8> {
    let all = number.to_be_bytes();
    let start = if ipv6 { 0 } else { 12 };
    all.get(start..).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use proptest::prelude::*;

    /// Whether the kernel would find `address`: its greatest bound that is not above it begins a range.
    fn holds(set: &Set, address: IpAddr) -> bool {
        let key = bytes(number(address), set.ipv6());
        let below = set.elements.iter().rfind(|element| element.key <= key);
        below.is_some_and(|element| !element.end)
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn shown(set: &Set) -> Vec<String> {
        let address = |key: &[u8]| match <[u8; 4]>::try_from(key) {
            Ok(bytes) => Ipv4Addr::from(bytes).to_string(),
            Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(key).unwrap()).to_string(),
        };
        set.elements.iter().map(|e| format!("{}{}", if e.end { "<" } else { "" }, address(&e.key))).collect()
    }

    #[test]
    fn overlapping_and_adjacent_ranges_are_merged() {
        let nets = [net("10.0.0.128/25"), net("10.0.0.0/25"), net("10.0.0.7/32"), net("10.0.2.0/24")];
        let set = Set::prefixes("x", false, &nets);
        assert_eq!(shown(&set), ["<0.0.0.0", "10.0.0.0", "<10.0.1.0", "10.0.2.0", "<10.0.3.0"]);
    }

    #[test]
    fn a_range_up_to_the_last_address_has_no_end_bound() {
        assert_eq!(shown(&Set::prefixes("x", false, &[net("0.0.0.0/0")])), ["0.0.0.0"]);
        assert_eq!(shown(&Set::prefixes("x", true, &[net("::/0"), net("fd00::/8")])), ["::"]);
        let last = Set::prefixes("x", false, &[net("255.255.255.255/32")]);
        assert_eq!(shown(&last), ["<0.0.0.0", "255.255.255.255"]);
        assert!(Set::prefixes("x", true, &[net("0.0.0.0/0")]).is_empty(), "another family's");
    }

    fn ipv4() -> impl Strategy<Value = IpNet> {
        // Few bits decide, so that prefixes overlap and touch often.
        (0_u32..64, 0_u8..=32).prop_map(|(bits, length)| {
            net(&format!("{}/{length}", Ipv4Addr::from(bits << 26 | bits))).trunc()
        })
    }

    fn ipv6() -> impl Strategy<Value = IpNet> {
        (0_u128..64, 0_u8..=128).prop_map(|(bits, length)| {
            net(&format!("{}/{length}", Ipv6Addr::from(bits << 122 | bits))).trunc()
        })
    }

    proptest! {
        #[test]
        fn the_set_has_exactly_the_requested_addresses(
            nets in proptest::collection::vec(prop_oneof![ipv4(), ipv6()], 0..12),
            random in any::<(u32, u128)>(),
        ) {
            let sets = [Set::prefixes("4", false, &nets), Set::prefixes("6", true, &nets)];
            let edges = nets.iter().flat_map(|net| [number(net.network()), number(net.broadcast())]);
            let near = edges.flat_map(|edge| [edge.wrapping_sub(1), edge, edge.wrapping_add(1)]);
            let probes: Vec<u128> = near.chain([random.0.into(), random.1, 0, u128::MAX]).collect();
            for probe in probes {
                let four = IpAddr::from(Ipv4Addr::from((probe & 0xffff_ffff) as u32));
                let six = IpAddr::from(Ipv6Addr::from(probe));
                for (set, address) in [(&sets[0], four), (&sets[1], six)] {
                    let asked = nets.iter().any(|net| net.contains(&address));
                    prop_assert_eq!(holds(set, address), asked, "{} in {:?}", address, shown(set));
                }
            }
            for set in &sets {
                let ascending = set.elements.windows(2).all(|pair| pair[0].key < pair[1].key);
                prop_assert!(ascending, "{:?}", shown(set));
            }
        }
    }
}
