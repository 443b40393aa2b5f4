//! A NetworkPolicy: its counterpart, and the rule with the addresses that the policy means.
//!
//! metalnetlet makes a firewall rule of each pair of a port and an address of an entry, and reads the protocol of each port. So "all
//! ports", "all peers", the default protocol and the last port are written out: what is left out there allows nothing, or stops
//! metalnetlet.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Desired, Draft, Plan, Reason, counterpart, is_applied_metadata, outdated, owned_by};
use crate::api::network_policy::{
    IpBlock, NetworkPolicy, NetworkPolicyRule, ObjectIp, ObjectSelector, Peer, PolicyPort, Rule,
    SourceNetworkPolicy, Spec, Target,
};
use crate::api::{IpFamily, LocalRef, LocalUidRef, apinet, selects};
use crate::config::Config;
use crate::names::Kind;

/// The priority of all policies: the source cluster's have none.
const PRIORITY: i32 = 1000;

/// The default of a port.
const TCP: &str = "TCP";

/// The protocols that a rule can have; all of them are all ports. With SCTP, metalnetlet leaves the protocol of the firewall rule out, and
/// the API server of metalnet refuses the whole interface. The API has no ICMP.
const PROTOCOLS: [&str; 2] = [TCP, "UDP"];

/// The kinds of peers that the API server of ironcore-net accepts. ironcore's accepts VirtualIP too.
const PEER_KINDS: [&str; 2] = ["NetworkInterface", "LoadBalancer"];

/// All peers.
const ALL_PEERS: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// No interface has this address.
const NO_PEER: &str = "0.0.0.0/32";

/// A NetworkPolicy and its neighbourhood.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The source object.
    pub source: SourceNetworkPolicy,
    /// The apinet Network of its network, with its UID; None if there is none.
    pub network: Option<LocalUidRef>,
    /// Whether its network exists. Its apinet Network may not exist yet.
    pub has_source_network: bool,
    /// The apinet NetworkInterfaces of that network.
    pub interfaces: Vec<apinet::NetworkInterface>,
    /// The apinet LoadBalancers of that network.
    pub load_balancers: Vec<apinet::LoadBalancer>,
    /// The apinet NetworkPolicy that has its UID as name.
    pub counterpart: Option<NetworkPolicy>,
    /// The rule of the same name.
    pub rule: Option<NetworkPolicyRule>,
}

/// The next steps.
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot) -> Plan {
    let Snapshot { source, counterpart: observed, .. } = snapshot;
    let mut draft = Draft::new(config, Kind::NetworkPolicy, &source.metadata);
    let metadata = observed.as_ref().map(|observed| &observed.metadata);
    let Some(origin) = draft.live(metadata) else { return draft.plan };
    draft.add_finalizer();
    let Some(network) = &snapshot.network else {
        let name = source.spec.network_ref.name.clone();
        let is_pending = snapshot.has_source_network;
        let because = if is_pending { Reason::NetworkPending(name) } else { Reason::NetworkNotFound(name) };
        draft.problem(because);
        return draft.plan;
    };
    for protocol in unsupported_protocols(&source.spec) {
        draft.problem(Reason::ProtocolUnsupported(protocol.to_owned()));
    }
    for kind in unsupported_kinds(&source.spec) {
        draft.problem(Reason::PeerUnsupported(kind.to_owned()));
    }
    let metadata = counterpart(config, Kind::NetworkPolicy, &origin);
    let desired = NetworkPolicy {
        metadata: metadata.clone(),
        spec: Spec {
            network_ref: LocalRef { name: network.name.clone() },
            priority: Some(PRIORITY),
            ..with_supported_peers(&source.spec)
        },
    };
    let is_applied = |observed: &NetworkPolicy| {
        is_applied_metadata(config, &desired.metadata, &observed.metadata) && desired.spec == observed.spec
    };
    // First, because it has the addresses, and an apply that the API server refuses ends the steps.
    if let Some(observed) = observed {
        let owner_references = owned_by(config.flavor, "NetworkPolicy", &observed.metadata);
        let metadata = ObjectMeta { owner_references, ..metadata };
        rule(&mut draft, snapshot, metadata, network);
    }
    if let Some(because) = outdated(observed.as_ref(), is_applied) {
        draft.apply(Desired::NetworkPolicy(desired), because);
    }
    draft.plan
}

