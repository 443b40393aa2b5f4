//! Networks as the bounds of an interval set.

use std::net::IpAddr;

use ipnet::IpNet;

use super::set::Element;

/// The bounds of exactly the addresses in the `networks` of one family, which may overlap: ascending, each once.
#[must_use]
pub fn bounds(ipv6: bool, networks: &[IpNet]) -> Vec<Element> {
    let last = if ipv6 { u128::MAX } else { u128::from(u32::MAX) };
    let of_family = networks.iter().filter(|network| network.network().is_ipv6() == ipv6);
    let mut ranges: Vec<_> =
        of_family.map(|network| (number(network.network()), number(network.broadcast()))).collect();
    ranges.sort_unstable();
    let mut elements = Vec::with_capacity(ranges.len().saturating_mul(2).saturating_add(1));
    let mut bound = |number, end| elements.push(Element { end, ..Element::new(bytes(number, ipv6)) });
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
    elements
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
    fn holds(set: &[Element], address: IpAddr) -> bool {
        let key = bytes(number(address), address.is_ipv6());
        let below = set.iter().rfind(|element| element.key <= key);
        below.is_some_and(|element| !element.end)
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn shown(set: &[Element]) -> Vec<String> {
        let address = |key: &[u8]| match <[u8; 4]>::try_from(key) {
            Ok(bytes) => Ipv4Addr::from(bytes).to_string(),
            Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(key).unwrap()).to_string(),
        };
        set.iter().map(|e| format!("{}{}", if e.end { "<" } else { "" }, address(&e.key))).collect()
    }

    #[test]
    fn overlapping_and_adjacent_ranges_are_merged() {
        let nets = [net("10.0.0.128/25"), net("10.0.0.0/25"), net("10.0.0.7/32"), net("10.0.2.0/24")];
        let set = bounds(false, &nets);
        assert_eq!(shown(&set), ["<0.0.0.0", "10.0.0.0", "<10.0.1.0", "10.0.2.0", "<10.0.3.0"]);
    }

    #[test]
    fn a_range_up_to_the_last_address_has_no_end_bound() {
        assert_eq!(shown(&bounds(false, &[net("0.0.0.0/0")])), ["0.0.0.0"]);
        assert_eq!(shown(&bounds(true, &[net("::/0"), net("fd00::/8")])), ["::"]);
        let last = bounds(false, &[net("255.255.255.255/32")]);
        assert_eq!(shown(&last), ["<0.0.0.0", "255.255.255.255"]);
        assert!(bounds(true, &[net("0.0.0.0/0")]).is_empty(), "another family's");
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
            let sets = [bounds(false, &nets), bounds(true, &nets)];
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
                let ascending = set.windows(2).all(|pair| pair[0].key < pair[1].key);
                prop_assert!(ascending, "{:?}", shown(set));
            }
        }
    }
}
