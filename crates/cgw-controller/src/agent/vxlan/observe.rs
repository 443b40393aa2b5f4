//! The present state of the kernel, read by netlink and from `/proc/sys`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use common::netlink::Error;
use common::netlink::route::{self, Route};
use common::netlink::rule::Rule;
use common::netlink::socket::Socket;
use ipnet::{IpNet, Ipv4Net};

use super::Config;
use super::plan::{ADDRESS, DEVICE, Device, Lookup, Next, PROTOCOL, SETTINGS, is_own_table};

/// The driver's objects but the nf_tables table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The device, if there is a link of its name.
    pub device: Option<ObservedDevice>,
    /// Neighbours of the device: MAC addresses of permanent ones.
    pub neighbours: BTreeMap<Ipv4Addr, Option<[u8; 6]>>,
    /// Forwarding entries of the device: nodes of permanent ones.
    pub forwarding: BTreeMap<[u8; 6], Option<Ipv4Addr>>,
    /// Policy rules. None: a rule of the driver's protocol or to one of its tables that it does not write.
    pub rules: Vec<(Rule, Option<Lookup>)>,
    /// Routes by table and destination. No next hop: a route that the driver does not write.
    pub routes: BTreeMap<(u32, Ipv4Net), (Route, Option<Next>)>,
}

/// The observed device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedDevice {
    /// Its index.
    pub index: u32,
    /// Its attributes. None: a link of another kind, or VXLAN with another VNI: another program's.
    pub device: Option<Device>,
    /// Whether no attribute differs that cannot be changed (learning, a remote).
    pub is_plain: bool,
    /// Whether it is up.
    pub up: bool,
    /// Whether it has [`ADDRESS`].
    pub addressed: bool,
    /// Values of [`SETTINGS`].
    pub settings: BTreeMap<&'static str, u32>,
}

/// Reads the node's IPv4 addresses, with the indexes of their links.
///
/// # Errors
/// Netlink's.
pub fn addresses(socket: &mut Socket) -> Result<BTreeMap<Ipv4Addr, u32>, Error> {
    let addresses = socket.addresses()?.into_iter().filter_map(|address| match address.net {
        IpNet::V4(net) => Some((net.addr(), address.link)),
        IpNet::V6(_) => None,
    });
    Ok(addresses.collect())
}

/// Reads the driver's objects.
///
/// # Errors
/// Netlink's.
pub fn observe(socket: &mut Socket, config: &Config) -> Result<Observed, Error> {
    let mut observed = Observed::default();
    let index = if let Some((link, vxlan)) = socket.vxlan_by_name(DEVICE)? {
        let vxlan = vxlan.filter(|vxlan| vxlan.vni == config.vni);
        let device = vxlan.as_ref().map(|vxlan| Device {
            name: link.name.clone(),
            vni: vxlan.vni,
            port: vxlan.port,
            local: vxlan.local.unwrap_or(Ipv4Addr::UNSPECIFIED),
            mac: link.mac.unwrap_or_default(),
            mtu: link.mtu,
        });
        let is_plain = vxlan.is_some_and(|vxlan| !vxlan.learning && vxlan.group.is_none() && !vxlan.external);
        let addresses = socket.addresses_of(link.index)?;
        let own = IpNet::from(IpAddr::V4(ADDRESS));
        observed.device = Some(ObservedDevice {
            index: link.index,
            device,
            is_plain,
            up: link.up,
            addressed: addresses.iter().any(|address| address.net == own),
            settings: SETTINGS.iter().filter_map(|(name, _)| setting(name)).collect(),
        });
        let neighbours = socket.neighbours(link.index)?.into_iter();
        observed.neighbours = neighbours
            .map(|neighbour| (neighbour.address, neighbour.mac.filter(|_| neighbour.permanent)))
            .collect();
        let entries = socket.forwarding_entries(link.index)?.into_iter();
        observed.forwarding = entries
            .map(|entry| (entry.mac, entry.remote.filter(|_| entry.permanent && !entry.overrides)))
            .collect();
        Some(link.index)
    } else {
        None
    };
    for rule in socket.rules()? {
        if !rule.ipv6 && (rule.protocol == PROTOCOL || is_own_table(rule.table)) {
            let lookup = lookup(&rule);
            observed.rules.push((rule, lookup));
        }
    }
    for route in socket.routes_of_protocol(PROTOCOL)? {
        if let IpNet::V4(destination) = route.destination {
            let next = next(&route, index);
            observed.routes.insert((route.table, destination), (route, next));
        }
    }
    Ok(observed)
}

/// Value of a setting of the device.
fn setting(name: &'static str) -> Option<(&'static str, u32)> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{DEVICE}/{name}")).ok()?;
    Some((name, text.trim().parse().ok()?))
}

fn lookup(rule: &Rule) -> Option<Lookup> {
    let (mark, mask) = rule.mark?;
    let written = Lookup { priority: rule.priority, mark, mask, table: rule.table };
    (rule_of(written) == *rule).then_some(written)
}

/// The rule of a lookup.
#[must_use]
pub fn rule_of(lookup: Lookup) -> Rule {
    Rule::fwmark(PROTOCOL, lookup.priority, (lookup.mark, lookup.mask), lookup.table)
}

fn next(route: &Route, device: Option<u32>) -> Option<Next> {
    let IpNet::V4(destination) = route.destination else { return None };
    let key = (route.table, destination);
    let candidates = [
        Some(Next::Throw),
        Some(Next::Blackhole),
        route.gateway.and_then(|gateway| match gateway {
            IpAddr::V4(gateway) => Some(Next::Via(gateway)),
            IpAddr::V6(_) => None,
        }),
    ];
    let mut written = candidates.into_iter().flatten();
    written.find(|next| route_of(key, *next, device.unwrap_or_default()) == *route)
}

/// The route to a next hop; `device` is the device's index.
#[must_use]
pub fn route_of((table, destination): (u32, Ipv4Net), next: Next, device: u32) -> Route {
    let destination = IpNet::V4(destination);
    match next {
        Next::Via(gateway) => {
            let device = route::Device::Index(device);
            Route::unicast(PROTOCOL, table, destination, Some(gateway.into()), device).onlink()
        }
        Next::Throw => Route::special(PROTOCOL, table, destination, route::Special::Throw),
        Next::Blackhole => Route::special(PROTOCOL, table, destination, route::Special::Blackhole),
    }
}
