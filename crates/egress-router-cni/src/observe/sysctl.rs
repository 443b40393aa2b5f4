//! Reads the sysctls that a plan may change with one netlink dump instead of two dozen system calls for files.

use std::collections::BTreeMap;

use common::netlink::link::Link;
use common::netlink::netconf::{Netconf, Scope};
use common::netlink::route::Route;

use super::Pod;
use crate::plan::Family;
use crate::plan::sysctl::{conf, routers};

/// `forwarding` and `rp_filter` by their names, for `all`, `default` and each link.
pub fn names(settings: &[Netconf], links: &[Link]) -> BTreeMap<Vec<String>, String> {
    let mut sysctls = BTreeMap::new();
    for settings in settings {
        let scope = match settings.scope {
            Scope::All => "all",
            Scope::Default => "default",
            Scope::Link(index) => match links.iter().find(|link| link.index == index) {
                Some(link) => &link.name,
                // The link appeared or disappeared between two dumps.
                None => continue,
            },
        };
        let family = if settings.ipv6 { Family::V6 } else { Family::V4 };
        for (key, value) in [("forwarding", settings.forwarding), ("rp_filter", settings.rp_filter)] {
            if let Some(value) = value {
                sysctls.insert(conf(family, scope, key), value.to_string());
            }
        }
    }
    sysctls
}

/// `accept_ra_defrtr` of links. Netlink does not report it, and it is a file for each link. So it is read only if the plan may need it: if
/// there is an advertised default route, or an attachment. An unreadable file is omitted.
pub fn accept_ra_defrtr(pod: &Pod) -> Vec<(Vec<String>, String)> {
    if pod.attachments.is_empty() && !pod.routes.iter().any(Route::is_advertised_default) {
        return Vec::new();
    }
    let read = |link: &Link| {
        let name = routers(&link.name);
        let value = std::fs::read_to_string(format!("/proc/sys/{}", name.join("/"))).ok()?;
        Some((name, value.trim().to_owned()))
    };
    pod.links.iter().filter(|link| !link.loopback).filter_map(read).collect()
}
