//! Routes and rules of an attachment: the egress table, the primary table, and the rules that select them.

use std::net::{IpAddr, Ipv4Addr};

use common::netlink::route::{Device, Route};
use common::netlink::rule::Rule;
use ipnet::{IpNet, Ipv4Net};

use crate::names;
use crate::observe::Pod;

use super::primary::Primary;
use super::{Desired, Family, sysctl};

/// The table main.
pub const MAIN: u32 = libc::RT_TABLE_MAIN as u32;
/// The type of ordinary routes.
pub const UNICAST: u8 = libc::RTN_UNICAST;
/// The scope of routes without a gateway.
pub const LINK: u8 = libc::RT_SCOPE_LINK;

/// A plain route of the plugin in main.
#[must_use]
pub fn unicast(destination: IpNet) -> Route {
    Route {
        table: MAIN,
        destination,
        gateway: None,
        device: None,
        source: None,
        metric: None,
        protocol: names::PROTOCOL,
        scope: 0,
        kind: UNICAST,
        tos: 0,
        flags: 0,
        rest: Vec::new(),
    }
}

/// The metric in the kernel: IPv6 has none below 1.
#[must_use]
pub fn metric(route: &Route) -> u32 {
    match (Family::of_net(&route.destination), route.metric) {
        (Family::V6, None | Some(0)) => 1024,
        (_, metric) => metric.unwrap_or(0),
    }
}

/// The sort key of default routes: by metric. Routes for a TOS come last, because they only apply to packets with this TOS.
#[must_use]
pub fn rank(default: &Route) -> (bool, u32) {
    (default.tos != 0, metric(default))
}

/// Whether both are the same entry for the kernel.
#[must_use]
pub fn same_entry(one: &Route, other: &Route) -> bool {
    one.table == other.table
        && one.destination.trunc() == other.destination.trunc()
        && metric(one) == metric(other)
        && one.tos == other.tos
}

/// Whether both have the same next hop.
#[must_use]
pub fn same(one: &Route, other: &Route) -> bool {
    same_entry(one, other)
        && one.gateway == other.gateway
        && one.device == other.device
        && one.kind == other.kind
}

/// Unicast default routes of a table.
pub fn defaults(pod: &Pod, table: u32, family: Family) -> impl Iterator<Item = &Route> {
    pod.routes.iter().filter(move |route| {
        route.table == table
            && route.kind == UNICAST
            && route.destination.prefix_len() == 0
            && Family::of_net(&route.destination) == family
    })
}

fn on_link(destination: IpNet, device: Device) -> Route {
    // IPv6 has no scopes of routes.
    let scope = if destination.addr().is_ipv4() { LINK } else { 0 };
    Route { device: Some(device), scope, ..unicast(destination) }
}

/// The route to the gateway, if it is in none of the networks of the pod's addresses.
#[must_use]
pub fn to_gateway(desired: &Desired, family: Family, device: Device) -> Option<Route> {
    let gateway = desired.gateways.of(family)?;
    if link_local(&gateway) || desired.addresses.iter().any(|net| net.contains(&gateway)) {
        return None;
    }
    Some(on_link(gateway.into(), device))
}

/// The attachment's default route in main.
#[must_use]
pub fn main_default(desired: &Desired, family: Family, device: Device) -> Route {
    let gateway = desired.gateways.of(family);
    let scope = if gateway.is_none() && family == Family::V4 { LINK } else { 0 };
    Route {
        gateway,
        device: Some(device),
        source: desired.source(family),
        scope,
        ..unicast(family.default_net())
    }
}

/// The egress table: the attachment's networks and gateway, for packets with its source address.
#[must_use]
pub fn egress(desired: &Desired, slot: u32, device: Device) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for net in &desired.addresses {
        let route = on_link(net.trunc(), device);
        // One route for several addresses of one network.
        if net.prefix_len() < net.max_prefix_len() && !routes.iter().any(|other| same_entry(other, &route)) {
            routes.push(route);
        }
    }
    for family in desired.families() {
        routes.extend(to_gateway(desired, family, device));
        routes.push(main_default(desired, family, device));
    }
    for route in &mut routes {
        route.table = names::egress_table(slot);
    }
    routes
}

