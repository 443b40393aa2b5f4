//! The sysctls that a plan may change, out of one netlink dump: as files they were two dozen system calls.

use std::collections::BTreeMap;

use crate::netlink::link::Link;
use crate::netlink::netconf::{Netconf, Scope};
use crate::netlink::route::{Device, Route};
use crate::plan::note;
use crate::plan::sysctl::routers;

use super::Pod;

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

/// Whether links take default routes that routers advertise: a file for each link, so it is read only for those that have such
/// a route, and for those of which a record speaks. One that cannot be read is not known.
pub fn unsaid(pod: &Pod) -> Vec<(Vec<String>, String)> {
    let records = note::all(pod);
    let advertised: Vec<&Route> = pod.routes.iter().filter(|route| route.is_advertised_default()).collect();
    if records.is_empty() && advertised.is_empty() {
        return Vec::new();
    }
    let read = |link: &Link| {
        let name = routers(&link.name);
        let heard = advertised.iter().any(|route| route.device == Some(Device::Index(link.index)));
        let mut recorded = records.values().flat_map(|notes| &notes.sysctls);
        if !heard && !recorded.any(|changed| changed.name == name) {
            return None;
        }
        let value = std::fs::read_to_string(format!("/proc/sys/{}", name.join("/"))).ok()?;
        Some((name, value.trim().to_owned()))
    };
    pod.links.iter().filter_map(read).collect()
}
