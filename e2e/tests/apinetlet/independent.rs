//! ironcore-net is usable without a source cluster: apinet objects of other programs are beside those of apinetlet.

use std::collections::BTreeMap;

use apinetlet::api::network_policy::NetworkPolicy;
use apinetlet::api::{apinet, source};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::environment::{TestEnv, create, create_with, delete, patch, wait, wait_gone};
use super::mapping::settled;

/// The name of each object of the other program.
const OWN: &str = "independent";

const KINDS: [&str; 8] = [
    "networks",
    "networkinterfaces",
    "ips",
    "loadbalancers",
    "loadbalancerroutings",
    "natgateways",
    "natgatewayautoscalers",
    "networkpolicies",
];

fn interface_spec(ip: &str) -> Value {
    json!({ "nodeRef": { "name": "node-1" }, "networkRef": { "name": OWN }, "ips": [ip] })
}

/// One object of each kind, as an administrator of the apinet cluster creates them.
async fn create_all(env: &TestEnv) {
    create(&env.apinet::<apinet::Network>(), OWN, json!({})).await;
    create(&env.apinet::<apinet::Ip>(), OWN, json!({ "type": "Public", "ipFamily": "IPv4" })).await;
    let labels = json!({ "app": OWN });
    let balancer = json!({
        "type": "Public", "networkRef": { "name": OWN }, "ips": [{ "name": "ipv4", "ipFamily": "IPv4" }],
        "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels } },
    });
    create(&env.apinet::<apinet::LoadBalancer>(), OWN, balancer).await;
    let destinations = json!({ "destinations": [{ "ip": "10.0.7.1" }] });
    create_with(&env.apinet::<apinet::LoadBalancerRouting>(), OWN, json!({}), destinations).await;
    let gateway =
        json!({ "ipFamily": "IPv4", "networkRef": { "name": OWN }, "portsPerNetworkInterface": 1024 });
    create(&env.apinet::<apinet::NatGateway>(), OWN, gateway).await;
    let autoscaler = json!({ "natGatewayRef": { "name": OWN }, "minPublicIPs": 1, "maxPublicIPs": 2 });
    create(&env.apinet::<apinet::NatGatewayAutoscaler>(), OWN, autoscaler).await;
    let policy = json!({
        "networkRef": { "name": OWN }, "networkInterfaceSelector": { "matchLabels": labels }, "priority": 1,
        "policyTypes": ["Ingress"],
    });
    create(&env.apinet::<NetworkPolicy>(), OWN, policy).await;
    create(&env.apinet::<apinet::NetworkInterface>(), OWN, interface_spec("10.0.7.1")).await;
    wait_for_nat(env, OWN).await;
}

async fn wait_for_nat(env: &TestEnv, interface: &str) {
    let has_nat = |one: &apinet::NetworkInterface| {
        one.spec.nat_gateways.iter().any(|gateway| gateway.claim_ref.name == OWN)
    };
    wait(&env.apinet(), interface, "NAT without apinetlet", has_nat).await;
}

/// The UIDs and specs of the objects of the other program, and all that names a source object.
async fn objects(env: &TestEnv) -> BTreeMap<&'static str, Value> {
    let mut objects = BTreeMap::new();
    for kind in KINDS {
        for object in env.list(env.flavor.names().apinet, &env.apinet, kind).await {
            if object["metadata"]["name"] == OWN {
                let metadata = &object["metadata"];
                let kept = [&metadata["uid"], &metadata["labels"], &metadata["annotations"], &object["spec"]];
                objects.insert(kind, json!(kept));
            }
        }
    }
    objects
}

/// The writes of apinetlet to objects of the other program.
fn writes(env: &TestEnv) -> Vec<String> {
    let mut writes = env.writes();
    writes.retain(|write| write.contains(OWN));
    writes
}

