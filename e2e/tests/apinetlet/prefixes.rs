//! Objects that wait for a Prefix, which the controllers of ironcore allocate.

use apinetlet::api::{apinet, source};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::environment::{TestEnv, create, wait};
use super::mapping::settled;

/// A Prefix without a parent is allocated at once, and then its children are.
async fn create_root(env: &TestEnv) {
    create(&env.source::<source::Prefix>(), "root", json!({ "ipFamily": "IPv4", "prefix": "10.9.0.0/24" }))
        .await;
}

/// The Prefix exists, and its parent does not.
async fn wait_pending(env: &TestEnv, name: &str) {
    wait(&env.source::<source::Prefix>(), name, "a Prefix", |one| one.allocated().is_none()).await;
}

fn is_in_root(address: &str) -> bool {
    address.starts_with("10.9.0.")
}

#[tokio::test]
async fn an_internal_load_balancer_gets_the_address_of_a_late_prefix() {
    let (env, _apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let balancers = env.source::<source::LoadBalancer>();
    let template = json!({ "spec": { "ipFamily": "IPv4", "parentRef": { "name": "root" } } });
    let spec = json!({
        "type": "Internal", "ipFamilies": ["IPv4"], "networkRef": { "name": "net" },
        "ips": [{ "ephemeral": { "prefixTemplate": template } }],
    });
    let uid = create(&balancers, "web", spec).await.uid().unwrap();
    wait_pending(&env, "web-0").await;
    let counterparts = env.apinet::<apinet::LoadBalancer>();
    wait(&counterparts, &uid, "no address", |one| one.spec.ips.is_empty()).await;
    create_root(&env).await;
    let balancer = wait(&balancers, "web", "an address", |one| one.status.ips.len() == 1).await;
    assert!(is_in_root(&balancer.status.ips[0]), "{balancer:?}");
    let ips = counterparts.get(&uid).await.unwrap().spec.ips;
    assert_eq!(ips[0].ip.as_ref(), Some(&balancer.status.ips[0]));
}

#[tokio::test]
async fn an_interface_gets_a_late_prefix() {
    let (env, _apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let template =
        json!({ "spec": { "ipFamily": "IPv4", "prefixLength": 28, "parentRef": { "name": "root" } } });
    let prefixes = json!([{ "value": "10.8.0.0/28" }, { "ephemeral": { "prefixTemplate": template } }]);
    env.interface("nic", "10.0.6.1", json!({ "prefixes": prefixes })).await;
    let interface = env.attach("nic", "node-1").await;
    env.set_state(&interface, "Ready").await;
    wait_pending(&env, "nic-pf-1").await;
    // The interface is usable without it.
    let sources = env.source::<source::NetworkInterface>();
    let is_usable = |one: &source::NetworkInterface| {
        one.status.state == "Available" && one.status.prefixes == ["10.8.0.0/28"]
    };
    wait(&sources, "nic", "Available with one prefix", is_usable).await;
    create_root(&env).await;
    let source = wait(&sources, "nic", "two prefixes", |one| one.status.prefixes.len() == 2).await;
    assert!(is_in_root(&source.status.prefixes[1]), "{source:?}");
    let counterpart = env.apinet::<apinet::NetworkInterface>().get(&interface.name_any()).await.unwrap();
    assert_eq!(counterpart.spec.prefixes, source.status.prefixes);
}

/// Without its prefixes, a peering would open the whole network.
#[tokio::test]
async fn a_peering_waits_for_the_prefix_that_it_references() {
    let (env, apinetlet) = TestEnv::started().await;
    let networks = env.source::<source::Network>();
    let peering = |to: &str, prefixes: Value| {
        let peering =
            json!({ "name": format!("to-{to}"), "networkRef": { "name": to }, "prefixes": prefixes });
        json!({ "peerings": [peering] })
    };
    let part = json!([{ "name": "part", "prefixRef": { "name": "root" } }]);
    let a = create(&networks, "a", peering("b", part)).await.uid().unwrap();
    let b = create(&networks, "b", peering("a", json!([]))).await.uid().unwrap();
    let counterparts = env.apinet::<apinet::Network>();
    wait(&counterparts, &b, "the peering of the other side", |one| one.spec.peerings.len() == 1).await;
    let has_peer = |one: &source::Network| one.spec.incoming_peerings.len() == 1;
    wait(&networks, "a", "the agreement of both sides", has_peer).await;
    settled(&apinetlet).await;
    assert_eq!(counterparts.get(&a).await.unwrap().spec.peerings, []);
    create_root(&env).await;
    let peered = wait(&counterparts, &a, "the peering", |one| one.spec.peerings.len() == 1).await;
    let prefixes = &peered.spec.peerings[0].prefixes;
    assert_eq!(prefixes[0].prefix.as_deref(), Some("10.9.0.0/24"), "{prefixes:?}");
    assert_eq!(peered.spec.peerings[0].id, counterparts.get(&b).await.unwrap().spec.id);
}
