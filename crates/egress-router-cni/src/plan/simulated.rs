//! A simulated pod that executes steps like the kernel.

use common::netlink::address::Address;
use common::netlink::link::Link;
use common::netlink::route::{Device, Route};
use ipnet::IpNet;

use crate::config::interface::{Kind, MacvlanMode};
use crate::config::ip::Gateways;
use crate::observe::Pod;

use super::{Desired, Family, Plan, Step, route, sysctl};

pub(super) const PRIMARY: u32 = 2;

#[derive(Debug, Clone)]
pub(super) struct Simulated {
    pub(super) pod: Pod,
    next: u32,
    made: Option<u32>,
}

pub(super) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// An Ethernet link of 1500 bytes MTU that is up.
pub(crate) fn link(index: u32, name: &str, kind: &str) -> Link {
    Link {
        index,
        name: name.into(),
        kind: kind.into(),
        mode: None,
        mac: None,
        mtu: 1500,
        up: true,
        carrier: true,
        loopback: name == "lo",
        parent: None,
    }
}

/// A route `destination via gateway metric` in main, of another program.
pub(super) fn there(destination: &str, gateway: Option<&str>, device: u32, metric: Option<u32>) -> Route {
    Route {
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        device: Some(Device::Index(device)),
        metric,
        protocol: if gateway.is_some() { 3 } else { 2 },
        scope: if gateway.is_none() && !destination.contains(':') { route::LINK } else { 0 },
        ..route::unicast(net(destination))
    }
}

/// A pod with a primary interface of both families at index 2.
pub(super) fn pod() -> Simulated {
    let mut simulated = Simulated { pod: Pod::default(), next: 10, made: None };
    let pod = &mut simulated.pod;
    pod.links = vec![link(1, "lo", ""), link(PRIMARY, "eth0", "veth")];
    for address in ["10.244.1.5/24", "fd44::5/64", "fe80::5/64"] {
        pod.addresses.push(Address { link: PRIMARY, net: net(address), scope: 0, flags: 0 });
    }
    pod.routes = vec![
        there("10.244.1.0/24", None, PRIMARY, None),
        there("fd44::/64", None, PRIMARY, Some(256)),
        there("fe80::/64", None, PRIMARY, Some(256)),
        there("0.0.0.0/0", Some("10.244.1.1"), PRIMARY, None),
        Route { rest: vec![(20, vec![0])], ..there("::/0", Some("fe80::1"), PRIMARY, Some(1024)) },
    ];
    for interface in ["all", "default", "lo", "eth0"] {
        for (family, key) in
            [(Family::V4, "rp_filter"), (Family::V4, "forwarding"), (Family::V6, "forwarding")]
        {
            pod.sysctls.insert(sysctl::conf(family, interface, key), "0".into());
        }
    }
    simulated
}

/// An attachment with addresses 192.168.`number`.9/24, fd50:`number`::9/64.
pub(super) fn desired(number: u8, families: &[Family]) -> Desired {
    let has = |family: Family| families.contains(&family);
    let mut addresses = Vec::new();
    addresses.extend(has(Family::V4).then(|| net(&format!("192.168.{number}.9/24"))));
    addresses.extend(has(Family::V6).then(|| net(&format!("fd50:{number}::9/64"))));
    Desired {
        interface: format!("net{number}"),
        kind: Kind::Macvlan(MacvlanMode::Bridge),
        master: 7,
        node_addresses: vec![
            format!("192.168.{number}.2").parse().unwrap(),
            format!("fd50:{number}::2").parse().unwrap(),
        ],
        mtu: None,
        mac: None,
        addresses,
        gateways: Gateways {
            v4: has(Family::V4).then(|| format!("192.168.{number}.1").parse().unwrap()),
            v6: has(Family::V6).then(|| format!("fd50:{number}::1").parse().unwrap()),
        },
        destinations: crate::config::destinations::Destinations::default(),
        cluster_networks: vec![net("10.244.0.0/16"), net("172.30.0.0/16"), net("fd44::/48")],
        previous: None,
    }
}

