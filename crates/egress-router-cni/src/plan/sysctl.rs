//! Sysctls that an attachment needs: of the primary interface (restored by DEL of the last attachment that needs them) and of the new link
//! (deleted with it).

use std::collections::BTreeMap;

use common::netlink::route::{Device, Route};

use crate::observe::Pod;

use super::undo::{Changed, Undo};
use super::{Desired, Family, Step, primary::Primary};

/// `net.<family>.conf.<interface>.<key>`.
#[must_use]
pub fn conf(family: Family, interface: &str, key: &str) -> Vec<String> {
    let family = if family.is_v6() { "ipv6" } else { "ipv4" };
    ["net", family, "conf", interface, key].map(str::to_owned).to_vec()
}

/// `accept_ra_defrtr`: whether an interface accepts advertised default routes (RFC 4861, 6.3.4).
#[must_use]
pub fn routers(interface: &str) -> Vec<String> {
    conf(Family::V6, interface, "accept_ra_defrtr")
}

/// The sysctls of the pod to change for `desired`, in order, with their values before any attachment, which are in the records of
/// `others`.
///
/// * `rp_filter` 1 (strict) of the primary interface would drop packets from other nodes after the default route has moved; 2 (loose) only
///   requires any route to the source.
/// * An advertised default route of the primary interface would be added again by each advertisement, every few minutes.
/// * `forwarding` only for redirects. IPv4 uses the value of the input device. IPv6 has one value for all, which also sets each device's,
///   so devices with forwarding must be set again when it is disabled: they come before it, because the rollback is in reverse order.
#[must_use]
pub fn of_pod(
    pod: &Pod,
    desired: &Desired,
    primaries: &BTreeMap<Family, Primary>,
    others: &BTreeMap<String, Undo>,
) -> Vec<Changed> {
    let mut needed: Vec<(Vec<String>, &str)> = Vec::new();
    if let Some(primary) = primaries.get(&Family::V4) {
        if is_strict(&primary.name, |name| original(pod, others, name)) {
            needed.push((conf(Family::V4, &primary.name, "rp_filter"), "2"));
        }
        if has_redirects(desired, Family::V4) {
            needed.push((conf(Family::V4, &primary.name, "forwarding"), "1"));
        }
    }
    if let Some(primary) = primaries.get(&Family::V6) {
        let name = routers(&primary.name);
        if is_advertised(pod, primary) || recorded(others, &name).is_some() {
            needed.push((name, "0"));
        }
    }
    let mut changed: Vec<Changed> = needed
        .into_iter()
        .filter_map(|(name, value)| {
            let original = original(pod, others, &name)?.to_owned();
            (original != value).then(|| Changed { name, value: value.to_owned(), original })
        })
        .collect();
    if primaries.contains_key(&Family::V6) && has_redirects(desired, Family::V6) {
        changed.extend(ipv6_forwarding(pod, others));
    }
    changed
}

fn ipv6_forwarding(pod: &Pod, others: &BTreeMap<String, Undo>) -> Vec<Changed> {
    let all = conf(Family::V6, "all", "forwarding");
    // The attachment that enabled it has recorded each device's value; now all are enabled.
    let known = others.values().find(|record| record.sysctls.iter().any(|changed| changed.name == all));
    if let Some(record) = known {
        return record.sysctls.iter().filter(|changed| is_ipv6_forwarding(&changed.name)).cloned().collect();
    }
    let on =
        |original: &String| Changed { name: Vec::new(), value: "1".to_owned(), original: original.clone() };
    let Some(before) = pod.sysctls.get(&all).filter(|value| *value != "1") else { return Vec::new() };
    let own =
        pod.sysctls.iter().filter(|(name, value)| is_ipv6_forwarding(name) && **name != all && *value == "1");
    let mut changed: Vec<Changed> =
        own.map(|(name, value)| Changed { name: name.clone(), ..on(value) }).collect();
    changed.push(Changed { name: all, ..on(before) });
    changed
}

