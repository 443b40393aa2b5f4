//! `CNI_ARGS`: no panic, and parsed values are in the input.
#![no_main]

use egress_router_cni::cni::args::Args;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(args) = Args::parse(text) {
        for value in [args.pod_namespace, args.pod_name, args.mac, args.ip].into_iter().flatten() {
            assert!(!value.is_empty() && text.contains(&value) && !value.contains(';'));
        }
    }
});
