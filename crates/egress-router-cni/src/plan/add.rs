//! The plan of ADD: the firewall first, the default route last.

use std::collections::BTreeMap;

use common::netlink::link::NewLink;
use common::netlink::route::{Device, Route};

use crate::cni::Error;
use crate::firewall::{Firewall, Forwards};
use crate::names;
use crate::observe::Pod;

use super::primary::{self, Primary};
use super::routing::{self, Swap};
use super::undo::{self, Changed, Undo};
use super::{Desired, Family, Plan, Step, route, slot, sysctl};

/// Minimum MTU for IPv6 (RFC 8200, 5): the kernel disables IPv6 on a link with a smaller one.
const IPV6_MTU: u32 = 1280;

/// The steps that create `desired` in a pod without this attachment.
///
/// # Errors
/// Code 7: the interface or an address already exists, or the MTU is too small for IPv6. Code 100: no slot is
/// free.
pub fn add(desired: &Desired, pod: &Pod) -> Result<Plan, Error> {
    let name = &desired.interface;
    if pod.link_named(name).is_some() {
        return Err(Error::invalid_config(format!("the pod has an interface {name} already")));
    }
    if let Some(address) =
        desired.addresses.iter().find(|net| pod.addresses.iter().any(|there| there.net.addr() == net.addr()))
    {
        return Err(Error::invalid_config(format!("ip.addresses has {address}, which the pod has already")));
    }
    if let Some(mtu) = desired.mtu.filter(|mtu| *mtu < IPV6_MTU && desired.source(Family::V6).is_some()) {
        return Err(Error::invalid_config(format!(
            "interfaceArgs.mtu is {mtu}: with an IPv6 address it must be at least {IPV6_MTU} (RFC 8200)"
        )));
    }
    let others = &pod.attachments;
    let slot = slot::free(pod, others.values())?;
    let primaries: BTreeMap<Family, Primary> = desired
        .families()
        .filter_map(|family| Some((family, primary::find(pod, family, others, desired.previous.as_ref())?)))
        .collect();
    let kept: Vec<Route> =
        primaries.iter().flat_map(|(family, primary)| route::kept(pod, desired, primary, *family)).collect();
    let swaps: Vec<Swap> = desired
        .families()
        .map(|family| Swap::of(pod, desired, family, primaries.get(&family), others))
        .collect();
    let changed = sysctl::of_pod(pod, desired, &primaries, others);

    let undo = Undo {
        slot,
        order: others.values().map(|record| record.order).max().unwrap_or(0).saturating_add(1),
        primary: primaries.iter().map(|(family, primary)| (*family, recorded_primary(primary))).collect(),
        link: None,
        families: desired.families().collect(),
        defaults: swaps.iter().flat_map(|swap| swap.saved.iter().cloned()).collect(),
        routes: routing::recorded(pod, &kept, others),
        sysctls: changed.clone(),
    };

    let firewall = firewall(desired, &undo);
    let frames = firewall.destinations.allowed.is_some().then(|| Step::FrameFilter(firewall.clone()));
    let mut steps = vec![Step::Firewall(firewall)];
    steps.extend(pod_sysctls(pod, &changed));
    steps.push(Step::CreateLink(NewLink {
        name: name.clone(),
        master: desired.master,
        kind: desired.kind,
        mtu: desired.mtu,
        mac: desired.mac,
    }));
    steps.extend(frames);
    steps.extend(sysctl::of_link(pod, desired));
    steps.extend(desired.addresses.iter().map(|address| Step::AddAddress(*address)));
    steps.push(Step::SetUp);
    let there = |route: &Route| pod.routes.iter().any(|there| route::same_entry(there, route));
    // Another attachment may have the same gateway: a second route to it can only be appended. The kernel resolves the gateway on the
    // default route's own device.
    let to_gateway =
        |route: Route| if there(&route) { Step::AppendRoute(route) } else { Step::AddRoute(route) };
    let gateways = desired.families().filter_map(|family| route::to_gateway(desired, family, Device::New));
    steps.extend(gateways.map(to_gateway));
    steps.extend(kept.iter().filter(|route| !there(route)).cloned().map(Step::AddRoute));
    for (family, primary) in &primaries {
        let replaced: Vec<Route> =
            swaps.iter().filter(|swap| swap.family == *family).flat_map(Swap::removed).collect();
        steps.extend(route::primary(pod, primary, *family, slot, &replaced).into_iter().map(Step::AddRoute));
    }
    steps.extend(route::egress(desired, slot, Device::New).into_iter().map(Step::AddRoute));
    steps.extend(
        route::rules(desired, slot, |family| primaries.contains_key(&family)).into_iter().map(Step::AddRule),
    );
    steps.extend(swaps.into_iter().flat_map(|swap| swap.steps));

    let mut warnings = warnings(desired, &primaries);
    let (primary_routes, elsewhere): (Vec<Route>, Vec<Route>) = kept
        .into_iter()
        .partition(|route| !there(route) || pod.routes.iter().any(|there| route::same(there, route)));
    warnings.extend(elsewhere.iter().map(|route| {
        format!(
            "the pod has another route to {}: it is kept, and does not use the primary interface",
            route.destination
        )
    }));
    Ok(Plan { steps, undo, primary_routes, warnings })
}