impl Simulated {
    fn resolve(&self, route: &Route) -> Result<Route, String> {
        let device = match route.device {
            Some(Device::New) => Some(Device::Index(self.made.ok_or("no new link")?)),
            Some(Device::Index(index)) if !self.pod.links.iter().any(|link| link.index == index) => {
                return Err(format!("{route:?}: no such device"));
            }
            other => other,
        };
        Ok(Route { device, ..route.clone() })
    }

    fn insert(&mut self, route: &Route) -> Result<(), String> {
        let resolved = self.resolve(route)?;
        if self.pod.routes.iter().any(|other| route::same_entry(other, &resolved)) {
            return Err(format!("{route:?}: exists"));
        }
        self.append(route)
    }

    fn append(&mut self, route: &Route) -> Result<(), String> {
        let route = self.resolve(route)?;
        if self.pod.routes.iter().any(|other| route::same(other, &route)) {
            return Err(format!("{route:?}: exists"));
        }
        self.reachable(&route)?;
        self.pod.routes.push(route);
        Ok(())
    }

    /// The kernel replaces the first route with the same destination, TOS and metric.
    fn replace(&mut self, before: &Route, after: &Route) -> Result<(), String> {
        let (before, after) = (self.resolve(before)?, self.resolve(after)?);
        let first = self.pod.routes.iter().position(|other| route::same_entry(other, &after));
        let first = first.filter(|place| route::same(&self.pod.routes[*place], &before));
        let place = first.ok_or(format!("{before:?}: not the first"))?;
        self.reachable(&after)?;
        self.pod.routes[place] = after;
        Ok(())
    }

    fn reachable(&self, route: &Route) -> Result<(), String> {
        if let Some(gateway) = route.gateway {
            let link_local =
                matches!(gateway, std::net::IpAddr::V6(gateway) if gateway.is_unicast_link_local());
            let on_link = |other: &Route| {
                other.gateway.is_none()
                    && other.device == route.device
                    && [route.table, route::MAIN].contains(&other.table)
                    && other.destination.contains(&gateway)
            };
            if !link_local && route.flags & 4 == 0 && !self.pod.routes.iter().any(on_link) {
                return Err(format!("{route:?}: invalid gateway"));
            }
        }
        Ok(())
    }

    fn remove(&mut self, route: &Route) -> Result<(), String> {
        let route = self.resolve(route)?;
        let position = self
            .pod
            .routes
            .iter()
            .position(|other| route::same(other, &route))
            .ok_or(format!("{route:?}: none"))?;
        self.pod.routes.remove(position);
        Ok(())
    }

    fn write(&mut self, name: &[String], value: &str) -> Result<(), String> {
        if !self.pod.sysctls.contains_key(name) {
            return Err(format!("{name:?}: no such file"));
        }
        let all = sysctl::conf(Family::V6, "all", "forwarding");
        for (other, current) in &mut self.pod.sysctls {
            if other == name || (name == all && sysctl::is_ipv6_forwarding(other)) {
                value.clone_into(current);
            }
        }
        Ok(())
    }

    fn drop_link(&mut self, index: u32) {
        let Some(position) = self.pod.links.iter().position(|link| link.index == index) else { return };
        let name = self.pod.links.remove(position).name;
        self.pod.addresses.retain(|address| address.link != index);
        self.pod.routes.retain(|route| route.device != Some(Device::Index(index)));
        self.pod.sysctls.retain(|key, _| key[3] != name);
    }

