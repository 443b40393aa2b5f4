//! The interfaces of a NATGateway: all of its network that have no public address of its family, and that no other gateway has.

use apinetlet::api::{IpFamily, apinet, source};
use e2e::wait::until;
use kube::ResourceExt as _;
use serde_json::json;

use super::environment::{TestEnv, create, delete, labels, patch, wait, wait_gone};

async fn create_gateway(env: &TestEnv, name: &str, family: &str) -> String {
    let gateways = env.source::<source::NatGateway>();
    let spec = json!({ "type": "Public", "ipFamily": family, "networkRef": { "name": "net" } });
    let uid = create(&gateways, name, spec).await.uid().unwrap();
    wait(&gateways, name, "an address", |one| one.status.ips.len() == 1).await;
    uid
}

/// The gateways that have claimed the interface: a family, and the UID of the source object.
fn claims(interface: &apinet::NetworkInterface) -> Vec<(IpFamily, String)> {
    let claims = interface.spec.nat_gateways.iter();
    let mut claims: Vec<_> = claims.map(|one| (one.ip_family, one.claim_ref.name.clone())).collect();
    claims.sort();
    claims
}

#[tokio::test]
async fn a_second_gateway_of_a_network_takes_no_interface_of_the_first() {
    let (env, _apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let first = create_gateway(&env, "first", "IPv4").await;
    env.interface("nic", "10.0.5.1", json!({})).await;
    let name = env.attach("nic", "node-1").await.name_any();
    let apinets = env.apinet::<apinet::NetworkInterface>();
    let of_first = [(IpFamily::IPv4, first)];
    wait(&apinets, &name, "NAT of the first gateway", |one| claims(one) == of_first).await;

    let second = create_gateway(&env, "second", "IPv4").await;
    // The controller of ironcore-net writes the table after it has claimed what is free.
    let is_reconciled = async || {
        let tables = env.list(env.flavor.names().apinet, &env.apinet, "nattables").await;
        Ok(tables.iter().any(|table| table["metadata"]["name"] == second.as_str()).then_some(()))
    };
    until("the NAT table of the second gateway", is_reconciled).await.unwrap();
    assert_eq!(claims(&apinets.get(&name).await.unwrap()), of_first);

    // A write of apinetlet to the interface keeps the claim.
    let sources = env.source::<source::NetworkInterface>();
    patch(&sources, "nic", json!({ "metadata": { "labels": { "app": "web" } } })).await;
    let is_labelled = |one: &apinet::NetworkInterface| labels(one).contains_key("app");
    let labelled = wait(&apinets, &name, "the label", is_labelled).await;
    assert_eq!(claims(&labelled), of_first);

    let gateways = env.source::<source::NatGateway>();
    delete(&gateways, "first").await;
    wait_gone(&gateways, "first").await;
    let of_second = [(IpFamily::IPv4, second)];
    wait(&apinets, &name, "NAT of the second gateway", |one| claims(one) == of_second).await;
}

#[tokio::test]
async fn a_virtual_ip_ends_the_nat_of_its_family_only_until_it_is_detached() {
    let (env, _apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let v4 = (IpFamily::IPv4, create_gateway(&env, "v4", "IPv4").await);
    let v6 = (IpFamily::IPv6, create_gateway(&env, "v6", "IPv6").await);
    let sources = env.source::<source::NetworkInterface>();
    let spec = json!({
        "networkRef": { "name": "net" }, "ipFamilies": ["IPv4", "IPv6"],
        "ips": [{ "value": "10.0.5.2" }, { "value": "fd00::5:2" }],
    });
    create(&sources, "nic", spec).await;
    let name = env.attach("nic", "node-1").await.name_any();
    // A neighbour of the same network keeps its NAT all the time.
    env.interface("neighbour", "10.0.5.3", json!({})).await;
    let neighbour = env.attach("neighbour", "node-1").await.name_any();
    let apinets = env.apinet::<apinet::NetworkInterface>();
    let both = [v4.clone(), v6.clone()];
    wait(&apinets, &name, "NAT of both families", |one| claims(one) == both).await;
    wait(&apinets, &neighbour, "NAT of the neighbour", |one| claims(one) == both[..1]).await;

    let virtual_ips = env.source::<source::VirtualIp>();
    create(&virtual_ips, "vip", json!({ "type": "Public", "ipFamily": "IPv4" })).await;
    wait(&virtual_ips, "vip", "an address", |one| one.status.ip.is_some()).await;
    for _ in 0..2 {
        let reference = json!({ "spec": { "virtualIP": { "virtualIPRef": { "name": "vip" } } } });
        patch(&sources, "nic", reference).await;
        let is_public =
            |one: &apinet::NetworkInterface| one.spec.public_ips.len() == 1 && claims(one) == both[1..];
        wait(&apinets, &name, "a public address, and NAT of the other family", is_public).await;
        assert_eq!(claims(&apinets.get(&neighbour).await.unwrap()), both[..1]);

        patch(&sources, "nic", json!({ "spec": { "virtualIP": null } })).await;
        let is_back = |one: &apinet::NetworkInterface| one.spec.public_ips.is_empty() && claims(one) == both;
        wait(&apinets, &name, "NAT of both families again", is_back).await;
        wait(&virtual_ips, "vip", "free", |one| one.spec.target_ref.is_none()).await;
    }
}
