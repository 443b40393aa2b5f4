//! What is written into a table is read from it.
#![no_main]

use egress_router_cni::netlink::nftables::comment;
use egress_router_cni::plan::note::Notes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines: Vec<&str> = text.lines().collect();
    if let Some(notes) = Notes::parse(&lines) {
        let written = notes.lines();
        assert_eq!(Notes::parse(&written).as_ref(), Some(&notes));
    }
    assert_eq!(comment::joined(comment::split(text)), [text]);
});