/// The sysctls of the new link, set before it is up: announce its addresses, respond to ARP for no other address, ignore router
/// advertisements, and skip duplicate address detection. Without an IPv6 address, IPv6 is disabled.
#[must_use]
pub fn of_link(pod: &Pod, desired: &Desired) -> Vec<Step> {
    let mut needed: Vec<(Family, &str, &str)> = Vec::new();
    // A kernel without IPv6 has no such file.
    if pod.sysctls.keys().any(|name| name.get(1).is_some_and(|family| family == "ipv6")) {
        if desired.source(Family::V6).is_some() {
            needed.extend([
                (Family::V6, "accept_ra", "0"),
                (Family::V6, "disable_ipv6", "0"),
                (Family::V6, "accept_dad", "0"),
                (Family::V6, "ndisc_notify", "1"),
            ]);
        } else {
            // No external host needs the pod's link-local address, and the link is up faster without it.
            needed.push((Family::V6, "disable_ipv6", "1"));
        }
    }
    if desired.source(Family::V4).is_some() {
        if has_redirects(desired, Family::V4) {
            needed.push((Family::V4, "forwarding", "1"));
            // Replies to redirected connections come from hosts that main routes elsewhere once a newer attachment has the default route.
            if is_strict("default", |name| current(pod, name)) {
                needed.push((Family::V4, "rp_filter", "2"));
            }
        }
        // Last, so that they are batched with other netlink requests.
        needed.extend([
            (Family::V4, "arp_notify", "1"),
            // No ARP replies for the pod's other addresses, which are not in this network.
            (Family::V4, "arp_ignore", "1"),
            (Family::V4, "arp_announce", "2"),
        ]);
    }
    let step = |(family, key, value): (Family, &str, &str)| Step::Sysctl {
        name: conf(family, &desired.interface, key),
        value: value.to_owned(),
        before: None,
    };
    needed.into_iter().map(step).collect()
}

/// Whether IPv4's reverse path filter of this interface is strict, of sysctls with these values. The kernel uses the greater of its own value
/// and that of `all`.
fn is_strict<'a>(interface: &str, value: impl Fn(&[String]) -> Option<&'a str>) -> bool {
    let values = ["all", interface].map(|of| value(&conf(Family::V4, of, "rp_filter")));
    values.contains(&Some("1")) && !values.contains(&Some("2"))
}

/// The sysctls whose value is not the one that `desired` needs, also if ADD did not change them: name and required value. `primary` is the
/// name of the primary interface.
#[must_use]
pub fn lacking(
    pod: &Pod,
    desired: &Desired,
    primary: impl Fn(Family) -> Option<String>,
) -> Vec<(Vec<String>, &'static str)> {
    let is_strict = |interface: &str| is_strict(interface, |name| current(pod, name));
    let mut needed = Vec::new();
    if has_redirects(desired, Family::V4) && is_strict(&desired.interface) {
        needed.push((conf(Family::V4, &desired.interface, "rp_filter"), "2"));
    }
    if let Some(primary) = primary(Family::V4) {
        if is_strict(&primary) {
            needed.push((conf(Family::V4, &primary, "rp_filter"), "2"));
        }
        if has_redirects(desired, Family::V4) {
            needed.push((conf(Family::V4, &primary, "forwarding"), "1"));
            needed.push((conf(Family::V4, &desired.interface, "forwarding"), "1"));
        }
    }
    if primary(Family::V6).is_some() && has_redirects(desired, Family::V6) {
        needed.push((conf(Family::V6, "all", "forwarding"), "1"));
    }
    // The sysctls of a deleted device no longer exist.
    needed.retain(|(name, value)| pod.sysctls.get(name).is_some_and(|found| found != value));
    needed
}

/// The value of a sysctl before any attachment.
fn original<'a>(pod: &'a Pod, others: &'a BTreeMap<String, Undo>, name: &[String]) -> Option<&'a str> {
    recorded(others, name).map(|changed| changed.original.as_str()).or_else(|| current(pod, name))
}

fn current<'a>(pod: &'a Pod, name: &[String]) -> Option<&'a str> {
    pod.sysctls.get(name).map(String::as_str)
}

fn recorded<'a>(others: &'a BTreeMap<String, Undo>, name: &[String]) -> Option<&'a Changed> {
    others.values().flat_map(|record| &record.sysctls).find(|changed| changed.name == name)
}

/// Whether the primary interface has an advertised default route.
fn is_advertised(pod: &Pod, primary: &Primary) -> bool {
    let through = |route: &Route| route.device == Some(Device::Index(primary.index));
    pod.routes.iter().any(|route| route.is_advertised_default() && through(route))
}

/// Whether traffic from the primary interface is forwarded through the attachment.
#[must_use]
pub fn has_redirects(desired: &Desired, family: Family) -> bool {
    desired.destinations.targets().any(|to| Family::of(&to) == family)
}

/// Whether IPv6's `all` also sets this one.
#[must_use]
pub fn is_ipv6_forwarding(name: &[String]) -> bool {
    matches!(name, [net, family, conf, _, key] if net == "net" && family == "ipv6" && conf == "conf" && key == "forwarding")
}
