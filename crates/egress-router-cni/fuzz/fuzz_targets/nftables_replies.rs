//! Any reply of a kernel about tables, chains, rules, sets and elements is described or refused.
#![no_main]

use common::netlink::message::messages;
use egress_router_cni::nftables::fingerprint::parts;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    for (header, payload) in messages(datagram).flatten() {
        for (_, part) in parts("egress_router_net1", header.kind, payload).into_iter().flatten() {
            assert!(part.len() <= payload.len() * 4);
        }
    }
});
