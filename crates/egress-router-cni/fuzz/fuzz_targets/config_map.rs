//! The API server's response: a ConfigMap, or an error that fits into an Event.
#![no_main]

use egress_router_cni::kubernetes::request::{Response, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8])| {
    let (status, body) = input;
    for status in [200, status] {
        match read(status, body) {
            Response::Data(_) => assert_eq!(status, 200),
            Response::Refused { details, .. } | Response::Untrusted(details) | Response::Retry(details) => {
                assert!(details.chars().count() < 1000);
            }
        }
    }
});
