//! EC2's answers: elements, or malformed.
#![no_main]

use egress_router_cni::aws::xml::Element;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|document: &[u8]| {
    if let Ok(root) = Element::parse(document) {
        assert!(!root.name.is_empty());
    }
});
