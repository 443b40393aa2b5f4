//! Any reply of a kernel about tables, chains, rules, sets and elements is described or refused.
#![no_main]

use common::netlink::message::messages;
use egress_router_cni::nftables::fingerprint::{describe, elements};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    for (_, payload) in messages(datagram).flatten() {
        let described = describe(payload, "egress_router_net1", &[2, 3, 4, 5, 7, 10]);
        if let Ok(Some(description)) = described {
            assert!(description.len() <= payload.len() * 4);
        }
        let _ = elements(payload);
    }
});
