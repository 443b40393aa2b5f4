//! Compares an attachment with its journal. [`crate::nftables`] compares the firewall.

use std::collections::BTreeSet;

use common::netlink::link::{Link, name_of};
use common::netlink::route::{Device, Route};
use ipnet::IpNet;

use crate::names;
use crate::observe::Pod;

use super::undo::Undo;
use super::{Desired, Family, route, sysctl};

/// The differences, one sentence each.
#[must_use]
pub fn check(desired: &Desired, undo: &Undo, pod: &Pod) -> Vec<String> {
    let Some(link) = pod.link_named(&desired.interface) else {
        return vec![format!("interface {} is missing", desired.interface)];
    };
    let mut differences = links(desired, link);
    differences.extend(addresses(desired, link, pod));
    differences.extend(routes(desired, undo, link, pod));
    differences.extend(rules(desired, undo, pod));
    differences.extend(sysctls(desired, undo, pod));
    differences
}

/// The sysctls that ADD changed, and those that already had the required value.
fn sysctls(desired: &Desired, undo: &Undo, pod: &Pod) -> BTreeSet<String> {
    let primary = |family: Family| undo.primary.get(&family).map(|primary| primary.interface.clone());
    let needed = sysctl::lacking(pod, desired, primary);
    let needed = needed.iter().map(|(name, value)| (name, *value));
    let changed = undo.sysctls.iter().map(|changed| (&changed.name, changed.value.as_str()));
    let differs = |(name, value): (&Vec<String>, &str)| {
        let found = pod.sysctls.get(name).filter(|found| *found != value)?;
        Some(format!("sysctl {} is {found}, not {value}", name.join(".")))
    };
    needed.chain(changed).filter_map(differs).collect()
}

fn links(desired: &Desired, link: &Link) -> Vec<String> {
    let mut differences = Vec::new();
    let mut differ = |what: &str, found: String, made: String| {
        if found != made {
            differences.push(format!("interface {}: {what} is {found}, not {made}", desired.interface));
        }
    };
    let kind = name_of(&desired.kind);
    differ("kind", link.kind.clone(), kind.to_owned());
    if link.kind == kind {
        differ("mode", format!("{:?}", link.mode), format!("{:?}", Some(desired.kind)));
        if let Some(parent) = link.parent {
            differ("index of its master", parent.to_string(), desired.master.to_string());
        }
    }
    if let Some(mtu) = desired.mtu {
        differ("mtu", link.mtu.to_string(), mtu.to_string());
    }
    if let Some(mac) = desired.mac {
        differ("mac", format!("{:02x?}", link.mac.unwrap_or_default()), format!("{mac:02x?}"));
    }
    differ("up", link.up.to_string(), true.to_string());
    differences
}

fn addresses(desired: &Desired, link: &Link, pod: &Pod) -> Vec<String> {
    let there =
        |net: &IpNet| pod.addresses.iter().any(|address| address.link == link.index && address.net == *net);
    let missing = desired.addresses.iter().filter(|net| !there(net));
    missing.map(|net| format!("interface {}: address {net} is missing", desired.interface)).collect()
}

fn routes(desired: &Desired, undo: &Undo, link: &Link, pod: &Pod) -> Vec<String> {
    let device = Device::Index(link.index);
    let mut expected = route::egress(desired, undo.slot, device);
    expected.extend(desired.families().filter_map(|family| route::to_gateway(desired, family, device)));
    expected.extend(undo.routes.iter().filter_map(|saved| saved.route(pod)));
    let missing = expected.iter().filter(|route| !pod.routes.iter().any(|there| route::same(there, route)));
    let mut differences: Vec<String> =
        missing.map(|route| format!("route {} is missing", words(route, pod))).collect();
    let others = &pod.attachments;
    for family in desired.families() {
        let primary_default = undo.primary.get(&family).is_some_and(|primary| primary.default);
        if primary_default && route::defaults(pod, names::primary_table(undo.slot), family).next().is_none() {
            differences.push(format!(
                "table {} has no default route {}",
                names::primary_table(undo.slot),
                name(family)
            ));
        }
        let younger =
            others.values().any(|other| other.order > undo.order && other.families.contains(&family));
        // Another plugin may have changed its gateway (Multus does). It must not have been removed, and no other default route may have
        // the same metric or a TOS, because the kernel could use that one.
        let (ours, theirs): (Vec<&Route>, Vec<&Route>) =
            route::defaults(pod, route::MAIN, family).partition(|route| route.device == Some(device));
        let first = ours.into_iter().map(route::rank).min();
        let taken = |other: &&Route| other.tos != 0 || first.is_none_or(|first| route::rank(other) <= first);
        let instead = theirs.into_iter().filter(taken).min_by_key(|other| route::rank(other));
        if !younger && (first.is_none() || instead.is_some()) {
            let found = instead.map_or_else(|| "missing".to_owned(), |route| words(route, pod));
            let interface = &desired.interface;
            differences
                .push(format!("the default route {} is {found}, not through {interface}", name(family)));
        }
    }
    differences
}

fn rules(desired: &Desired, undo: &Undo, pod: &Pod) -> Vec<String> {
    let expected = route::rules(desired, undo.slot, |family| undo.primary.contains_key(&family));
    let missing = expected.iter().filter(|rule| {
        !pod.rules.iter().any(|there| {
            (there.ipv6, there.priority, there.mark, there.from, there.table)
                == (rule.ipv6, rule.priority, rule.mark, rule.from, rule.table)
        })
    });
    missing.map(|rule| format!("rule {rule} is missing")).collect()
}

fn name(family: Family) -> &'static str {
    if family.is_v6() { "of IPv6" } else { "of IPv4" }
}

/// A route as ip-route(8) writes it, with the name of its device.
fn words(route: &Route, pod: &Pod) -> String {
    match pod.link_of(route) {
        Some(link) => {
            route.to_string().replacen(&format!(" dev {}", link.index), &format!(" dev {}", link.name), 1)
        }
        None => route.to_string(),
    }
}
