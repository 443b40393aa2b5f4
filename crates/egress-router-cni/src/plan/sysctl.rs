//! Sysctls that an attachment needs: of the pod's own network (restored by DEL of the last attachment that needs them) and of
//! its own link (which takes them away with itself).

use std::collections::BTreeMap;

use crate::netlink::route::{Device, Route};
use crate::observe::Pod;

use super::table_record::{Changed, TableRecord};
use super::{Desired, Family, Step, primary::Primary};

/// `net.<family>.conf.<interface>.<key>`.
#[must_use]
pub fn conf(family: Family, interface: &str, key: &str) -> Vec<String> {
    let family = if family.is_v6() { "ipv6" } else { "ipv4" };
    ["net", family, "conf", interface, key].map(str::to_owned).to_vec()
}

/// Whether an interface takes default routes that routers advertise (RFC 4861, 6.3.4).
#[must_use]
pub fn routers(interface: &str) -> Vec<String> {
    conf(Family::V6, interface, "accept_ra_defrtr")
}

/// Which sysctls of the pod have to be different for `desired`, in the order in which they are set; with what they were before
/// any attachment, which the records of `others` know better than the pod.
///
/// * A pod that drops what comes from where it would not send to (`rp_filter` 1) would drop what comes from other nodes once
///   its default route leads elsewhere; 2 asks only that there is a way.
/// * A router that has advertised home's default route does so again every few minutes, and each time the kernel would put it
///   beside the one that took its place.
/// * Forwarding is on only for redirects. IPv4 asks the device by which a packet came; IPv6 only knows one switch for all
///   (which sets each device's as well, so those that were on already are set again when it goes off: they come before it, as
///   undoing goes backwards).
#[must_use]
pub fn of_pod(
    pod: &Pod,
    desired: &Desired,
    primaries: &BTreeMap<Family, Primary>,
    others: &BTreeMap<String, TableRecord>,
) -> Vec<Changed> {
    let mut needed: Vec<(Vec<String>, &str)> = Vec::new();
    if let Some(primary) = primaries.get(&Family::V4) {
        let strict =
            |interface: &str| original(pod, others, &conf(Family::V4, interface, "rp_filter")) == Some("1");
        let loose =
            |interface: &str| original(pod, others, &conf(Family::V4, interface, "rp_filter")) == Some("2");
        // The kernel takes the greater of both.
        if (strict("all") || strict(&primary.name)) && !loose("all") && !loose(&primary.name) {
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

fn ipv6_forwarding(pod: &Pod, others: &BTreeMap<String, TableRecord>) -> Vec<Changed> {
    let all = conf(Family::V6, "all", "forwarding");
    // Whoever turned it on knows how each device was; now they are all on.
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

/// Those of the new link. Before it goes up: it says who has its address when it does, answers for no other, believes no
/// router, and skips duplicate address detection. Without an address of IPv6, it speaks none.
#[must_use]
pub fn of_link(pod: &Pod, desired: &Desired) -> Vec<Step> {
    let mut needed: Vec<(Family, &str, &str)> = Vec::new();
    // A kernel without IPv6 has no such file, and nothing to be told.
    if pod.sysctls.keys().any(|name| name.get(1).is_some_and(|family| family == "ipv6")) {
        if desired.source(Family::V6).is_some() {
            needed.extend([
                (Family::V6, "accept_ra", "0"),
                (Family::V6, "disable_ipv6", "0"),
                (Family::V6, "accept_dad", "0"),
                (Family::V6, "ndisc_notify", "1"),
            ]);
        } else {
            // No host outside reaches the pod by a link-local address, and the kernel has less to do when the link goes up.
            needed.push((Family::V6, "disable_ipv6", "1"));
        }
    }
    if desired.source(Family::V4).is_some() {
        if has_redirects(desired, Family::V4) {
            needed.push((Family::V4, "forwarding", "1"));
            // Replies to redirected connections come from hosts that main routes elsewhere once a newer attachment has the default route.
            if strict_when_new(pod) {
                needed.push((Family::V4, "rp_filter", "2"));
            }
        }
        // Last, next to what else the kernel is asked for by netlink.
        needed.extend([
            (Family::V4, "arp_notify", "1"),
            // Not for the pod's other addresses, which do not belong to this network.
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

/// Whether a new link would drop what comes from where it would not send to.
fn strict_when_new(pod: &Pod) -> bool {
    let is = |interface: &str, value: &str| {
        pod.sysctls.get(&conf(Family::V4, interface, "rp_filter")).is_some_and(|found| found == value)
    };
    (is("all", "1") || is("default", "1")) && !is("all", "2") && !is("default", "2")
}

/// Which sysctls are not as `desired` needs them, whoever has changed them, and also where ADD found them right: name and value
/// that is needed. `primary` is the name of the pod's own interface.
#[must_use]
pub fn lacking(
    pod: &Pod,
    desired: &Desired,
    primary: impl Fn(Family) -> Option<String>,
) -> Vec<(Vec<String>, &'static str)> {
    let is = |interface: &str, key: &str, value: &str| {
        pod.sysctls.get(&conf(Family::V4, interface, key)).is_some_and(|found| found == value)
    };
    // The kernel takes the greater of both.
    let is_strict = |interface: &str| {
        let either = |value: &str| is("all", "rp_filter", value) || is(interface, "rp_filter", value);
        either("1") && !either("2")
    };
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
    // A device that went away took its sysctls along.
    needed.retain(|(name, value)| pod.sysctls.get(name).is_some_and(|found| found != value));
    needed
}

/// What a sysctl was before any attachment.
fn original<'a>(pod: &'a Pod, others: &'a BTreeMap<String, TableRecord>, name: &[String]) -> Option<&'a str> {
    recorded(others, name)
        .map(|changed| changed.original.as_str())
        .or_else(|| pod.sysctls.get(name).map(String::as_str))
}

fn recorded<'a>(others: &'a BTreeMap<String, TableRecord>, name: &[String]) -> Option<&'a Changed> {
    others.values().flat_map(|record| &record.sysctls).find(|changed| changed.name == name)
}

/// Whether a router has advertised a default route of home's.
fn is_advertised(pod: &Pod, primary: &Primary) -> bool {
    let through = |route: &Route| route.device == Some(Device::Index(primary.index));
    pod.routes.iter().any(|route| route.is_advertised_default() && through(route))
}

/// Whether something that comes in by the pod's own network goes on through the attachment.
#[must_use]
pub fn has_redirects(desired: &Desired, family: Family) -> bool {
    let destinations = &desired.destinations;
    let fallback = match family {
        Family::V4 => destinations.fallback_v4.is_some(),
        Family::V6 => destinations.fallback_v6.is_some(),
    };
    fallback || destinations.redirects.iter().any(|redirect| Family::of(&redirect.to) == family)
}

/// Whether IPv6's switch for all sets this one too.
#[must_use]
pub fn is_ipv6_forwarding(name: &[String]) -> bool {
    matches!(name, [net, family, conf, _, key] if net == "net" && family == "ipv6" && conf == "conf" && key == "forwarding")
}
