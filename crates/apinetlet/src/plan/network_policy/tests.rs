#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::{Value, json};

use super::*;
use crate::plan::fixtures::{acts, config, deleting, problems, texts};

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
    let texts = texts(&plan(&config(), &snapshot));
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("NetworkPolicyRule u1") && texts[1].contains("NetworkPolicy u1"), "{texts:?}");
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
    // A range of one port: without its end, dpservice refuses the firewall rule.
    let https = json!([{ "protocol": "TCP", "port": 443, "endPort": 443 }]);
    let (single, net) = (json!([{ "protocol": "TCP", "port": 443 }]), json!([{ "cidr": "192.0.2.0/24" }]));
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
            "a port without endPort",
            json!(["Ingress", "Egress"]),
            json!([{ "ports": single, "from": block }]),
            json!([{ "ports": single, "to": block }]),
            json!([entry(&https, &net)]),
            json!([entry(&https, &net)]),
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
            "one of two protocols is unsupported",
            json!(["Ingress"]),
            json!([{ "ports": [{ "protocol": "SCTP", "port": 5000 }, { "protocol": "TCP", "port": 443 }], "from": block }]),
            json!([]),
            json!([entry(&https, &net)]),
            json!([]),
        ),
        (
            "no protocol is supported",
            json!(["Ingress", "Egress"]),
            json!([{ "ports": [{ "protocol": "SCTP" }], "from": block }]),
            json!([{ "ports": [{ "protocol": "SCTP" }], "to": block }]),
            json!([]),
            json!([refused]),
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
        assert_eq!((&rule["ingressRule"], &rule["egressRule"]), (&ingress_rules, &egress_rules), "{case}");
    }
}

/// metalnet's API server refuses an interface with a firewall rule without a protocol, which metalnetlet makes of SCTP.
#[test]
fn a_protocol_without_firewall_rules_is_a_problem_and_stays_in_the_policy() {
    let mut spec = spec();
    spec["ingress"][0]["ports"] = json!([{ "protocol": "SCTP", "port": 5000 }, { "protocol": "UDP" }]);
    spec["egress"] = json!([{ "ports": [{ "protocol": "SCTP" }] }]);
    let plan = plan(&config(), &snapshot(spec.clone()));
    assert_eq!((acts(&plan), problems(&plan)), (vec!["Apply"], vec!["ProtocolUnsupported"]));
    assert!(plan.problems[0].because.to_string().contains("SCTP"));
    assert_eq!(applied(&plan, 0)["spec"]["ingress"], spec["ingress"]);
}

/// ironcore-net refuses a policy with such a peer.
#[test]
fn a_peer_of_an_unsupported_kind_is_a_problem_and_does_not_open_its_entry() {
    let by_kind = |kind: &str| json!({ "objectSelector": { "kind": kind, "matchLabels": { "app": "db" } } });
    let mut spec = spec();
    spec["ingress"] = json!([
        { "from": [by_kind("VirtualIP"), by_kind("NetworkInterface")] },
        { "from": [by_kind("VirtualIP")] },
        {},
    ]);
    spec["egress"] = json!([{ "to": [by_kind("VirtualIP")] }]);
    let plan = plan(&config(), &snapshot(spec));
    assert_eq!((acts(&plan), problems(&plan)), (vec!["Apply"], vec!["PeerUnsupported"]));
    let policy = applied(&plan, 0);
    assert_eq!(policy["spec"]["ingress"], json!([{ "from": [by_kind("NetworkInterface")] }, {}]));
    assert_eq!(policy["spec"].get("egress"), None);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
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