/// The policy without peers that the API server of ironcore-net refuses, and without entries that have only such: with no peers they would
/// allow all.
fn with_supported_peers(spec: &Spec) -> Spec {
    let retain_supported = |peers: &mut Vec<Peer>| {
        let are_all_meant = peers.is_empty();
        peers.retain(|peer| unsupported_kind(peer).is_none());
        are_all_meant || !peers.is_empty()
    };
    let mut spec = spec.clone();
    spec.ingress.retain_mut(|one| retain_supported(&mut one.from));
    spec.egress.retain_mut(|one| retain_supported(&mut one.to));
    spec
}

/// The kinds of the peers that are left out.
fn unsupported_kinds(spec: &Spec) -> BTreeSet<&str> {
    let from = spec.ingress.iter().flat_map(|one| &one.from);
    let to = spec.egress.iter().flat_map(|one| &one.to);
    from.chain(to).filter_map(unsupported_kind).collect()
}

fn unsupported_kind(peer: &Peer) -> Option<&str> {
    let selector = peer.object_selector.as_ref()?;
    Some(selector.kind.as_str()).filter(|kind| !PEER_KINDS.contains(kind))
}

/// The rule of the policy. `metadata`: its metadata.
fn rule(draft: &mut Draft<'_>, snapshot: &Snapshot, metadata: ObjectMeta, network: &LocalUidRef) {
    let (config, source) = (draft.config, &snapshot.source);
    let rule = NetworkPolicyRule {
        metadata,
        network_ref: Some(network.clone()),
        targets: targets(snapshot),
        priority: Some(PRIORITY),
        ingress: rules(snapshot, source.spec.ingress.iter().map(|one| (&one.from, &one.ports))),
        egress: egress(snapshot),
    };
    let is_applied = |one: &NetworkPolicyRule| {
        let metadata = one.metadata.clone();
        is_applied_metadata(config, &rule.metadata, &metadata)
            && NetworkPolicyRule { metadata, ..rule.clone() } == *one
    };
    if let Some(because) = outdated(snapshot.rule.as_ref(), is_applied) {
        draft.apply(Desired::NetworkPolicyRule(rule), because);
    }
}

/// The addresses of the interfaces that the policy applies to, in order.
fn targets(snapshot: &Snapshot) -> Vec<Target> {
    let selector = &snapshot.source.spec.network_interface_selector;
    let selected = ready(snapshot).filter(|one| selects(selector, one.metadata.labels.as_ref()));
    let of_interface = selected.flat_map(|one| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let target = LocalUidRef { name: text(&one.metadata.name), uid: text(&one.metadata.uid) };
        one.spec.ips.iter().map(move |ip| Target { ip: ip.clone(), target_ref: Some(target.clone()) })
    });
    of_interface.collect::<BTreeSet<_>>().into_iter().collect()
}

fn ready(snapshot: &Snapshot) -> impl Iterator<Item = &apinet::NetworkInterface> {
    snapshot.interfaces.iter().filter(|one| one.status.state == "Ready")
}