    pub(super) fn apply(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Firewall(firewall) => {
                if !self.pod.tables.insert(firewall.interface.clone()) {
                    return Err("table exists".into());
                }
            }
            Step::Sysctl { name, value, .. } => self.write(name, value)?,
            Step::CreateLink(new) => {
                self.next += 1;
                self.made = Some(self.next);
                self.pod.links.push(Link { up: false, ..link(self.next, &new.name, "macvlan") });
                for (family, key) in [
                    (Family::V4, "rp_filter"),
                    (Family::V4, "forwarding"),
                    (Family::V4, "arp_notify"),
                    (Family::V4, "arp_ignore"),
                    (Family::V4, "arp_announce"),
                    (Family::V6, "forwarding"),
                    (Family::V6, "ndisc_notify"),
                    (Family::V6, "accept_ra"),
                    (Family::V6, "accept_dad"),
                    (Family::V6, "disable_ipv6"),
                ] {
                    let default = |key: &str| self.pod.sysctls.get(&sysctl::conf(family, "default", key));
                    // A kernel without IPv6 has no such files.
                    if let Some(forwarding) = default("forwarding") {
                        let value = default(key).unwrap_or(forwarding).clone();
                        self.pod.sysctls.insert(sysctl::conf(family, &new.name, key), value);
                    }
                }
            }
            Step::FrameFilter(firewall) => {
                self.pod.frame_filters.insert(firewall.interface.clone());
            }
            Step::AddAddress(net) => {
                let link = self.made.ok_or("no new link")?;
                self.pod.addresses.push(Address { link, net: *net, scope: 0, flags: 0 });
            }
            Step::SetUp => {
                let index = self.made.ok_or("no new link")?;
                self.pod.links.iter_mut().filter(|link| link.index == index).for_each(|link| link.up = true);
                let nets = self.pod.addresses.iter().filter(|address| address.link == index);
                let mut routes: Vec<Route> = nets
                    .filter(|address| address.net.prefix_len() < address.net.max_prefix_len())
                    .map(|address| there(&address.net.trunc().to_string(), None, index, None))
                    .collect();
                routes.retain(|route| !self.pod.routes.iter().any(|other| route::same(other, route)));
                self.pod.routes.extend(routes);
            }
            Step::AddRoute(route) => self.insert(route)?,
            Step::AppendRoute(route) => self.append(route)?,
            Step::ReplaceRoute { before, after } => self.replace(before, after)?,
            Step::DeleteRoute(route) => self.remove(route)?,
            Step::AddRule(rule) => {
                if self.pod.rules.contains(rule) {
                    return Err(format!("{rule:?}: exists"));
                }
                self.pod.rules.push(rule.clone());
            }
            Step::DeleteRule(rule) => self.pod.rules.retain(|other| other != rule),
            Step::SetDown { index, .. } => {
                self.pod
                    .links
                    .iter_mut()
                    .filter(|link| link.index == *index)
                    .for_each(|link| link.up = false);
                self.pod.routes.retain(|route| route.device != Some(Device::Index(*index)));
            }
            Step::DeleteLink { index, .. } => self.drop_link(*index),
            Step::DeleteFirewall { interface, frames } => {
                self.pod.tables.remove(interface);
                if *frames {
                    self.pod.frame_filters.remove(interface);
                }
            }
        }
        Ok(())
    }

    pub(super) fn rollback(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Firewall(firewall) => {
                self.pod.tables.remove(&firewall.interface);
            }
            Step::FrameFilter(firewall) => {
                self.pod.frame_filters.remove(&firewall.interface);
            }
            Step::Sysctl { name, before: Some(before), .. } => self.write(name, before)?,
            Step::CreateLink(_) => self.drop_link(self.made.ok_or("no new link")?),
            Step::AddRoute(route) | Step::AppendRoute(route) => self.remove(route)?,
            Step::ReplaceRoute { before, after } => self.replace(after, before)?,
            // At its original position, as far as this model has an order.
            Step::DeleteRoute(route) => self.append(route)?,
            Step::AddRule(rule) => self.pod.rules.retain(|other| other != rule),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.apply(step).unwrap_or_else(|error| panic!("{step:?}: {error}\n{:#?}", self.pod));
        }
    }

    pub(super) fn add(&mut self, desired: &Desired) {
        let plan = self.record(desired);
        self.run(&plan.steps);
    }

    /// The plan of ADD, after its undo data is recorded.
    pub(super) fn record(&mut self, desired: &Desired) -> Plan {
        let plan = super::add::add(desired, &self.pod).unwrap();
        self.pod.attachments.insert(desired.interface.clone(), plan.undo.clone());
        plan
    }

    pub(super) fn del(&mut self, interface: &str) {
        if let Some(record) = self.pod.attachments.get(interface) {
            self.run(&super::del::del(&self.pod, interface, record));
            self.pod.attachments.remove(interface);
        }
    }

    /// The whole state in a canonical order.
    pub(super) fn state(&self) -> String {
        let mut pod = self.pod.clone();
        pod.routes.sort_by_key(|route| format!("{route:?}"));
        pod.addresses.sort_by_key(|address| format!("{address:?}"));
        pod.rules.sort_by_key(|rule| format!("{rule:?}"));
        format!("{pod:#?}")
    }
}
