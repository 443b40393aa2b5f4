//! The public addresses of a NATGateway: the autoscaler of ironcore-net adds and removes them, apinetlet sets its limits and reports them.

use std::collections::BTreeSet;

use apinetlet::api::{apinet, source};
use e2e::wait::until;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::environment::{TestEnv, create, delete, wait, wait_gone};

/// Half of the ports of an address, of which the first 1024 are reserved: there is one interface for each address.
const PORTS: i32 = 32768;

async fn create_gateway(env: &TestEnv) -> source::NatGateway {
    let spec = json!({
        "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "net" }, "portsPerNetworkInterface": PORTS,
    });
    create(&env.source(), "nat", spec).await
}

async fn attach(env: &TestEnv, number: usize) {
    let name = format!("nic-{number}");
    env.interface(&name, &format!("10.0.4.{number}"), json!({})).await;
    env.attach(&name, "node-1").await;
}

/// The apinet interfaces that have a NAT gateway, and those that have none.
async fn interfaces(env: &TestEnv) -> (Vec<String>, Vec<String>) {
    let list = env.apinet::<apinet::NetworkInterface>().list(&ListParams::default()).await.unwrap();
    let (with, without): (Vec<_>, Vec<_>) =
        list.items.into_iter().partition(|one| !one.spec.nat_gateways.is_empty());
    let names = |all: Vec<apinet::NetworkInterface>| all.iter().map(|one| one.name_any()).collect();
    (names(with), names(without))
}

#[tokio::test]
async fn a_nat_gateway_has_as_many_addresses_as_its_interfaces_need() {
    let (env, _apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let gateways = env.source::<source::NatGateway>();
    let uid = create_gateway(&env).await.uid().unwrap();
    wait(&gateways, "nat", "the first address", |one| one.status.ips.len() == 1).await;
    for number in 1..=3 {
        attach(&env, number).await;
        let what = format!("{number} addresses");
        wait(&gateways, "nat", &what, |one| one.status.ips.len() == number).await;
    }
    let all_have_nat = async || Ok((interfaces(&env).await.0.len() == 3).then_some(()));
    until("NAT of all interfaces", all_have_nat).await.unwrap();
    let reported = gateways.get("nat").await.unwrap().status.ips;
    let allocated = env.apinet::<apinet::NatGateway>().get(&uid).await.unwrap().spec.ips;
    let allocated: Vec<_> = allocated.into_iter().filter_map(|one| one.ip).collect();
    assert_eq!(reported, allocated);
    assert_eq!(reported.iter().collect::<BTreeSet<_>>().len(), 3, "{reported:?}");

    // They go with the interfaces.
    let sources = env.source::<source::NetworkInterface>();
    for (number, left) in [(1, 2), (2, 1)] {
        let name = format!("nic-{number}");
        env.machine_pool.detach(&name).await.unwrap();
        delete(&sources, &name).await;
        wait_gone(&sources, &name).await;
        let what = format!("{left} addresses again");
        wait(&gateways, "nat", &what, |one| one.status.ips.len() == left).await;
    }
    let has_nat = async || Ok((interfaces(&env).await.0 == ["machine-nic-3"]).then_some(()));
    until("NAT of the last interface", has_nat).await.unwrap();
}

#[tokio::test]
async fn an_interface_beyond_the_limit_of_addresses_waits_until_another_one_goes() {
    let env = TestEnv::new().await;
    let _apinetlet = env.start(&["--nat-gateway-max-public-ips=2"]).await;
    env.network("net").await;
    let uid = create_gateway(&env).await.uid().unwrap();
    for number in 1..=3 {
        attach(&env, number).await;
    }
    // The controller of ironcore-net counts what it would need, and what it has.
    let is_full = async || {
        let gateways = env.list(env.flavor.names().apinet, &env.apinet, "natgateways").await;
        let gateway = gateways.iter().find(|one| one["metadata"]["name"] == uid.as_str());
        let status = |field: &str| gateway.map(|one| one["status"][field].clone()).unwrap_or_default();
        let counted = (status("requestedNATIPs"), status("usedNATIPs"));
        Ok((counted == (Value::from(3), Value::from(2))).then_some(()))
    };
    until("three interfaces that need an address, and two that have one", is_full).await.unwrap();
    let gateways = env.source::<source::NatGateway>();
    wait(&gateways, "nat", "two addresses", |one| one.status.ips.len() == 2).await;
    let (with, without) = interfaces(&env).await;
    assert_eq!((with.len(), without.len()), (2, 1), "{with:?} {without:?}");

    let first = with[0].strip_prefix("machine-").unwrap();
    env.machine_pool.detach(first).await.unwrap();
    let is_served = async || {
        let (with, left) = interfaces(&env).await;
        Ok((left.is_empty() && with.contains(&without[0])).then_some(()))
    };
    until("NAT of the interface that has waited", is_served).await.unwrap();
    assert_eq!(gateways.get("nat").await.unwrap().status.ips.len(), 2);
}
