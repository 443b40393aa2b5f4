//! DNAT and the sets of gateway candidates.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use common::netlink::nftables::expression::Direction;
use common::netlink::nftables::set::{backend_data, concatenated, service_key};
use common::netlink::nftables::{Chain, ChainType, DataType, Element, Field, Hook, Rule, Set, Verdict};

use super::super::bound_pods;
use super::super::table::Table;
use super::chains::Terms;
use crate::agent::datapath::{Datapath, Protocol, ServicePort, VipRoute};
use crate::agent::vxlan::Config;

/// The seed of the hash that selects a backend. All candidates select the same one, so that a connection survives a change of the gateway.
const SEED: u32 = 0x0063_6777;

/// Adds the chains and sets.
pub(super) fn add(table: &mut Table, datapath: &Datapath, config: &Config) {
    pods(table, datapath);
    ports(table, datapath, config);
    table.chain(Chain::base("output-nat", ChainType::Nat, Hook::Output, -110), [dnat()]);
    let terms = Terms::of(config);
    let original = terms.translated(Rule::new().ct_direction(Direction::Original));
    let reply = terms.arrived(Rule::new().ct_direction(Direction::Reply));
    table.chain(
        Chain::base("output-route", ChainType::Route, Hook::Output, -90),
        [terms.mark_to_pods(original).accept(), terms.mark_to_pods(reply)],
    );
}

/// DNAT of a VIP to a pod, only where keepalived has the VIP: replies go to the gateway of the VIP.
pub(super) fn dnat() -> Rule {
    let key = [Field::DestinationAddress, Field::Protocol, Field::DestinationPort];
    Rule::new().daddr_is_local().vmap(&key, "services")
}

/// Bound pods of all nodes.
fn pods(table: &mut Table, datapath: &Datapath) {
    let own = datapath.node.ip;
    let pods = bound_pods(datapath);
    let all = || pods.iter().map(|(pod, bound)| (*pod, bound));
    let one = [DataType::Ipv4];
    let two = [DataType::Ipv4, DataType::Ipv4];
    let pair =
        |first: Ipv4Addr, second: Ipv4Addr| Element::new(concatenated(&[&first.octets(), &second.octets()]));
    table.set(
        Set::map("vip-of", &one, &one),
        all().map(|(pod, bound)| Element::with_value(pod.octets(), bound.vip.octets())),
    );
    // A client of a VIP may also have the VIP that it used.
    let used = datapath.vips.keys().map(|vip| pair(*vip, *vip));
    table.set(Set::new("pairs", &two), all().map(|(pod, bound)| pair(pod, bound.vip)).chain(used));
    let elsewhere = all().filter(|(_, bound)| bound.node == own && bound.path.route != VipRoute::Local);
    table.set(Set::new("pods-of-other-gateways", &one), elsewhere.map(|(pod, _)| Element::new(pod.octets())));
    let remote = || all().filter(|(_, bound)| bound.node != own);
    table.set(Set::new("colocated", &two), remote().map(|(pod, bound)| pair(bound.node, pod)));
    let candidate = |node: Ipv4Addr| datapath.peers.get(&node).is_some_and(|peer| peer.candidate);
    let on_candidates = remote().filter(|(_, bound)| candidate(bound.node));
    table.set(Set::new("pods-on-candidates", &one), on_candidates.map(|(pod, _)| Element::new(pod.octets())));
}

/// The ports of the VIPs that have backends. The first Service of a port has it.
fn ports(table: &mut Table, datapath: &Datapath, config: &Config) {
    let all = datapath.vips.iter().flat_map(|(vip, path)| path.ports.iter().map(move |port| (*vip, port)));
    let mut ports = BTreeMap::new();
    for (vip, port) in all.filter(|(_, port)| !port.backends.is_empty()) {
        ports.entry((vip, port.protocol, port.port)).or_insert(port);
    }
    for ((vip, ..), port) in &ports {
        let name = name_of(*vip, port);
        let backends = u32::try_from(port.backends.len()).unwrap_or(u32::MAX);
        let elements = (0..backends).zip(&port.backends).map(|(index, (address, port))| {
            Element::with_value(index.to_ne_bytes(), backend_data(*address, *port))
        });
        table.set(Set::map(&name, &[DataType::Index], &[DataType::Ipv4, DataType::Service]), elements);
        let fields: &[Field] = match port.affinity {
            Some(_) => &[Field::SourceAddress],
            None => &[Field::SourceAddress, Field::SourcePort],
        };
        // The protocol first: the translation of a port needs it.
        let rule = Rule::new().l4proto(port.protocol.number());
        let rule = rule.set_ct_mark(config.translated, config.translated);
        let rule = rule.dnat_by_hash(fields, SEED, backends, &name);
        table.chain(Chain::regular(&name).comment(&port.service), [rule]);
    }
    let key = [DataType::Ipv4, DataType::Protocol, DataType::Service];
    // The VIP and port of each backend, if there is only one.
    let mut origins: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    for ((vip, protocol, number), port) in &ports {
        for (address, backend) in &port.backends {
            let origin = origins.entry(service_key(*address, protocol.number(), *backend));
            origin.and_modify(|origin| *origin = None).or_insert_with(|| Some(backend_data(*vip, *number)));
        }
    }
    table.set(
        Set::map("replies", &key, &[DataType::Ipv4, DataType::Service]),
        origins.into_iter().filter_map(|(backend, origin)| Some(Element::with_value(backend, origin?))),
    );
    let elements = ports.iter().map(|((vip, protocol, number), port)| {
        let key = service_key(*vip, protocol.number(), *number);
        Element::with_verdict(key, Verdict::Goto(name_of(*vip, port)))
    });
    table.set(Set::verdict_map("services", &key), elements);
}

/// Name of a port's chain and map.
fn name_of(vip: Ipv4Addr, port: &ServicePort) -> String {
    let protocol = match port.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    format!("{protocol}-{vip}-{}", port.port)
}
