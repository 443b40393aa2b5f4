//! The Services that a binding admits, and the gateway of each VIP.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use super::{
    Config, Nodes,
    problem::{Problems, Reason},
};
use crate::{
    agent::{
        datapath::VipRoute,
        snapshot::{Carrier, Snapshot, Store},
    },
    api::{
        Epoch, TunId, Vip,
        service::{Carried, Gateway},
    },
};

/// The admitted Services, and the VIPs.
#[derive(Clone, Debug)]
pub struct Bindings<'a> {
    /// The admitted Services. An earlier one has precedence: it is older, or has the lower name.
    pub services: Vec<Admitted<'a>>,
    /// The VIPs that admitted Services carry.
    pub paths: BTreeMap<Ipv4Addr, Path>,
}

/// A Service that a binding admits, or may admit: its record cannot be read.
#[derive(Clone, Debug)]
pub struct Admitted<'a> {
    /// The Service.
    pub carrier: &'a Carrier,
    /// Its VIP, which is one of [`Bindings::paths`]; or one that its pods cannot use, for the reason of a problem.
    pub vip: Result<Ipv4Addr, Vip>,
}

/// A VIP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The binding's number.
    pub tun_id: TunId,
    /// The gateway.
    pub route: VipRoute,
    /// Whether the annotations name a gateway that cannot be used, for the reason of a problem.
    pub has_unusable_gateway: bool,
}

/// The gateway that the annotations of one Service name.
struct Named<'a> {
    epoch: Epoch,
    gateway: Result<Option<Gateway>, Reason>,
    carrier: &'a Carrier,
}

impl<'a> Bindings<'a> {
    pub(in crate::agent) fn read(
        config: &Config,
        snapshot: &'a Snapshot,
        store: &Store,
        nodes: &Nodes,
        problems: &mut Problems<'_>,
    ) -> Bindings<'a> {
        store.errors.iter().for_each(|error| problems.binding(error));
        let owners = tun_ids(store);
        let mut carriers: Vec<&Carrier> = snapshot.services.iter().collect();
        carriers.sort_by(|a, b| precedence(a).cmp(&precedence(b)));

        let mut services = Vec::new();
        let mut named: BTreeMap<Ipv4Addr, (TunId, Named<'a>)> = BTreeMap::new();
        for carrier in carriers {
            let service = &carrier.service;
            let vip = match Carried::vip_of(&service.annotations) {
                Ok(Some(vip)) => vip,
                Ok(None) => continue,
                Err(error) => {
                    problems.service(service, Reason::InvalidVip { error: error.to_string() });
                    continue;
                }
            };
            let Some(bind) = store.admitting(vip, &service.key) else {
                if store.is_unreadable(vip) {
                    problems.service(service, Reason::UnreadableBinding { vip: vip.to_string() });
                    services.push(Admitted { carrier, vip: Err(vip) });
                } else {
                    problems.service(service, Reason::NotAdmitted { vip: vip.to_string() });
                }
                continue;
            };
            if service.selector.is_empty() {
                problems.service(service, Reason::NoSelector);
            }
            let address = match usable(vip, bind.tun_id, &owners, nodes, config) {
                Ok(address) => address,
                Err(because) => {
                    problems.service(service, because);
                    services.push(Admitted { carrier, vip: Err(vip) });
                    continue;
                }
            };
            if let Some(network) = config.exclude_cidrs.iter().find(|network| network.contains(&address)) {
                let network = network.to_string();
                problems.service(service, Reason::VipExcluded { vip: address, network });
            }
            services.push(Admitted { carrier, vip: Ok(address) });
            let one = Named::read(address, carrier);
            match named.get_mut(&address) {
                Some((_, best)) if one.is_better(best) => *best = one,
                Some(_) => {}
                None => {
                    named.insert(address, (bind.tun_id, one));
                }
            }
        }

        let mut paths = BTreeMap::new();
        for (vip, (tun_id, named)) in named {
            let route = named.gateway.and_then(|gateway| route(vip, gateway, config, nodes));
            let has_unusable_gateway = route.is_err();
            let route = route.unwrap_or_else(|because| {
                problems.service(&named.carrier.service, because);
                VipRoute::Drop
            });
            paths.insert(vip, Path { tun_id, route, has_unusable_gateway });
        }
        Bindings { services, paths }
    }
}

