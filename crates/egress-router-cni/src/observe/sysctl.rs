//! The sysctls that a plan may change, out of one netlink dump: as files they were two dozen system calls.

use std::collections::BTreeMap;

use crate::netlink::link::Link;
use crate::netlink::netconf::{Netconf, Scope};

/// `forwarding` and `rp_filter` by their names, for `all`, `default` and each link.
pub fn names(settings: &[Netconf], links: &[Link]) -> BTreeMap<Vec<String>, String> {
    let mut sysctls = BTreeMap::new();
    for settings in settings {
        let scope = match settings.scope {
            Scope::All => "all",
            Scope::Default => "default",
            Scope::Link(index) => match links.iter().find(|link| link.index == index) {
                Some(link) => &link.name,
                // It came or went between two dumps.
                None => continue,
            },
        };
        let family = if settings.ipv6 { "ipv6" } else { "ipv4" };
        for (key, value) in [("forwarding", settings.forwarding), ("rp_filter", settings.rp_filter)] {
            if let Some(value) = value {
                let name = ["net", family, "conf", scope, key].map(str::to_owned).to_vec();
                sysctls.insert(name, value.to_string());
            }
        }
    }
    sysctls
}
