//! A kubeconfig: no panic, and no request without TLS.
#![no_main]

use std::path::Path;

use egress_router_cni::kubernetes::kubeconfig::Access;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    // It could name files of this machine.
    if text.windows(1).any(|byte| byte == b"/") && !text.windows(8).any(|word| word == b"https://") {
        return;
    }
    if let Ok(access) = Access::parse(text, Path::new("/nowhere/kubeconfig")) {
        assert_eq!(access.server.scheme_str(), Some("https"));
        assert!(access.token.is_none_or(|token| token.bytes().all(|byte| byte.is_ascii_graphic())));
    }
});
