//! A ConfigMap's `ip` and, on the first line, `overrides`: the result never exceeds them.
#![no_main]

use std::collections::BTreeMap;

use egress_router_cni::cni::field::Field;
use egress_router_cni::config::ip_config::IpConfig;
use egress_router_cni::plan::Family;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some((overrides, ip)) = text.split_once('\n') else { return };
    let Ok(overrides) = serde_json::from_str::<serde_json::Value>(overrides) else { return };
    let value = serde_json::json!({ "name": "a", "overrides": overrides });
    let Ok(config) = IpConfig::parse(&Field::new("ipConfig", &value)) else { return };
    for key in ["ip", "podIP"] {
        let data = BTreeMap::from([(key.to_owned(), ip.to_owned())]);
        let (Ok(given), Some(limits)) = (config.resolve(&data, Some("pod-0")), &config.overrides) else {
            continue;
        };
        assert!(!given.addresses.is_empty());
        if !limits.addresses.is_empty() {
            for address in &given.addresses {
                assert!(limits.addresses.iter().any(|limit| limit.addr() == address.addr()));
            }
        }
        if limits.gateways.all().next().is_some() {
            assert!(
                given.gateways.all().all(|gateway| limits.gateways.of(Family::of(&gateway)) == Some(gateway))
            );
        }
        let Some(blocks) = &limits.destinations.allowed else { continue };
        let allowed = given.destinations.allowed.expect("a list that was limited stays one");
        assert!(allowed.iter().all(|net| blocks.iter().any(|block| block.contains(net))));
        for redirect in &given.destinations.redirects {
            let listed = limits.destinations.redirects.contains(redirect);
            assert!(listed || blocks.iter().any(|block| block.contains(&redirect.to)));
        }
    }
});