/// The primary table: a copy of the primary interface's routes in main, longest prefixes first (a gateway must be reachable when its route
/// is added), the default route last.
#[must_use]
pub fn primary(pod: &Pod, primary: &Primary, family: Family, slot: u32, extra: &[Route]) -> Vec<Route> {
    let own = pod.routes.iter().filter(|route| {
        route.table == MAIN
            && route.device == Some(Device::Index(primary.index))
            && route.protocol != names::PROTOCOL
            && route.destination.prefix_len() != 0
            && Family::of_net(&route.destination) == family
    });
    let mut routes: Vec<Route> = own.chain(&primary.defaults).chain(extra).cloned().collect();
    routes.sort_by_key(|route| (route.gateway.is_some(), route.destination.prefix_len() == 0));
    let mut table: Vec<Route> = Vec::new();
    for route in routes {
        // A copy does not expire, because no advertisement would renew it.
        let route =
            Route { table: names::primary_table(slot), protocol: names::PROTOCOL, ..route.permanent() };
        if !table.iter().any(|other| same_entry(other, &route)) {
            table.push(route);
        }
    }
    table
}

/// The rules: the reply direction of what arrives on the primary interface uses the primary table; redirected traffic and what
/// has the attachment's source address use the egress table.
#[must_use]
pub fn rules(desired: &Desired, slot: u32, primaries: impl Fn(Family) -> bool) -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in desired.families() {
        let rule = |mark: Option<(u32, u32)>, from: Option<IpNet>, table: u32| Rule {
            ipv6: family.is_v6(),
            priority: names::rule_priority(slot),
            mark,
            from,
            table,
            protocol: names::PROTOCOL,
        };
        if primaries(family) {
            rules.push(rule(Some((names::mark(slot), names::MARK_MASK)), None, names::primary_table(slot)));
        }
        if sysctl::has_redirects(desired, family) {
            let mark = names::egress_mark(names::mark(slot));
            rules.push(rule(Some((mark, names::EGRESS_MARK_MASK)), None, names::egress_table(slot)));
        }
        let own = desired.addresses.iter().map(IpNet::addr).filter(|address| Family::of(address) == family);
        rules.extend(own.map(|address| rule(None, Some(address.into()), names::egress_table(slot))));
    }
    rules
}

/// Whether `net` equals the network of one of the attachment's addresses, for which the kernel adds a route through the new link.
#[must_use]
pub fn is_own_network(desired: &Desired, net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len() && desired.addresses.iter().any(|own| own.trunc() == net.trunc())
}

/// IPv4's link-local network (RFC 3927), in which a cluster has services of the node: NodeLocal DNS (169.254.20.10), a cloud's metadata.
const LINK_LOCAL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16);

/// Routes to cluster, service, link-local and node networks through the primary interface that main needs. Existing ones are omitted, and so is the
/// attachment's own network: main has one route to it, and without that of the new link the gateway and all hosts in it would be
/// unreachable.
#[must_use]
pub fn kept(pod: &Pod, desired: &Desired, primary: &Primary, family: Family) -> Vec<Route> {
    let Some(default) = primary.defaults.first() else { return Vec::new() };
    let nodes = desired
        .node_addresses
        .iter()
        .filter(|address| !link_local(address))
        .map(|address| IpNet::from(*address));
    let desired_nets =
        desired.cluster_networks.iter().map(IpNet::trunc).chain([IpNet::V4(LINK_LOCAL)]).chain(nodes);
    let mut routes: Vec<Route> = Vec::new();
    for destination in desired_nets.filter(|net| Family::of_net(net) == family && net.prefix_len() != 0) {
        let route = Route {
            destination,
            gateway: default.gateway,
            device: default.device,
            source: default.source,
            flags: default.flags,
            scope: default.scope,
            // Copies the multipath attribute, but no others of the default route, such as metrics.
            rest: if default.device.is_none() { default.rest.clone() } else { Vec::new() },
            ..unicast(destination)
        };
        if !routes.iter().any(|other| same_entry(other, &route))
            && !is_own_network(desired, &destination)
            && !leads_to_primary(pod, desired, primary, &destination)
        {
            routes.push(route);
        }
    }
    routes
}

/// Whether main routes all of `destination` through the primary interface after the default route has moved: a route of another program
/// covers it, and no network of the attachment is more specific.
fn leads_to_primary(pod: &Pod, desired: &Desired, primary: &Primary, destination: &IpNet) -> bool {
    let covers = |route: &&Route| {
        route.table == MAIN
            && route.protocol != names::PROTOCOL
            && route.destination.prefix_len() != 0
            && route.destination.contains(destination)
    };
    let nearest = pod.routes.iter().filter(covers).max_by_key(|route| route.destination.prefix_len());
    let Some(nearest) = nearest.filter(|route| route.device == Some(Device::Index(primary.index))) else {
        return false;
    };
    !desired.addresses.iter().any(|net| {
        net.prefix_len() < net.max_prefix_len()
            && net.prefix_len() >= nearest.destination.prefix_len()
            && (net.contains(destination) || destination.contains(&net.trunc()))
    })
}

/// Whether it is a link-local address of IPv6.
pub(super) fn link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
