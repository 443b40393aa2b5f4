//! Networks, VirtualIPs, NATGateways and LoadBalancers.

use std::time::Duration;

use apinetlet::api::{apinet, source};
use apinetlet::names::Kind;
use apinetlet::origin::Origin;
use apinetlet::provider_id::{InterfaceId, NetworkId};
use e2e::program::Program;
use kube::ResourceExt as _;
use serde_json::json;

use super::environment::{
    TestEnv, create, create_with, delete, labels, of_each_flavor, patch, stable, wait, wait_gone,
};

of_each_flavor!(
    a_network_gets_its_id_and_is_deleted_after_its_counterpart,
    a_virtual_ip_has_the_address_of_its_ip,
    a_nat_gateway_waits_for_its_network_and_reports_its_addresses,
    a_public_load_balancer_has_addresses_of_both_families_and_the_routing_of_its_targets,
    an_internal_load_balancer_has_its_own_addresses_and_those_of_its_prefixes,
    a_restart_in_sync_writes_nothing,
);

async fn a_network_gets_its_id_and_is_deleted_after_its_counterpart(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    let uid = env.network("net").await.uid().unwrap();
    let networks = env.source::<source::Network>();
    let network = wait(&networks, "net", "Available", |one| one.status.state == "Available").await;
    let counterpart = env.apinet::<apinet::Network>().get(&uid).await.unwrap();
    let id = NetworkId::parse(env.flavor, &network.spec.provider_id).unwrap();
    let expected = NetworkId {
        namespace: env.apinet.clone(),
        name: uid.clone(),
        id: counterpart.spec.id.clone(),
        uid: counterpart.uid().unwrap(),
    };
    assert_eq!(id, expected);
    assert!(!id.id.is_empty());
    let origin = Origin { uid: uid.clone(), namespace: env.source.clone(), name: "net".to_owned() };
    assert_eq!(env.origin(Kind::Network, &counterpart), Some(origin));
    delete(&networks, "net").await;
    wait_gone(&networks, "net").await;
    assert!(env.apinet::<apinet::Network>().get_opt(&uid).await.unwrap().is_none(), "the source goes last");
}

async fn a_virtual_ip_has_the_address_of_its_ip(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    let virtual_ips = env.source::<source::VirtualIp>();
    for (name, family) in [("v4", "IPv4"), ("v6", "IPv6")] {
        create(&virtual_ips, name, json!({ "type": "Public", "ipFamily": family })).await;
        let virtual_ip = wait(&virtual_ips, name, "an address", |one| one.status.ip.is_some()).await;
        let ip = env.apinet::<apinet::Ip>().get(&virtual_ip.uid().unwrap()).await.unwrap();
        assert_eq!(ip.spec.ip, virtual_ip.status.ip);
        delete(&virtual_ips, name).await;
        wait_gone(&virtual_ips, name).await;
        assert!(env.apinet::<apinet::Ip>().get_opt(&virtual_ip.uid().unwrap()).await.unwrap().is_none());
    }
}

