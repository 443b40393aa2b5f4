//! NetworkPolicies: labels of source objects select addresses.

use apinetlet::api::network_policy::{NetworkPolicyRule, Rule, SourceNetworkPolicy};
use apinetlet::api::source;
use kube::ResourceExt as _;
use serde_json::json;

use super::environment::{TestEnv, create, create_with, delete, patch, wait, wait_gone};

#[tokio::test]
async fn a_policy_means_the_addresses_of_the_selected_objects() {
    let (env, _apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let sources = env.source::<source::NetworkInterface>();
    for (name, app, ip) in
        [("web-1", "web", "10.0.1.1"), ("web-2", "web", "10.0.1.2"), ("db", "db", "10.0.1.3")]
    {
        let body = json!({ "spec": {
            "networkRef": { "name": "net" }, "ipFamilies": ["IPv4"], "ips": [{ "value": ip }],
        } });
        create_with(&sources, name, json!({ "labels": { "app": app } }), body).await;
        let interface = env.attach(name, "node-1").await;
        env.set_state(&interface, "Ready").await;
    }
    let policies = env.source::<SourceNetworkPolicy>();
    let spec = json!({
        "networkRef": { "name": "net" }, "networkInterfaceSelector": { "matchLabels": { "app": "web" } },
        "policyTypes": ["Ingress"],
        "ingress": [{
            "ports": [{ "protocol": "TCP", "port": 443 }],
            "from": [{ "objectSelector": { "kind": "NetworkInterface", "matchLabels": { "app": "db" } } }],
        }],
    });
    let uid = create(&policies, "web", spec).await.uid().unwrap();
    let rules = env.apinet::<NetworkPolicyRule>();
    let targets =
        |rule: &NetworkPolicyRule| rule.targets.iter().map(|one| one.ip.clone()).collect::<Vec<_>>();
    let peers = |rule: &NetworkPolicyRule| {
        let ips = rule.ingress.iter().flat_map(|rule| &rule.ips);
        ips.filter_map(|one| one.prefix.clone()).collect::<Vec<_>>()
    };
    let is_complete = |rule: &NetworkPolicyRule| {
        targets(rule) == ["10.0.1.1", "10.0.1.2"] && peers(rule) == ["10.0.1.3/32"]
    };
    wait(&rules, &uid, "the addresses", is_complete).await;

    // The label of one interface changes sides.
    patch(&sources, "web-2", json!({ "metadata": { "labels": { "app": "db" } } })).await;
    let has_moved = |rule: &NetworkPolicyRule| {
        targets(rule) == ["10.0.1.1"] && peers(rule) == ["10.0.1.2/32", "10.0.1.3/32"]
    };
    wait(&rules, &uid, "the other side", has_moved).await;
    delete(&policies, "web").await;
    wait_gone(&policies, "web").await;
    wait_gone(&rules, &uid).await;
}

#[tokio::test]
async fn an_entry_without_ports_and_peers_becomes_a_rule_with_all_of_them() {
    let (env, apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let spec = json!({
        "networkRef": { "name": "net" }, "networkInterfaceSelector": {},
        "policyTypes": ["Ingress", "Egress"], "ingress": [{}],
    });
    let uid = create(&env.source::<SourceNetworkPolicy>(), "open", spec).await.uid().unwrap();
    let blocks = |rules: &[Rule]| -> Vec<String> {
        rules.iter().flat_map(|rule| &rule.ip_block).map(|block| block.cidr.clone()).collect()
    };
    let ports = |rules: &[Rule]| -> usize { rules.iter().map(|rule| rule.network_policy_ports.len()).sum() };
    let is_complete = |rule: &NetworkPolicyRule| {
        blocks(&rule.ingress) == ["0.0.0.0/0", "::/0"]
            && blocks(&rule.egress) == ["0.0.0.0/32"]
            && (ports(&rule.ingress), ports(&rule.egress)) == (2, 1)
    };
    wait(&env.apinet::<NetworkPolicyRule>(), &uid, "all peers, and no egress", is_complete).await;
    // The API server serves it as it was written.
    super::mapping::settled(&apinetlet).await;
}