impl<'a> Named<'a> {
    fn read(vip: Ipv4Addr, carrier: &'a Carrier) -> Named<'a> {
        match Carried::read(&carrier.service.annotations) {
            Ok(carried) => Named {
                epoch: carried.map(|carried| carried.epoch).unwrap_or_default(),
                gateway: Ok(carried.and_then(|carried| carried.gateway)),
                carrier,
            },
            Err(error) => Named {
                epoch: Epoch::default(),
                gateway: Err(Reason::InvalidGateway { vip, error: error.to_string() }),
                carrier,
            },
        }
    }

    /// The Services of a VIP are written one after the other: the newest gateway is in force. One that names none has joined while no
    /// gateway was known, and its epoch may be that of an earlier binding.
    fn is_better(&self, than: &Named<'_>) -> bool {
        let rank = |named: &Named<'_>| {
            let gateway = named.gateway.as_ref().ok().copied();
            (gateway.flatten().is_some(), gateway.is_some(), named.epoch, gateway.flatten())
        };
        rank(self) > rank(than)
    }
}

/// The order in which Services have precedence.
fn precedence(carrier: &Carrier) -> (i64, &common::cache::ObjectKey) {
    (carrier.service.created, &carrier.service.key)
}

/// For each number the VIP that has it: the lowest one.
fn tun_ids(store: &Store) -> BTreeMap<TunId, Vip> {
    store.binds.iter().rev().map(|(vip, bind)| (bind.tun_id, *vip)).collect()
}

fn usable(
    vip: Vip,
    tun_id: TunId,
    owners: &BTreeMap<TunId, Vip>,
    nodes: &Nodes,
    config: &Config,
) -> Result<Ipv4Addr, Reason> {
    let IpAddr::V4(address) = vip.address() else {
        return Err(Reason::Ipv6Vip { vip: vip.to_string() });
    };
    let networks = [("pod", &nodes.networks.pods), ("service", &config.service_cidrs)];
    for (kind, networks) in networks {
        if let Some(network) = networks.iter().find(|network| network.contains(&address)) {
            return Err(Reason::VipInNetwork { vip: address, network: network.to_string(), kind });
        }
    }
    if let Some((node, _)) = nodes.node(address) {
        return Err(Reason::VipOfNode { vip: address, node: node.to_owned() });
    }
    if tun_id.number() > config.max_tun_id {
        return Err(Reason::TunIdTooLarge {
            vip: address,
            tun_id: tun_id.to_string(),
            max: config.max_tun_id,
        });
    }
    match owners.get(&tun_id) {
        Some(owner) if *owner != vip => {
            Err(Reason::TunIdInUse { vip: address, tun_id: tun_id.to_string(), other: owner.to_string() })
        }
        _ => Ok(address),
    }
}

/// A gateway must be a candidate, whatever the annotations of a tenant name.
fn route(
    vip: Ipv4Addr,
    gateway: Option<Gateway>,
    config: &Config,
    nodes: &Nodes,
) -> Result<VipRoute, Reason> {
    let Some(Gateway { node_ip, tun_mac }) = gateway else { return Ok(VipRoute::Drop) };
    let unknown = || Reason::UnknownGateway { vip, gateway: node_ip.to_string() };
    let IpAddr::V4(address) = node_ip else { return Err(unknown()) };
    if !nodes.node(address).is_some_and(|(_, candidate)| candidate) {
        return Err(unknown());
    }
    if !config.mac_rule.admits(address, tun_mac) {
        return Err(Reason::wrong_mac(vip, address, tun_mac));
    }
    if address == nodes.own.ip {
        return Ok(VipRoute::Local);
    }
    Ok(VipRoute::Remote { node_ip: address, tun_mac })
}
