//! `destinations`, one entry a line: the allow-list contains exactly the addresses of its entries.
#![no_main]

use std::net::IpAddr;

use egress_router_cni::cni::field::Field;
use egress_router_cni::config::destinations::Destinations;
use ipnet::IpNet;
use libfuzzer_sys::fuzz_target;

/// One below, and one above, unless there is none.
fn neighbours(net: &IpNet) -> [Option<IpAddr>; 2] {
    match net {
        IpNet::V4(net) => [
            u32::from(net.network()).checked_sub(1).map(|bits| IpAddr::V4(bits.into())),
            u32::from(net.broadcast()).checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        ],
        IpNet::V6(net) => [
            u128::from(net.network()).checked_sub(1).map(|bits| IpAddr::V6(bits.into())),
            u128::from(net.broadcast()).checked_add(1).map(|bits| IpAddr::V6(bits.into())),
        ],
    }
}

fuzz_target!(|text: &str| {
    let entries: Vec<&str> = text.lines().collect();
    let value = serde_json::json!({ "destinations": entries });
    let Ok(dict) = Field::new("ip", &value).dict() else { return };
    let Ok(parsed) = Destinations::parse(&dict) else { return };
    let written: Vec<IpNet> = entries
        .iter()
        .filter(|entry| entry.split_ascii_whitespace().count() == 1)
        .filter_map(|entry| entry.trim().parse().ok())
        .collect();
    let allowed = parsed.allowed.clone().unwrap_or_default();
    // An empty list allows nothing; redirects alone restrict nothing.
    assert_eq!(parsed.allowed.is_none(), written.is_empty() && parsed.redirect());
    for net in allowed.iter().chain(&written) {
        for probe in [Some(net.network()), Some(net.broadcast())].into_iter().chain(neighbours(net)).flatten()
        {
            let asked = written.iter().any(|block| block.contains(&probe));
            assert_eq!(allowed.iter().any(|block| block.contains(&probe)), asked, "{probe}");
        }
    }
});
