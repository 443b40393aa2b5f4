//! The ports of each VIP, and their backends.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use ipnet::{IpNet, Ipv4Net};

use super::{
    Bindings, Pods,
    problem::{Problems, Reason},
};
use crate::agent::{
    datapath::{Protocol, ServicePort},
    snapshot::{Carrier, EndpointState, Port, Service},
};

/// The ports by VIP, each list sorted by protocol and port.
pub(super) fn by_vip(
    bindings: &Bindings<'_>,
    pods: &Pods,
    problems: &mut Problems<'_>,
) -> BTreeMap<Ipv4Addr, Vec<ServicePort>> {
    let mut ports: BTreeMap<(Ipv4Addr, Protocol, u16), (&Service, ServicePort)> = BTreeMap::new();
    for admitted in &bindings.services {
        let (carrier, Ok(vip)) = (admitted.carrier, &admitted.vip) else { continue };
        let service = &*carrier.service;
        let sources = sources(service, problems);
        for port in &service.ports {
            let key = (*vip, port.protocol, port.port);
            if let Some((other, _)) = ports.get(&key) {
                let (protocol, other) = (port.protocol.to_string(), other.key.to_string());
                problems.service(service, Reason::PortConflict { protocol, port: port.port, other });
                continue;
            }
            let port = ServicePort {
                service: service.key.to_string(),
                name: port.name.clone(),
                protocol: port.protocol,
                port: port.port,
                backends: backends(*vip, port, carrier, pods),
                affinity: service.affinity,
                sources: sources.clone(),
            };
            ports.insert(key, (service, port));
        }
    }
    let mut by_vip: BTreeMap<Ipv4Addr, Vec<ServicePort>> = BTreeMap::new();
    for ((vip, ..), (_, port)) in ports {
        by_vip.entry(vip).or_default().push(port);
    }
    by_vip
}

/// The networks of `spec.loadBalancerSourceRanges`, as kube-proxy reads them. None: all clients are admitted.
fn sources(service: &Service, problems: &mut Problems<'_>) -> Option<Vec<Ipv4Net>> {
    if service.source_ranges.is_empty() {
        return None;
    }
    let mut networks = Vec::new();
    for range in &service.source_ranges {
        // kube-apiserver admits white space around an entry.
        match range.trim().parse() {
            Ok(IpNet::V4(network)) => networks.push(network),
            Ok(IpNet::V6(_)) => {}
            Err(_) => problems.service(service, Reason::InvalidSourceRange { range: range.clone() }),
        }
    }
    if networks.is_empty() {
        problems.service(service, Reason::NoSourceRange);
    }
    let networks = Ipv4Net::aggregate(&networks);
    (networks != [Ipv4Net::default()]).then_some(networks)
}

/// The endpoints of the port that take connections. Only bound pods of the VIP count: the owner of an EndpointSlice could put any
/// address into it, and replies of another pod would not take the gateway.
fn backends(vip: Ipv4Addr, port: &Port, carrier: &Carrier, pods: &Pods) -> Vec<(Ipv4Addr, u16)> {
    let is_bound = |ip: Ipv4Addr| pods.bound.get(&ip).is_some_and(|(of, _)| *of == vip);
    let of_state = |state: EndpointState| -> Vec<(Ipv4Addr, u16)> {
        let mut backends = BTreeSet::new();
        for slice in &carrier.slices {
            let numbers =
                slice.ports.iter().filter(|one| one.name == port.name && one.protocol == port.protocol);
            for number in numbers.map(|one| one.port) {
                let endpoints = slice.endpoints.iter().filter(|endpoint| endpoint.state == state);
                let addresses = endpoints.map(|endpoint| endpoint.ip).filter(|ip| is_bound(*ip));
                backends.extend(addresses.map(|ip| (ip, number)));
            }
        }
        backends.into_iter().collect()
    };
    match of_state(EndpointState::Ready) {
        ready if ready.is_empty() => of_state(EndpointState::ServingTerminating),
        ready => ready,
    }
}