/// The attachment's table.
#[must_use]
pub fn firewall(desired: &Desired, undo: &Undo) -> Firewall {
    let forwards = |name: Vec<String>| {
        undo.sysctls.iter().any(|changed| changed.name == name && changed.original != changed.value)
    };
    let primary: BTreeMap<Family, String> =
        undo.primary.iter().map(|(family, primary)| (*family, primary.interface.clone())).collect();
    let v4 = primary.get(&Family::V4);
    Firewall {
        interface: desired.interface.clone(),
        mark: names::mark(undo.slot),
        addresses: desired.addresses.iter().map(ipnet::IpNet::addr).collect(),
        networks: desired
            .addresses
            .iter()
            .copied()
            .chain(desired.gateways.all().map(ipnet::IpNet::from))
            .collect(),
        destinations: desired.destinations.clone(),
        forwards: Forwards {
            v4: v4.is_some_and(|v4| forwards(sysctl::conf(Family::V4, v4, "forwarding"))),
            v6: forwards(sysctl::conf(Family::V6, "all", "forwarding")),
        },
        primary,
    }
}

fn recorded_primary(primary: &Primary) -> undo::Primary {
    undo::Primary { interface: primary.name.clone(), default: !primary.defaults.is_empty() }
}

fn pod_sysctls(pod: &Pod, changed: &[Changed]) -> Vec<Step> {
    // IPv6's `all` sets each device's value: then devices' own values are only needed for the rollback.
    let all = sysctl::conf(Family::V6, "all", "forwarding");
    let all_changes = pod.sysctls.get(&all).is_some_and(|value| value != "1");
    let needed = changed.iter().filter(|changed| {
        let current = pod.sysctls.get(&changed.name);
        if sysctl::is_ipv6_forwarding(&changed.name) { all_changes } else { current != Some(&changed.value) }
    });
    needed
        .map(|changed| Step::Sysctl {
            name: changed.name.clone(),
            value: changed.value.clone(),
            before: pod.sysctls.get(&changed.name).cloned(),
        })
        .collect()
}

fn warnings(desired: &Desired, primaries: &BTreeMap<Family, Primary>) -> Vec<String> {
    let mut warnings = Vec::new();
    for family in desired.families() {
        let name = if family.is_v6() { "IPv6" } else { "IPv4" };
        match primaries.get(&family) {
            None => warnings.push(format!("the pod has no {name} primary interface: no cluster routes are added")),
            Some(primary) if primary.defaults.is_empty() => warnings.push(format!(
                "{} has no {name} gateway: cluster, Service and node addresses are reachable only through its existing routes",
                primary.name
            )),
            Some(primary) if !desired.cluster_networks.iter().any(|net| Family::of_net(net) == family) => {
                warnings.push(format!(
                    "clusterNetworks and serviceNetworks have no {name} network: the pod opens connections only along the routes of \
                     {}; replies to incoming connections always leave by it",
                    primary.name
                ));
            }
            Some(_) => {}
        }
    }
    let own = desired.cluster_networks.iter().filter(|net| route::is_own_network(desired, net));
    warnings.extend(own.map(|net| {
        format!(
            "clusterNetworks or serviceNetworks has {net}, the network of {}: its hosts are reached through that interface",
            desired.interface
        )
    }));
    warnings
}