async fn a_nat_gateway_waits_for_its_network_and_reports_its_addresses(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    let gateways = env.source::<source::NatGateway>();
    let spec = json!({ "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "late" } });
    let gateway = create(&gateways, "nat", spec).await;
    let uid = gateway.uid().unwrap();
    e2e::wait::until("an Event", async || {
        let reasons = env.event_reasons("nat").await;
        Ok(reasons.contains(&"NetworkNotFound".to_owned()).then_some(()))
    })
    .await
    .unwrap();
    assert!(env.apinet::<apinet::NatGateway>().get_opt(&uid).await.unwrap().is_none());
    env.network("late").await;
    wait(&gateways, "nat", "an address", |one| one.status.ips.len() == 1).await;
    let autoscaler = env.apinet::<apinet::NatGatewayAutoscaler>().get(&uid).await.unwrap();
    assert_eq!(autoscaler.owner_references()[0].kind, "NATGateway");
    delete(&gateways, "nat").await;
    wait_gone(&gateways, "nat").await;
    wait_gone(&env.apinet::<apinet::NatGatewayAutoscaler>(), &uid).await;
}

async fn a_public_load_balancer_has_addresses_of_both_families_and_the_routing_of_its_targets(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    env.network("net").await;
    let balancers = env.source::<source::LoadBalancer>();
    let spec = json!({
        "type": "Public", "ipFamilies": ["IPv4", "IPv6"], "networkRef": { "name": "net" },
        "ports": [{ "protocol": "TCP", "port": 80, "endPort": 90 }],
    });
    let uid = create(&balancers, "web", spec).await.uid().unwrap();
    wait(&balancers, "web", "two addresses", |one| one.status.ips.len() == 2).await;
    let counterpart = env.apinet::<apinet::LoadBalancer>().get(&uid).await.unwrap();
    let selector = counterpart.spec.selector.clone().unwrap().match_labels;
    assert!(selector.keys().all(|key| key.starts_with(env.flavor.names().origin)), "{selector:?}");

    let [namespace, name, node, target] = ["a", "nic-1", "node-1", "i1"].map(str::to_owned);
    let id = InterfaceId { namespace, name, node, uid: target }.display(env.flavor).to_string();
    let destination =
        json!({ "ip": "192.168.0.1", "targetRef": { "uid": "u", "name": "nic", "providerID": id } });
    let network = env.source::<source::Network>().get("net").await.unwrap();
    let routing = json!({
        "networkRef": { "name": "net", "uid": network.uid().unwrap() }, "destinations": [destination, { "ip": "192.168.0.2" }],
    });
    create_with(&env.source::<source::LoadBalancerRouting>(), "web", json!({}), routing).await;
    let routings = env.apinet::<apinet::LoadBalancerRouting>();
    let routing = wait(&routings, &uid, "two targets", |one| one.destinations.len() == 2).await;
    let target = routing.destinations[0].target_ref.clone().unwrap();
    assert_eq!(
        (target.uid.as_str(), target.name.as_str(), target.node_ref.name.as_str()),
        ("i1", "nic-1", "node-1")
    );
    assert_eq!(routing.owner_references()[0].uid, counterpart.uid().unwrap());
    delete(&balancers, "web").await;
    wait_gone(&balancers, "web").await;
    wait_gone(&routings, &uid).await;
}

/// onmetal-api-net has no policies that select by them.
#[tokio::test]
async fn labels_of_a_load_balancer_follow_the_source_object() {
    let (env, _apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let balancers = env.source::<source::LoadBalancer>();
    let spec = json!({ "type": "Public", "ipFamilies": ["IPv4"], "networkRef": { "name": "net" } });
    let labelled = json!({ "labels": { "app": "web" } });
    let uid = create_with(&balancers, "web", labelled, json!({ "spec": spec })).await.uid().unwrap();
    let counterparts = env.apinet::<apinet::LoadBalancer>();
    let is_labelled = |one: &apinet::LoadBalancer| labels(one).get("app").is_some_and(|app| app == "web");
    wait(&counterparts, &uid, "its label", is_labelled).await;
    // A label that the source object loses, and one of another program.
    patch(&counterparts, &uid, json!({ "metadata": { "labels": { "other": "x" } } })).await;
    patch(&balancers, "web", json!({ "metadata": { "labels": { "app": null, "tier": "edge" } } })).await;
    let is_relabelled = |one: &apinet::LoadBalancer| {
        let labels = labels(one);
        !labels.contains_key("app") && labels.get("tier").is_some_and(|tier| tier == "edge")
    };
    let relabelled = wait(&counterparts, &uid, "other labels", is_relabelled).await;
    assert_eq!(labels(&relabelled)["other"], "x");
}

async fn an_internal_load_balancer_has_its_own_addresses_and_those_of_its_prefixes(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    env.network("net").await;
    let balancers = env.source::<source::LoadBalancer>();
    let spec = json!({
        "type": "Internal", "ipFamilies": ["IPv4"], "networkRef": { "name": "net" }, "ips": [{ "value": "10.1.0.1" }],
    });
    create(&balancers, "internal", spec).await;
    let internal = wait(&balancers, "internal", "its address", |one| !one.status.ips.is_empty()).await;
    assert_eq!(internal.status.ips, ["10.1.0.1"]);
}

/// A restart with nothing to do writes nothing.
async fn a_restart_in_sync_writes_nothing(env: TestEnv) {
    let apinetlet = env.start(&[]).await;
    for number in 0..3 {
        env.network(&format!("net-{number}")).await;
    }
    let spec = json!({ "type": "Public", "ipFamily": "IPv4" });
    create(&env.source::<source::VirtualIp>(), "vip", spec).await;
    let spec = json!({ "type": "Public", "ipFamilies": ["IPv4"], "networkRef": { "name": "net-0" } });
    create(&env.source::<source::LoadBalancer>(), "web", spec).await;
    let spec = json!({ "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "net-1" } });
    create(&env.source::<source::NatGateway>(), "nat", spec).await;
    wait(&env.source::<source::LoadBalancer>(), "web", "an address", |one| one.status.ips.len() == 1).await;
    wait(&env.source::<source::NatGateway>(), "nat", "an address", |one| one.status.ips.len() == 1).await;
    wait(&env.source::<source::VirtualIp>(), "vip", "an address", |one| one.status.ip.is_some()).await;
    for number in 0..3 {
        let name = format!("net-{number}");
        wait(&env.source::<source::Network>(), &name, "Available", |one| one.status.state == "Available")
            .await;
    }
    settled(&apinetlet).await;
    drop(apinetlet);
    env.clear_requests();
    let apinetlet = env.start(&[]).await;
    settled(&apinetlet).await;
    assert_eq!(env.writes(), [""; 0]);
}

/// Every key was reconciled, and none is queued or being reconciled.
pub async fn settled(apinetlet: &Program) {
    let reconciled = async || {
        let metrics = apinetlet.metrics().await?;
        let total = metrics.sum("controller_runtime_reconcile_total", &[]).unwrap_or_default();
        let depth = metrics.sum("workqueue_depth", &[]).unwrap_or_default();
        // It grows while a key is being reconciled, so that a write of seconds is not taken for the end.
        let unfinished = metrics.sum("workqueue_unfinished_work_seconds", &[]).unwrap_or_default();
        Ok::<_, anyhow::Error>((total, depth, unfinished))
    };
    e2e::wait::until("nothing is queued", async || {
        let (total, depth, unfinished) = reconciled().await?;
        Ok((depth == 0.0 && unfinished == 0.0 && total > 0.0).then_some(()))
    })
    .await
    .unwrap();
    // Events may be on their way, on a busy machine for longer than a second.
    stable("no reconciliation", Duration::from_secs(3), reconciled).await;
}
