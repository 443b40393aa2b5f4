#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::{Value, json};

use super::*;
use crate::plan::fixtures::{acts, config, deleting, problems, texts};
use crate::plan::steps::Act;

fn source(spec: Value) -> source::LoadBalancer {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "team", "uid": "u1", "finalizers": ["apinet.ironcore.dev/loadbalancer"] },
        "spec": spec,
    }))
    .unwrap()
}

fn public() -> Snapshot {
    let source = source(json!({
        "type": "Public", "ipFamilies": ["IPv4", "IPv6"], "networkRef": { "name": "net" },
        "ports": [{ "protocol": "TCP", "port": 80, "endPort": 90 }],
    }));
    Snapshot { source, network: Some("n1".into()), ..Snapshot::default() }
}

fn applied(plan: &Plan, number: usize) -> Value {
    serde_json::to_value(&plan.steps[number].action.act).unwrap()["apply"].clone()
}

/// As the API server has it: with a UID, allocated addresses, and the empty fields of the Go types.
fn served(applied: Value, addresses: [&str; 2]) -> apinet::LoadBalancer {
    let mut object = applied;
    object["metadata"]["uid"] = "a1".into();
    for (index, address) in addresses.iter().enumerate() {
        object["spec"]["ips"][index]["ip"] = (*address).into();
    }
    object["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    object["spec"]["template"]["spec"]["type"] = "".into();
    object["spec"]["template"]["spec"]["networkRef"] = json!({});
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_public_load_balancer_is_applied_to_the_letter() {
    let mut snapshot = public();
    let first = plan(&config(), &snapshot);
    assert_eq!(acts(&first), ["Apply"]);
    let labels = json!({
        "apinetlet.ironcore.dev/loadbalancer-uid": "u1",
        "apinetlet.ironcore.dev/loadbalancer-namespace": "team",
    });
    let annotations = json!({ "apinetlet.ironcore.dev/loadbalancer-name": "web" });
    let expected = json!({
        "metadata": { "namespace": "apinet", "name": "u1", "labels": labels, "annotations": annotations },
        "spec": {
            "type": "Public",
            "networkRef": { "name": "n1" },
            "ips": [{ "name": "ipv4", "ipFamily": "IPv4" }, { "name": "ipv6", "ipFamily": "IPv6" }],
            "ports": [{ "protocol": "TCP", "port": 80, "endPort": 90 }],
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": { "affinity": { "instanceAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "topology.core.apinet.ironcore.dev/zone",
                    "labelSelector": { "matchLabels": labels },
                }] } } },
            },
        },
    });
    assert_eq!(applied(&first, 0), expected);

    snapshot.counterpart = Some(served(applied(&first, 0), ["10.0.0.1", "fdef::1"]));
    let second = plan(&config(), &snapshot);
    assert_eq!(acts(&second), ["Apply", "UpdateStatus"], "the routing and the status");
    let Act::SetStatus(Status::Ips(status)) = &second.steps[1].action.act else { unreachable!("{second:?}") };
    assert_eq!(status.ips, ["10.0.0.1", "fdef::1"]);
    assert_eq!(applied(&second, 0)["destinations"], json!([]));

    let routing: apinet::LoadBalancerRouting = serde_json::from_value(applied(&second, 0)).unwrap();
    snapshot.counterpart_routing = Some(routing.into());
    snapshot.source.status = status.clone();
    assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0], "nothing is written in steady state");
    // A routing without destinations has no such key.
    Arc::make_mut(snapshot.counterpart_routing.as_mut().unwrap()).destinations.clear();
    assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0]);
}

#[test]
fn addresses_of_an_internal_load_balancer_are_literal_or_those_of_its_prefixes() {
    let mut snapshot = public();
    snapshot.source = source(json!({
        "type": "Internal", "ipFamilies": ["IPv4", "IPv4", "IPv6"], "networkRef": { "name": "net" },
        "ips": [{ "ephemeral": { "prefixTemplate": {} } }, { "value": "10.0.0.9" }, { "value": "fdef::9" }],
    }));
    let ips = |snapshot: &Snapshot| applied(&plan(&config(), snapshot), 0)["spec"]["ips"].clone();
    let literal = [
        json!({ "name": "ip-1", "ipFamily": "IPv4", "ip": "10.0.0.9" }),
        json!({ "name": "ip-2", "ipFamily": "IPv6", "ip": "fdef::9" }),
    ];
    assert_eq!(ips(&snapshot), json!(literal), "a Prefix that is not allocated delays nothing else");
    snapshot.prefixes.insert("web-0".into(), "10.0.0.1/32".into());
    let allocated = json!({ "name": "ip-0", "ipFamily": "IPv4", "ip": "10.0.0.1" });
    assert_eq!(ips(&snapshot), json!([allocated, literal[0], literal[1]]));
}

