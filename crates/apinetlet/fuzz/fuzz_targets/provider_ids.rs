//! A provider ID that is understood is the same after it was written and read again, and names the same parts without its prefix.
#![no_main]

use apinetlet::names::Flavor;
use apinetlet::provider_id::{InterfaceId, NetworkId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for flavor in [Flavor::Onmetal, Flavor::Ironcore] {
        if let Ok(id) = NetworkId::parse(flavor, text) {
            let written = id.display(flavor).to_string();
            assert_eq!(NetworkId::parse(flavor, &written).as_ref(), Ok(&id));
            assert!(written.ends_with(text), "{written}");
        }
        if let Ok(id) = InterfaceId::parse(flavor, text) {
            let written = id.display(flavor).to_string();
            assert_eq!(InterfaceId::parse(flavor, &written).as_ref(), Ok(&id));
            assert!(!id.node.contains('/') && !id.node.is_empty(), "{id:?}");
        }
    }
});
