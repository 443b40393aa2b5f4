//! The primary interface: the one with the pod's default route before any attachment.

use std::collections::BTreeMap;

use common::netlink::link::Link;
use common::netlink::route::{Device, Route};

use crate::names;
use crate::observe::Pod;

use super::undo::Undo;
use super::{Family, Previous, route};

/// The primary interface, for one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primary {
    /// Index of its interface.
    pub index: u32,
    /// Name of its interface.
    pub name: String,
    /// Its default routes in main before any attachment, by metric, those for a TOS last. If another program has removed them (Multus, with
    /// its annotation `default-route`), the route that is inferred from its other routes. Empty if none can be inferred.
    pub defaults: Vec<Route>,
}

/// The interface of the lowest-metric default route. If it belongs to an attachment, the one in that attachment's record. Without a default
/// route: the one in the records, otherwise that of `previous`, otherwise the only interface with routes through a gateway, otherwise the
/// only one with an address.
#[must_use]
pub fn find(
    pod: &Pod,
    family: Family,
    others: &BTreeMap<String, Undo>,
    previous: Option<&Previous>,
) -> Option<Primary> {
    // Without its journal, an attachment is known by the name of its table.
    let attached = |link: &Link| others.contains_key(&link.name) || pod.tables.contains(&link.name);
    let foreign = |link: &&Link| !link.loopback && !attached(link);
    let current = lowest_default(pod, family);
    let by_default = current.and_then(|default| pod.link_of(default)).filter(foreign);
    let by_record = || {
        let mut records: Vec<&Undo> = others.values().collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.order));
        let names = records
            .into_iter()
            .filter_map(|record| record.primary.get(&family))
            .map(|primary| primary.interface.as_str());
        names.filter_map(|name| pod.link_named(name)).next()
    };
    let by_previous =
        || pod.link_named(&previous?.interface).filter(|link| addressed(pod, link.index, family));
    let by_gateway = || {
        let mut links = pod
            .links
            .iter()
            .filter(foreign)
            .filter(|link| gateways(pod, link.index, family).next().is_some());
        links.next().filter(|_| links.next().is_none())
    };
    let by_address = || {
        let mut links = pod.links.iter().filter(foreign).filter(|link| addressed(pod, link.index, family));
        links.next().filter(|_| links.next().is_none())
    };
    let link = by_default
        .or_else(by_record)
        .or_else(|| by_previous().filter(foreign))
        .or_else(by_gateway)
        .or_else(by_address)?;
    let defaults = defaults(pod, link.index, family, others, previous);
    Some(Primary { index: link.index, name: link.name.clone(), defaults })
}

/// The default route of main that the kernel uses; one for a TOS only if there is no other.
#[must_use]
pub fn lowest_default(pod: &Pod, family: Family) -> Option<&Route> {
    route::defaults(pod, route::MAIN, family).min_by_key(|default| route::rank(default))
}

fn defaults(
    pod: &Pod,
    index: u32,
    family: Family,
    others: &BTreeMap<String, Undo>,
    previous: Option<&Previous>,
) -> Vec<Route> {
    let through = |table: u32| {
        let mut found: Vec<Route> = route::defaults(pod, table, family)
            // A route without a device has several next hops, which are assumed to be on the primary interface.
            .filter(|default| default.device.is_none_or(|device| device == Device::Index(index)))
            .cloned()
            .collect();
        found.sort_by_key(route::rank);
        found
    };
    let mut found = through(route::MAIN);
    if found.is_empty() {
        let mut records: Vec<&Undo> = others.values().collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.order));
        let mut tables = records.iter().map(|record| through(names::primary_table(record.slot)));
        found = tables.find(|defaults| !defaults.is_empty()).unwrap_or_default();
        for default in &mut found {
            default.table = route::MAIN;
        }
    }
    if found.is_empty() {
        found.extend(inferred(pod, index, family, previous));
    }
    found
}

/// A default route through the gateway of the shortest other prefix, otherwise through the gateway of `previous`.
fn inferred(pod: &Pod, index: u32, family: Family, previous: Option<&Previous>) -> Option<Route> {
    let widest = gateways(pod, index, family)
        .min_by_key(|found| (found.destination.prefix_len(), route::metric(found)));
    let previous_gateway =
        || previous?.gateways.iter().find(|gateway| Family::of(gateway) == family).copied();
    let (gateway, flags) = match widest {
        Some(found) => (found.gateway, found.flags),
        None => (Some(previous_gateway()?), 0),
    };
    let device = Some(Device::Index(index));
    Some(Route { gateway, device, flags, ..route::unicast(family.default_net()) })
}

fn gateways(pod: &Pod, index: u32, family: Family) -> impl Iterator<Item = &Route> {
    pod.routes.iter().filter(move |found| {
        found.table == route::MAIN
            && found.kind == route::UNICAST
            && found.gateway.is_some()
            && found.device == Some(Device::Index(index))
            && Family::of_net(&found.destination) == family
    })
}

fn addressed(pod: &Pod, index: u32, family: Family) -> bool {
    let global = |net: &ipnet::IpNet| match net {
        ipnet::IpNet::V4(_) => true,
        ipnet::IpNet::V6(net) => !net.addr().is_unicast_link_local(),
    };
    pod.addresses
        .iter()
        .filter(|address| address.link == index)
        .any(|address| Family::of_net(&address.net) == family && global(&address.net))
}
