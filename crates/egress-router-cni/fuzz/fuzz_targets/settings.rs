//! The node's settings: no panic.
#![no_main]

use egress_router_cni::config::settings::Settings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    if let Ok(settings) = Settings::parse(text) {
        assert!(settings.kubeconfig.is_absolute() && settings.state_directory.is_absolute());
        assert!(settings.cluster_networks.iter().all(|network| network.prefix_len() > 0));
    }
});
