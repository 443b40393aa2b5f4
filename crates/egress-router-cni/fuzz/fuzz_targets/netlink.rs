//! Whatever the kernel's answers hold, they are read or malformed.
#![no_main]

use egress_router_cni::netlink::message::{acknowledgement, attributes, messages};
use egress_router_cni::netlink::nftables::{comment, found};
use egress_router_cni::netlink::{address, link, netconf, route, rule};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    for message in messages(datagram) {
        let Ok((header, payload)) = message else { break };
        let _ = acknowledgement(header, payload);
        let _ = link::Link::decode(payload);
        let _ = address::Address::decode(payload);
        let _ = route::Route::decode(payload);
        let _ = rule::Rule::decode(payload);
        let _ = netconf::Netconf::decode(payload);
        let _ = found::Table::read(payload);
        let _ = found::Chain::read(payload);
        let _ = found::Set::read(payload);
        let _ = found::Rule::read(payload);
        let _ = found::Element::read_all(payload);
    }
    for attribute in attributes(datagram) {
        let Ok(attribute) = attribute else { break };
        let _ = attribute.nested().count();
    }
    let _ = comment::decode(datagram);
});
