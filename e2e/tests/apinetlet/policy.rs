//! NetworkPolicies: labels of source objects select addresses.

use apinetlet::api::network_policy::{NetworkPolicyRule, SourceNetworkPolicy};
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
