//! The set of an allow-list contains exactly the addresses of the listed networks.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::netlink::nftables::{Element, interval};
use ipnet::IpNet;
use libfuzzer_sys::fuzz_target;

/// Whether the kernel would find it: the greatest bound up to it is the start of a range.
fn holds(set: &[Element], key: &[u8]) -> bool {
    set.iter().rfind(|element| *element.key <= *key).is_some_and(|element| !element.end)
}

fuzz_target!(|nets: Vec<(bool, u128, u8)>| {
    let nets: Vec<IpNet> = nets
        .into_iter()
        .take(64)
        .filter_map(|(v6, bits, length)| {
            let address = if v6 { Ipv6Addr::from(bits).into() } else { Ipv4Addr::from(bits as u32).into() };
            IpNet::new(address, length % if v6 { 129 } else { 33 }).ok()
        })
        .collect();
    let (v4, v6) = (interval::bounds(false, &nets), interval::bounds(true, &nets));
    let edges = nets.iter().flat_map(|net| match (net.network(), net.broadcast()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => [u32::from(first).into(), u32::from(last).into()],
        (IpAddr::V6(first), IpAddr::V6(last)) => [u128::from(first), u128::from(last)],
        _ => [0, 0],
    });
    for edge in edges.flat_map(|edge: u128| [edge.wrapping_sub(1), edge, edge.wrapping_add(1)]) {
        let (four, six) = (Ipv4Addr::from(edge as u32), Ipv6Addr::from(edge));
        let asked = |address: IpAddr| nets.iter().any(|net| net.contains(&address));
        assert_eq!(holds(&v4, &four.octets()), asked(four.into()), "{four}: {nets:?}");
        assert_eq!(holds(&v6, &six.octets()), asked(six.into()), "{six}: {nets:?}");
    }
});