fn rules<'a>(
    snapshot: &Snapshot,
    allowed: impl Iterator<Item = (&'a Vec<Peer>, &'a Vec<PolicyPort>)>,
) -> Vec<Rule> {
    let rules = allowed.filter_map(|(peers, ports)| {
        let selected = peers.iter().filter_map(|peer| peer.object_selector.as_ref());
        let ips: BTreeSet<ObjectIp> = selected.flat_map(|selector| addresses(snapshot, selector)).collect();
        let ip_block: Vec<IpBlock> = if peers.is_empty() {
            ALL_PEERS.into_iter().map(block).collect()
        } else {
            peers.iter().filter_map(|peer| peer.ip_block.clone()).collect()
        };
        let network_policy_ports: Vec<PolicyPort> = if ports.is_empty() {
            PROTOCOLS.into_iter().map(all_ports).collect()
        } else {
            ports.iter().filter(|one| unsupported_protocol(one).is_none()).map(port).collect()
        };
        let rule = Rule { ip_block, ips: ips.into_iter().collect(), network_policy_ports };
        // The selectors of an entry can select nothing, and none of its protocols may be supported.
        let has_peers = !rule.ip_block.is_empty() || !rule.ips.is_empty();
        (has_peers && !rule.network_policy_ports.is_empty()).then_some(rule)
    });
    rules.collect()
}

/// An interface without a firewall rule for egress may send to all, so that a policy for egress has at least one.
fn egress(snapshot: &Snapshot) -> Vec<Rule> {
    let spec = &snapshot.source.spec;
    let mut rules = rules(snapshot, spec.egress.iter().map(|one| (&one.to, &one.ports)));
    let is_restricted = !spec.egress.is_empty() || spec.policy_types.iter().any(|one| one == "Egress");
    if is_restricted && rules.is_empty() {
        let (ip_block, network_policy_ports) = (vec![block(NO_PEER)], vec![all_ports(TCP)]);
        rules.push(Rule { ip_block, ips: Vec::new(), network_policy_ports });
    }
    rules
}

/// The protocols of a policy that no rule can have.
fn unsupported_protocols(spec: &Spec) -> BTreeSet<&str> {
    let ingress = spec.ingress.iter().flat_map(|one| &one.ports);
    let egress = spec.egress.iter().flat_map(|one| &one.ports);
    ingress.chain(egress).filter_map(unsupported_protocol).collect()
}

fn unsupported_protocol(port: &PolicyPort) -> Option<&str> {
    port.protocol.as_deref().filter(|protocol| !PROTOCOLS.contains(protocol))
}

fn block(cidr: &str) -> IpBlock {
    IpBlock { cidr: cidr.to_owned(), except: Vec::new() }
}

fn all_ports(protocol: &str) -> PolicyPort {
    PolicyPort { protocol: Some(protocol.to_owned()), ..PolicyPort::default() }
}

/// With the default protocol, without the 0 that means all ports, and with a last port: metalnet takes a missing one for 0, and dpservice
/// refuses a range that ends before it begins.
fn port(one: &PolicyPort) -> PolicyPort {
    let first = one.port.filter(|port| *port != 0);
    PolicyPort {
        protocol: one.protocol.clone().or_else(|| Some(TCP.to_owned())),
        port: first,
        end_port: one.end_port.or(first),
    }
}

/// The addresses of the selected objects.
fn addresses(snapshot: &Snapshot, selector: &ObjectSelector) -> Vec<ObjectIp> {
    let is_selected =
        |labels: &Option<BTreeMap<String, String>>| selects(&selector.selector, labels.as_ref());
    let ips: Vec<&String> = match selector.kind.as_str() {
        "NetworkInterface" => {
            let selected = ready(snapshot).filter(|one| is_selected(&one.metadata.labels));
            selected.flat_map(|one| &one.spec.ips).collect()
        }
        "LoadBalancer" => {
            let selected = snapshot.load_balancers.iter().filter(|one| is_selected(&one.metadata.labels));
            selected.flat_map(|one| &one.spec.ips).filter_map(|one| one.ip.as_ref()).collect()
        }
        _ => Vec::new(),
    };
    let one = |ip: &String| {
        let ip_family = IpFamily::of(ip);
        let length = if ip_family == IpFamily::IPv4 { 32 } else { 128 };
        ObjectIp { ip_family, prefix: Some(format!("{ip}/{length}")) }
    };
    ips.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests;