#[test]
fn targets_name_the_apinet_interface_of_their_provider_id() {
    let mut snapshot = public();
    let routing: source::LoadBalancerRouting = serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "team" },
        "networkRef": { "name": "net", "uid": "x" },
        "destinations": [
            { "ip": "192.168.0.2", "targetRef": { "uid": "s", "name": "nic", "providerID": "ironcore-net://apinet/b/node-2/i2" } },
            { "ip": "192.168.0.1", "targetRef": { "uid": "s", "name": "nic", "providerID": "ironcore-net://apinet/a/node-1/i1" } },
            { "ip": "192.168.0.3", "targetRef": { "uid": "s", "name": "nic", "providerID": "ironcore-net://a" } },
            { "ip": "192.168.0.4" },
        ],
    }))
    .unwrap();
    snapshot.routing = Some(routing.into());
    let counterpart = served(applied(&plan(&config(), &snapshot), 0), ["10.0.0.1", "fdef::1"]);
    snapshot.source.status = source::Ips { ips: vec!["10.0.0.1".into(), "fdef::1".into()] };
    snapshot.counterpart = Some(counterpart);
    let routing = applied(&plan(&config(), &snapshot), 0);
    let expected = json!([
        { "ip": "192.168.0.2", "targetRef": { "uid": "i2", "name": "b", "nodeRef": { "name": "node-2" } } },
        { "ip": "192.168.0.1", "targetRef": { "uid": "i1", "name": "a", "nodeRef": { "name": "node-1" } } },
        { "ip": "192.168.0.3" },
        { "ip": "192.168.0.4" },
    ]);
    assert_eq!(routing["destinations"], expected);

    let written = |snapshot: &Snapshot, routing: &Value| {
        let routing: apinet::LoadBalancerRouting = serde_json::from_value(routing.clone()).unwrap();
        let snapshot = Snapshot { counterpart_routing: Some(routing.into()), ..snapshot.clone() };
        acts(&plan(&config(), &snapshot))
    };
    assert_eq!(written(&snapshot, &routing), [""; 0]);
    for (pointer, value) in [
        ("/destinations/0/ip", json!("192.168.0.9")),
        ("/destinations/0/targetRef/uid", json!("i9")),
        ("/destinations/0/targetRef/name", json!("x")),
        ("/destinations/1/targetRef/nodeRef/name", json!("node-2")),
        ("/destinations/1/targetRef", Value::Null),
        ("/destinations/3", expected[0].clone()),
        ("/destinations", json!([expected[0], expected[1], expected[2]])),
        ("/destinations", json!([expected[0], expected[1], expected[2], expected[3], expected[3]])),
        ("/destinations", json!([expected[1], expected[0], expected[2], expected[3]])),
        ("/metadata/ownerReferences/0/uid", json!("a0")),
    ] {
        let mut other = routing.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        assert_eq!(written(&snapshot, &other), ["Apply"], "{pointer}");
    }

    snapshot.counterpart = None;
    let affine = Config { node_affinity: true, ..config() };
    let term = |node: &str| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] });
    assert_eq!(
        applied(&plan(&affine, &snapshot), 0)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"],
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term("node-1"), term("node-2")] } })
    );
}

#[test]
fn the_immutable_selector_of_an_older_program_stays() {
    let mut snapshot = public();
    let mut object = applied(&plan(&config(), &snapshot), 0);
    let old = json!({ "matchLabels": {
        "apinetlet.ironcore.dev/loadbalancer-uid": "u1",
        "apinetlet.ironcore.dev/loadbalancer-namespace": "team",
        "apinetlet.ironcore.dev/loadbalancer-name": "web",
    } });
    object["spec"]["selector"] = old.clone();
    snapshot.counterpart = Some(served(object, ["10.0.0.1", "fdef::1"]));
    let plan = plan(&config(), &snapshot);
    assert_eq!(acts(&plan), ["Apply", "UpdateStatus", "Apply"]);
    let spec = &applied(&plan, 2)["spec"];
    assert_eq!(spec["selector"], old);
    assert_eq!(
        spec["template"]["metadata"]["labels"], old["matchLabels"],
        "the API server requires that they match"
    );
}

/// A step that the API server refuses ends the reconciliation: the pool has no address for the second family, for example.
#[test]
fn targets_are_applied_before_a_change_of_the_load_balancer() {
    let mut snapshot = public();
    snapshot.counterpart = Some(served(applied(&plan(&config(), &snapshot), 0), ["10.0.0.1", "fdef::1"]));
    snapshot.source.spec.ports.clear();
    let routing = json!({ "metadata": { "name": "web" }, "destinations": [{ "ip": "192.168.0.4" }] });
    let routing: source::LoadBalancerRouting = serde_json::from_value(routing).unwrap();
    snapshot.routing = Some(routing.into());
    let plan = plan(&config(), &snapshot);
    let texts = texts(&plan);
    assert_eq!(acts(&plan), ["Apply", "UpdateStatus", "Apply"]);
    assert!(texts[0].contains("LoadBalancerRouting") && texts[2].contains("LoadBalancer u1"), "{texts:?}");
}

#[test]
fn what_cannot_be_mapped_is_a_problem_and_writes_nothing_to_the_apinet_cluster() {
    let missing = Snapshot { network: None, ..public() };
    let mut unknown = public();
    unknown.source.spec.kind = "Global".into();
    for (snapshot, code) in [(missing, "NetworkNotFound"), (unknown, "TypeUnknown")] {
        let plan = plan(&config(), &snapshot);
        assert_eq!((acts(&plan), problems(&plan)), (vec![], vec![code]));
    }
}

#[test]
fn a_deleted_load_balancer_is_deleted_without_its_network() {
    let mut snapshot = public();
    snapshot.counterpart = Some(served(applied(&plan(&config(), &snapshot), 0), ["10.0.0.1", "fdef::1"]));
    snapshot.network = None;
    deleting(&mut snapshot.source.metadata);
    assert_eq!(acts(&plan(&config(), &snapshot)), ["Delete"]);
}