#[tokio::test]
async fn objects_without_a_source_object_are_not_touched_and_need_no_apinetlet() {
    let env = TestEnv::new().await;
    create_all(&env).await;
    let before = objects(&env).await;
    assert_eq!(before.len(), KINDS.len(), "{before:?}");
    // With the flag that deletes most.
    let flags = ["--source-cluster-id=ours", "--adopt-unmarked"];
    let apinetlet = env.start(&flags).await;
    let (networks, gateways) = (env.source::<source::Network>(), env.source::<source::NatGateway>());
    let uid = env.network("net").await.uid().unwrap();
    wait(&networks, "net", "Available", |one| one.status.state == "Available").await;
    env.network("short").await;
    wait(&networks, "short", "Available", |one| one.status.state == "Available").await;
    let spec = json!({ "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "short" } });
    create(&gateways, "nat", spec).await;
    wait(&gateways, "nat", "an address", |one| one.status.ips.len() == 1).await;
    delete(&gateways, "nat").await;
    wait_gone(&gateways, "nat").await;
    delete(&networks, "short").await;
    wait_gone(&networks, "short").await;
    settled(&apinetlet).await;
    assert_eq!(writes(&env), [""; 0]);
    assert_eq!(objects(&env).await, before);

    // While it is down, new objects work, and its own stay.
    drop(apinetlet);
    let apinets = env.apinet::<apinet::NetworkInterface>();
    create(&apinets, "independent-2", interface_spec("10.0.7.2")).await;
    wait_for_nat(&env, "independent-2").await;
    let id = env.apinet::<apinet::Network>().get(&uid).await.unwrap().spec.id;
    assert_eq!(objects(&env).await, before);

    let apinetlet = env.start(&flags).await;
    settled(&apinetlet).await;
    assert_eq!(writes(&env), [""; 0]);
    assert_eq!(objects(&env).await, before);
    assert_eq!(env.apinet::<apinet::Network>().get(&uid).await.unwrap().spec.id, id);
    wait_for_nat(&env, "independent-2").await;
}

#[tokio::test]
async fn a_network_that_another_program_has_deleted_gets_its_id_back() {
    let (env, _apinetlet) = TestEnv::started().await;
    let uid = env.network("net").await.uid().unwrap();
    let (sources, networks) = (env.source::<source::Network>(), env.apinet::<apinet::Network>());
    wait(&sources, "net", "Available", |one| one.status.state == "Available").await;
    let before = networks.get(&uid).await.unwrap();
    delete(&networks, &uid).await;
    let is_new = |one: &apinet::Network| one.uid() != before.uid() && !one.spec.id.is_empty();
    let after = wait(&networks, &uid, "a new apinet Network", is_new).await;
    assert_eq!(after.spec.id, before.spec.id);
}

#[tokio::test]
async fn an_ip_that_another_program_has_deleted_gets_its_address_back() {
    let (env, _apinetlet) = TestEnv::started().await;
    let (virtual_ips, ips) = (env.source::<source::VirtualIp>(), env.apinet::<apinet::Ip>());
    for name in ["free", "kept"] {
        create(&virtual_ips, name, json!({ "type": "Public", "ipFamily": "IPv4" })).await;
        wait(&virtual_ips, name, "an address", |one| one.status.ip.is_some()).await;
    }
    // An address that is free again, and comes before the other one.
    delete(&virtual_ips, "free").await;
    wait_gone(&virtual_ips, "free").await;
    let uid = virtual_ips.get("kept").await.unwrap().uid().unwrap();
    let before = ips.get(&uid).await.unwrap();
    delete(&ips, &uid).await;
    let is_new = |one: &apinet::Ip| one.uid() != before.uid() && one.spec.ip.is_some();
    let after = wait(&ips, &uid, "a new apinet IP", is_new).await;
    assert_eq!(after.spec.ip, before.spec.ip);
    // Without its label, it is applied by the usual field manager, without the address.
    let label = "apinetlet.ironcore.dev/source-cluster";
    patch(&ips, &uid, json!({ "metadata": { "labels": { label: null } } })).await;
    wait(&ips, &uid, "its label", |one| one.labels().contains_key(label)).await;
    assert_eq!(ips.get(&uid).await.unwrap().spec.ip, before.spec.ip);
    delete(&virtual_ips, "kept").await;
    wait_gone(&virtual_ips, "kept").await;
    assert!(ips.get_opt(&uid).await.unwrap().is_none());
}
