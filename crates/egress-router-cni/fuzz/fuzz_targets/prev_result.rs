//! `prevResult`: a result is parsed unchanged in every version.
#![no_main]

use egress_router_cni::cni::Version;
use egress_router_cni::cni::result::Result;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(text) else { return };
    // serde_json rounds long numbers, so they are excluded.
    if serde_json::from_str::<serde_json::Value>(&value.to_string()).ok().as_ref() != Some(&value) {
        return;
    }
    let Ok(result) = Result::parse(&value) else { return };
    for version in Version::ALL {
        let output = result.to_json(version);
        let value: serde_json::Value = serde_json::from_str(&output).expect("JSON");
        let parsed = Result::parse(&value).expect("an output is a result");
        assert_eq!(parsed.to_json(version), output);
        if version == Version::NEWEST {
            assert_eq!(parsed, result);
        }
    }
});
