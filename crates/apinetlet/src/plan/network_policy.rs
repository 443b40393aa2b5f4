//! A NetworkPolicy: its counterpart, and the rule with the addresses that the policy means.
//!
//! metalnetlet makes a firewall rule of each pair of a port and an address of an entry, and reads the protocol of each port. So "all
//! ports", "all peers" and the default protocol are written out: what is left out there allows nothing, or stops metalnetlet.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    Action, Desired, Plan, Reason, add_finalizer, counterpart, is_applied_metadata, live, outdated, owned_by,
    regarding,
};
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

/// All ports. metalnetlet has no firewall rules for SCTP, and the API has no ICMP.
const ALL_PORTS: [&str; 2] = [TCP, "UDP"];

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
    let mut plan = Plan::default();
    let Snapshot { source, counterpart: observed, .. } = snapshot;
    let regarding = regarding(config.flavor, Kind::NetworkPolicy, &source.metadata);
    let metadata = observed.as_ref().map(|observed| &observed.metadata);
    let Some(origin) = live(config, Kind::NetworkPolicy, &regarding, &source.metadata, metadata, &mut plan)
    else {
        return plan;
    };
    add_finalizer(config, Kind::NetworkPolicy, &regarding, &source.metadata, &mut plan);
    let Some(network) = &snapshot.network else {
        let name = source.spec.network_ref.name.clone();
        let is_pending = snapshot.has_source_network;
        let because = if is_pending { Reason::NetworkPending(name) } else { Reason::NetworkNotFound(name) };
        plan.problem(regarding, because);
        return plan;
    };
    let metadata = counterpart(config, Kind::NetworkPolicy, &origin);
    let desired = NetworkPolicy {
        metadata: metadata.clone(),
        spec: Spec {
            network_ref: LocalRef { name: network.name.clone() },
            priority: Some(PRIORITY),
            ..source.spec.clone()
        },
    };
    let is_applied = |observed: &NetworkPolicy| {
        is_applied_metadata(config, &desired.metadata, &observed.metadata) && desired.spec == observed.spec
    };
    // First, because it has the addresses, and an apply that the API server refuses ends the steps.
    if let Some(observed) = observed {
        let owner_references = owned_by(config.flavor, "NetworkPolicy", &observed.metadata);
        rule(config, snapshot, ObjectMeta { owner_references, ..metadata }, network, &mut plan);
    }
    if let Some(because) = outdated(observed.as_ref(), is_applied) {
        plan.step(Action::apply(&regarding, Desired::NetworkPolicy(desired)), because);
    }
    plan
}

