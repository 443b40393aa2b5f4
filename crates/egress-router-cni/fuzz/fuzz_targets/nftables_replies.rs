//! Any reply of a kernel about tables, chains, rules, sets and elements is decoded or refused, and compared with the desired table.
#![no_main]

use common::netlink::message::{Malformed, messages};
use egress_router_cni::config::destinations::Destinations;
use egress_router_cni::firewall::{Firewall, Forwards, Primaries};
use egress_router_cni::nftables::difference::{Observed, differences};
use egress_router_cni::nftables::observed::{Chain, Element, Rule, Set, Table};
use libfuzzer_sys::fuzz_target;

fn read(found: &mut Observed, kind: u16, payload: &[u8]) -> Result<(), Malformed> {
    // NFT_MSG_NEW…
    match kind & 0xff {
        0 => found.table = Some(Table::read(payload)?),
        3 => found.chains.push(Chain::read(payload)?),
        6 => found.rules.push(Rule::read(payload)?),
        9 => found.sets.push((Set::read(payload)?, Vec::new())),
        _ => {
            let elements = Element::read_all(payload)?;
            if let Some((_, all)) = found.sets.last_mut() {
                all.extend(elements);
            }
        }
    }
    Ok(())
}

fuzz_target!(|datagram: &[u8]| {
    let mut found = Observed::default();
    for (header, payload) in messages(datagram).flatten() {
        let _ = read(&mut found, header.kind, payload);
    }
    let firewall = Firewall {
        interface: "net1".into(),
        primary: Primaries::both("eth0"),
        mark: 0x1_0000,
        addresses: vec!["192.0.2.1".parse().expect("an address")],
        destinations: Destinations { allowed: Some(Vec::new()), ..Destinations::default() },
        forwards: Forwards::default(),
        record: vec!["record".into()],
    };
    let _ = differences(&firewall.ruleset(), &found);
});
