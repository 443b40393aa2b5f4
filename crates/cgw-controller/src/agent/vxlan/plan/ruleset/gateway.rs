//! DNAT and the sets of gateway candidates.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use common::netlink::nftables::expression::{Direction, Expression};
use common::netlink::nftables::set::{backend_data, concatenated, service_key};
use common::netlink::nftables::{Chain, ChainType, DataType, Element, Field, Hook, Rule, Set, Verdict};

use super::super::table::Table;
use super::super::{TRANSLATED, mark_of};
use super::chain_of;
use super::chains::{R, SOURCE, arrived, drop, mark, mark_to_pods, marked, translated};
use crate::agent::datapath::{Bound, Datapath, Protocol, ServicePort, VipRoute};
use crate::agent::vxlan::Config;

/// The seed of the hash that selects a backend. All candidates select the same one, so that a connection survives a change of the gateway.
const SEED: u32 = 0x0063_6777;

/// The port of a VIP that a packet is for.
const PORT: [Field; 3] = [Field::DestinationAddress, Field::Protocol, Field::DestinationPort];

/// The types of [`PORT`].
const SERVICE: [DataType; 3] = [DataType::Ipv4, DataType::Protocol, DataType::Service];

/// Adds the chains and sets.
pub(super) fn add(table: &mut Table, datapath: &Datapath, config: &Config) {
    let bound = datapath.bound_pods();
    let ports: Ports<'_> =
        datapath.ports().map(|(vip, port)| ((vip, port.protocol, port.port), port)).collect();
    pods(table, datapath, &bound);
    sources(table, datapath, config, &bound, &ports);
    translations(table, &ports);
    let output = Chain::base("output-nat", ChainType::Nat, Hook::Output, -110);
    table.chain(output, [restrict("sources-of-node"), dnat()]);
    let original = translated(Rule::new().ct_direction(Direction::Original));
    let reply = arrived(Rule::new().ct_direction(Direction::Reply));
    let mask = config.mark_mask;
    table.chain(
        Chain::base("output-route", ChainType::Route, Hook::Output, -90),
        [mark_to_pods(original, mask).accept(), mark_to_pods(reply, mask)],
    );
}

/// DNAT of a VIP to a pod, only where keepalived has the VIP: replies go to the gateway of the VIP.
pub(super) fn dnat() -> Rule {
    Rule::new().daddr_is_local().vmap(&PORT, "services")
}

/// Before [`dnat`], in the same chain: `chain` returns for an admitted source. The kernel evaluates a chain of type nat for the first packet
/// of a connection, so that a changed list interrupts none.
pub(super) fn restrict(chain: &str) -> Rule {
    Rule::new().daddr_is_local().in_set(&PORT, "restricted").jump(chain)
}

