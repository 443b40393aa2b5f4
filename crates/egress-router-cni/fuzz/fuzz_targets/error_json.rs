//! An error with any message is valid JSON.
#![no_main]

use egress_router_cni::cni::{Code, Error};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|details: &str| {
    let json = Error::new(Code::Kernel, "refused").details(details).to_json("1.0.0");
    let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(read.get("details").and_then(|value| value.as_str()).unwrap_or_default(), details);
});