/// The rule of the policy. `metadata`: its metadata.
fn rule(config: &Config, snapshot: &Snapshot, metadata: ObjectMeta, network: &LocalUidRef, plan: &mut Plan) {
    let source = &snapshot.source;
    let regarding = regarding(config.flavor, Kind::NetworkPolicy, &source.metadata);
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
        plan.step(Action::apply(&regarding, Desired::NetworkPolicyRule(rule)), because);
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
        let network_policy_ports = if ports.is_empty() {
            ALL_PORTS.into_iter().map(all_ports).collect()
        } else {
            ports.iter().map(port).collect()
        };
        let rule = Rule { ip_block, ips: ips.into_iter().collect(), network_policy_ports };
        // The selectors of an entry can select nothing.
        (!rule.ip_block.is_empty() || !rule.ips.is_empty()).then_some(rule)
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

fn block(cidr: &str) -> IpBlock {
    IpBlock { cidr: cidr.to_owned(), except: Vec::new() }
}

fn all_ports(protocol: &str) -> PolicyPort {
    PolicyPort { protocol: Some(protocol.to_owned()), ..PolicyPort::default() }
}

/// With the default protocol, and without the 0 that means all ports.
fn port(one: &PolicyPort) -> PolicyPort {
    PolicyPort {
        protocol: one.protocol.clone().or_else(|| Some(TCP.to_owned())),
        port: one.port.filter(|port| *port != 0),
        end_port: one.end_port,
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use serde_json::{Value, json};

    use super::*;
    use crate::plan::fixtures::{acts, config, deleting, problems};

    fn snapshot(spec: Value) -> Snapshot {
        let interface = |name: &str, state: &str, app: &str, ips: Value| -> apinet::NetworkInterface {
            serde_json::from_value(json!({
                "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": { "app": app } },
                "spec": { "ips": ips }, "status": { "state": state },
            }))
            .unwrap()
        };
        let balancer = json!({
            "metadata": { "name": "lb", "labels": { "app": "edge" } },
            "spec": { "ips": [{ "name": "a", "ipFamily": "IPv4", "ip": "203.0.113.1" }, { "name": "b", "ipFamily": "IPv4" }] },
        });
        let source = json!({
            "metadata": { "name": "np", "namespace": "team", "uid": "u1", "finalizers": ["apinet.ironcore.dev/networkpolicy"] },
            "spec": spec,
        });
        Snapshot {
            source: serde_json::from_value(source).unwrap(),
            network: Some(LocalUidRef { name: "n1".into(), uid: "apinet-n1".into() }),
            has_source_network: true,
            interfaces: vec![
                interface("b", "Ready", "web", json!(["10.0.0.2", "fdef::2"])),
                interface("a", "Ready", "web", json!(["10.0.0.1"])),
                interface("c", "Pending", "web", json!(["10.0.0.3"])),
                interface("d", "Ready", "db", json!(["10.0.0.4"])),
            ],
            load_balancers: vec![serde_json::from_value(balancer).unwrap()],
            ..Snapshot::default()
        }
    }

    fn spec() -> Value {
        json!({
            "networkRef": { "name": "net" },
            "networkInterfaceSelector": { "matchLabels": { "app": "web" } },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{
                "ports": [{ "protocol": "TCP", "port": 0 }],
                "from": [
                    { "objectSelector": { "kind": "NetworkInterface", "matchLabels": { "app": "db" } } },
                    { "objectSelector": { "kind": "LoadBalancer", "matchExpressions": [{ "key": "app", "operator": "Exists" }] } },
                    { "ipBlock": { "cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"] } },
                ],
            }],
            "egress": [{}],
        })
    }

    fn applied(plan: &Plan, number: usize) -> Value {
        serde_json::to_value(&plan.steps[number].action.act).unwrap()["apply"].clone()
    }

    #[test]
    fn policy_then_rule_then_nothing() {
        let mut snapshot = snapshot(spec());
        let first = plan(&config(), &snapshot);
        assert_eq!(acts(&first), ["Apply"]);
        let policy = applied(&first, 0);
        let mut expected = spec();
        expected["networkRef"]["name"] = "n1".into();
        expected["priority"] = 1000.into();
        assert_eq!(policy["spec"], expected, "as in the source cluster, the port 0 too");

        let mut observed: NetworkPolicy = serde_json::from_value(policy).unwrap();
        observed.metadata.uid = Some("a1".into());
        snapshot.counterpart = Some(observed);
        let second = plan(&config(), &snapshot);
        assert_eq!(acts(&second), ["Apply"]);
        let rule = applied(&second, 0);
        let target = |ip: &str, name: &str| json!({ "ip": ip, "targetRef": { "name": name, "uid": format!("uid-{name}") } });
        assert_eq!(
            rule["targets"],
            json!([target("10.0.0.1", "a"), target("10.0.0.2", "b"), target("fdef::2", "b")])
        );
        assert_eq!(rule["networkRef"], json!({ "name": "n1", "uid": "apinet-n1" }));
        assert_eq!(rule["metadata"]["ownerReferences"][0]["uid"], "a1");
        let ip = |prefix: &str| json!({ "ipFamily": "IPv4", "prefix": prefix });
        let ingress = json!([{
            "ipBlock": [{ "cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"] }],
            "ips": [ip("10.0.0.4/32"), ip("203.0.113.1/32")],
            "networkPolicyPorts": [{ "protocol": "TCP" }],
        }]);
        let egress = json!([{
            "ipBlock": [{ "cidr": "0.0.0.0/0" }, { "cidr": "::/0" }],
            "networkPolicyPorts": [{ "protocol": "TCP" }, { "protocol": "UDP" }],
        }]);
        assert_eq!((&rule["ingressRule"], &rule["egressRule"]), (&ingress, &egress));

        snapshot.rule = Some(serde_json::from_value(rule).unwrap());
        assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0], "nothing is written in steady state");
        snapshot.interfaces.reverse();
        assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0], "the order of a cache is no difference");
        snapshot.interfaces[1].status.state = "Ready".into();
        assert_eq!(acts(&plan(&config(), &snapshot)), ["Apply"], "one more target");
    }

    #[test]
    fn the_rule_is_applied_before_a_change_of_the_policy() {
        let mut snapshot = snapshot(spec());
        let mut observed: NetworkPolicy =
            serde_json::from_value(applied(&plan(&config(), &snapshot), 0)).unwrap();
        observed.metadata.uid = Some("a1".into());
        snapshot.counterpart = Some(observed);
        snapshot.source.spec.egress.clear();
        let steps = plan(&config(), &snapshot).steps;
        let texts: Vec<_> = steps.iter().map(|step| step.action.to_string()).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(
            texts[0].contains("NetworkPolicyRule u1") && texts[1].contains("NetworkPolicy u1"),
            "{texts:?}"
        );
    }

    #[test]
    fn a_selector_that_selects_nothing_allows_nothing() {
        let mut spec = spec();
        spec["ingress"] = json!([
            { "from": [{ "objectSelector": { "kind": "NetworkInterface", "matchLabels": { "app": "none" } } }] },
            { "from": [{ "objectSelector": { "kind": "Unknown" } }] },
        ]);
        let snapshot = snapshot(spec);
        let ingress = snapshot.source.spec.ingress.iter().map(|one| (&one.from, &one.ports));
        assert_eq!(rules(&snapshot, ingress), []);
    }

    /// metalnetlet makes a firewall rule of each port with each network or address.
    #[test]
    fn the_rule_has_the_ports_and_peers_that_an_entry_leaves_out() {
        let all_ports = json!([{ "protocol": "TCP" }, { "protocol": "UDP" }]);
        let all_peers = json!([{ "cidr": "0.0.0.0/0" }, { "cidr": "::/0" }]);
        let (https, net) = (json!([{ "protocol": "TCP", "port": 443 }]), json!([{ "cidr": "192.0.2.0/24" }]));
        let (block, none) = (
            json!([{ "ipBlock": { "cidr": "192.0.2.0/24" } }]),
            json!([{ "objectSelector": { "kind": "NetworkInterface", "matchLabels": { "app": "none" } } }]),
        );
        let entry = |ports: &Value, peers: &Value| json!({ "networkPolicyPorts": ports, "ipBlock": peers });
        let refused = entry(&json!([{ "protocol": "TCP" }]), &json!([{ "cidr": "0.0.0.0/32" }]));
        for (case, types, ingress, egress, ingress_rules, egress_rules) in [
            (
                "a port without protocol",
                json!(["Ingress"]),
                json!([{ "ports": [{ "port": 443 }], "from": block }]),
                json!([]),
                json!([entry(&https, &net)]),
                json!([]),
            ),
            (
                "a range without protocol",
                json!(["Ingress"]),
                json!([{ "ports": [{ "port": 443, "endPort": 450 }], "from": block }]),
                json!([]),
                json!([entry(&json!([{ "protocol": "TCP", "port": 443, "endPort": 450 }]), &net)]),
                json!([]),
            ),
            (
                "no ports",
                json!(["Ingress"]),
                json!([{ "from": block }]),
                json!([]),
                json!([entry(&all_ports, &net)]),
                json!([]),
            ),
            (
                "no peers",
                json!(["Ingress", "Egress"]),
                json!([{ "ports": https }]),
                json!([{ "ports": https }]),
                json!([entry(&https, &all_peers)]),
                json!([entry(&https, &all_peers)]),
            ),
            (
                "neither",
                json!(["Ingress", "Egress"]),
                json!([{}]),
                json!([{}]),
                json!([entry(&all_ports, &all_peers)]),
                json!([entry(&all_ports, &all_peers)]),
            ),
            (
                "selectors that select nothing",
                json!(["Ingress", "Egress"]),
                json!([{ "ports": https, "from": none }]),
                json!([{ "ports": https, "to": none }]),
                json!([]),
                json!([refused]),
            ),
            (
                "one of two entries selects nothing",
                json!(["Egress"]),
                json!([]),
                json!([{ "ports": https, "to": none }, { "ports": https, "to": block }]),
                json!([]),
                json!([entry(&https, &net)]),
            ),
            ("egress without entries", json!(["Egress"]), json!([]), json!([]), json!([]), json!([refused])),
            ("ingress only", json!(["Ingress"]), json!([]), json!([]), json!([]), json!([])),
        ] {
            let mut snapshot = snapshot(json!({
                "networkRef": { "name": "net" }, "networkInterfaceSelector": {}, "policyTypes": types,
                "ingress": ingress, "egress": egress,
            }));
            let mut observed: NetworkPolicy =
                serde_json::from_value(applied(&plan(&config(), &snapshot), 0)).unwrap();
            observed.metadata.uid = Some("a1".into());
            snapshot.counterpart = Some(observed);
            let rule = applied(&plan(&config(), &snapshot), 0);
            assert_eq!(
                (&rule["ingressRule"], &rule["egressRule"]),
                (&ingress_rules, &egress_rules),
                "{case}"
            );
        }
    }

    #[test]
    fn an_empty_selector_selects_every_ready_interface() {
        let snapshot = snapshot(json!({ "networkRef": { "name": "net" }, "networkInterfaceSelector": {} }));
        assert_eq!(targets(&snapshot).len(), 4);
    }

    #[test]
    fn without_its_network_a_policy_is_a_problem_and_is_deleted_all_the_same() {
        let mut snapshot = Snapshot { network: None, ..snapshot(spec()) };
        for (has_source_network, code, is_transient) in
            [(true, "NetworkPending", true), (false, "NetworkNotFound", false)]
        {
            snapshot.has_source_network = has_source_network;
            let missing = plan(&config(), &snapshot);
            assert_eq!((acts(&missing), problems(&missing)), (vec![], vec![code]));
            assert_eq!(missing.problems[0].because.is_transient(), is_transient, "{code}");
        }
        deleting(&mut snapshot.source.metadata);
        assert_eq!(acts(&plan(&config(), &snapshot)), ["RemoveFinalizer"]);
    }
}