/// The chains and sets of restricted ports. All rules are the same for all lists: a changed list changes elements only.
fn sources(
    table: &mut Table,
    datapath: &Datapath,
    config: &Config,
    bound: &BoundPods<'_>,
    ports: &Ports<'_>,
) {
    let [mut restricted, mut networks, mut vips, mut own] = [const { Vec::new() }; 4];
    for (key, port) in ports {
        let Some(admitted) = &port.sources else { continue };
        let key = service(key);
        let at = |source: &[u8]| [source, &key].concat();
        networks.extend(
            admitted
                .iter()
                .map(|net| Element::range(at(&net.network().octets()), at(&net.broadcast().octets()))),
        );
        for (_, path) in datapath.vips.iter().filter(|(vip, _)| port.admits(**vip)) {
            let mark = mark_of(path.tun_id, config.mark_mask);
            vips.extend(mark.map(|mark| Element::new(at(&mark.to_ne_bytes()))));
        }
        own.extend(port.admits(datapath.node.ip).then(|| Element::new(key.clone())));
        restricted.push(Element::new(key));
    }
    let with = |first| [&[first][..], &SERVICE].concat();
    table.set(Set::new("restricted", &SERVICE), restricted);
    table.set(Set::ranges("admitted", &with(DataType::Ipv4)), networks);
    table.set(Set::new("admitted-vips", &with(DataType::Mark)), vips);
    table.set(Set::new("admitted-node", &SERVICE), own);
    let clients = bound.iter();
    table.set(
        Set::verdict_map("clients", &[DataType::Ipv4]),
        clients.map(|(pod, bound)| Element::with_verdict(pod.octets(), Verdict::Jump(chain_of(bound.path)))),
    );

    let refuse = |rule| drop(rule, "a source that loadBalancerSourceRanges does not have");
    let client: Vec<_> = SOURCE.iter().copied().chain(PORT).collect();
    let port = (1..).zip(PORT).map(|(place, field)| field.load(R.plus(place)));
    let admitted = Expression::InSet { set: "admitted-vips".into(), included: true };
    table.chain(
        Chain::regular("sources"),
        [
            // The source of a bound pod is its VIP, and its packets get the mark of the VIP. The gateway of another VIP sees only the VIP, so
            // the pod's own address does not count here either.
            Rule::new().vmap(SOURCE, "clients"),
            Rule::new().with(mark(config.mark_mask)).with(port).with([admitted]).return_to_caller(),
            refuse(marked(Rule::new(), config.mark_mask)),
            Rule::new().in_set(&client, "admitted").return_to_caller(),
            refuse(Rule::new()),
        ],
    );
    table.chain(
        Chain::regular("sources-of-node"),
        [
            // A process of this node has the VIP as its source, because the VIP is a local address.
            Rule::new().in_set(SOURCE, "vips").in_set(&PORT, "admitted-node").return_to_caller(),
            Rule::new().goto("sources"),
        ],
    );
}

/// Bound pods of all nodes.
fn pods(table: &mut Table, datapath: &Datapath, pods: &BoundPods<'_>) {
    let own = datapath.node.ip;
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

/// The bound pods, by address.
type BoundPods<'a> = BTreeMap<Ipv4Addr, Bound<'a>>;

/// The ports of the VIPs.
type Ports<'a> = BTreeMap<(Ipv4Addr, Protocol, u16), &'a ServicePort>;

/// The key of a port, as [`PORT`] loads it.
fn service((vip, protocol, port): &(Ipv4Addr, Protocol, u16)) -> Vec<u8> {
    service_key(*vip, protocol.number(), *port)
}

/// DNAT of the ports that have backends.
fn translations(table: &mut Table, ports: &Ports<'_>) {
    let ports = || ports.iter().filter(|(_, port)| !port.backends.is_empty());
    for ((vip, ..), port) in ports() {
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
        let rule = rule.set_ct_mark(TRANSLATED, TRANSLATED);
        let rule = rule.dnat_by_hash(fields, SEED, backends, &name);
        table.chain(Chain::regular(&name).comment(&port.service), [rule]);
    }
    // The VIP and port of each backend, if there is only one.
    let mut origins: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    for ((vip, protocol, number), port) in ports() {
        for (address, backend) in &port.backends {
            let origin = origins.entry(service_key(*address, protocol.number(), *backend));
            origin.and_modify(|origin| *origin = None).or_insert_with(|| Some(backend_data(*vip, *number)));
        }
    }
    table.set(
        Set::map("replies", &SERVICE, &[DataType::Ipv4, DataType::Service]),
        origins.into_iter().filter_map(|(backend, origin)| Some(Element::with_value(backend, origin?))),
    );
    let elements =
        ports().map(|(key, port)| Element::with_verdict(service(key), Verdict::Goto(name_of(key.0, port))));
    table.set(Set::verdict_map("services", &SERVICE), elements);
}

/// Name of a port's chain and map.
fn name_of(vip: Ipv4Addr, port: &ServicePort) -> String {
    format!("{}-{vip}-{}", port.protocol.name(), port.port)
}
