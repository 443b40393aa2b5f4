//! The API server's answer: a ConfigMap, or words that fit in an Event.
#![no_main]

use egress_router_cni::kubernetes::request::{Answer, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8])| {
    let (status, body) = input;
    for status in [200, status] {
        match read(status, body) {
            Answer::Data(_) => assert_eq!(status, 200),
            Answer::Refused { words, .. } | Answer::Untrusted(words) | Answer::Again(words) => {
                assert!(words.chars().count() < 1000);
            }
        }
    }
});
