//! An address pool without a free address.

use std::sync::Arc;
use std::time::Duration;

use apinetlet::api::source;
use e2e::ironcore::Ironcore;
use e2e::wait::until;
use serde_json::json;

use super::environment::{TestEnv, create, delete, wait, wait_gone};
use super::permissions::Permissions;

/// ironcore-net allocates the first and the last address of a prefix too, so there are four.
const PREFIXES: [&str; 2] = ["192.0.2.0/30", "fdef:273d:a18c:ca26::/64"];

/// Time in which apinetlet tries again several times.
const RETRY: Duration = Duration::from_secs(60);

/// A part of the API server's error.
const FULL: &str = "all IP addresses are already allocated";

#[tokio::test]
async fn a_full_pool_is_reported_and_the_object_is_mapped_when_an_address_is_free() {
    let ironcore = Arc::new(Ironcore::with_public_prefixes(&PREFIXES).await.unwrap());
    let env = TestEnv::on(ironcore, Permissions::Upstream).await;
    let _apinetlet = env.start(&[]).await;
    let virtual_ips = env.source::<source::VirtualIp>();
    let create_ip = async |name: &str, family: &str| {
        create(&virtual_ips, name, json!({ "type": "Public", "ipFamily": family })).await;
    };
    // ironcore-net sometimes frees an address that is in use, so it is not always the fifth that gets none.
    let mut number = 0;
    let waiting = loop {
        let name = format!("vip-{number}");
        create_ip(&name, "IPv4").await;
        let is_refused = async || {
            let has_address = virtual_ips.get(&name).await?.status.ip.is_some();
            let is_refused = env.has_warning(&name, FULL).await;
            Ok((has_address || is_refused).then_some(is_refused))
        };
        if until("an address, or a Warning Event", is_refused).await.unwrap() {
            break name;
        }
        number += 1;
    };
    assert!(number >= 4, "{number} addresses");
    let waiting = waiting.as_str();

    // Everything else goes on: other kinds, and the other family.
    env.network("net").await;
    wait(&env.source::<source::Network>(), "net", "Available", |one| one.status.state == "Available").await;
    create_ip("v6", "IPv6").await;
    wait(&virtual_ips, "v6", "an address", |one| one.status.ip.is_some()).await;
    let balancers = env.source::<source::LoadBalancer>();
    let spec = json!({ "type": "Public", "ipFamilies": ["IPv4", "IPv6"], "networkRef": { "name": "net" } });
    create(&balancers, "web", spec).await;
    env.wait_warning("web", FULL).await;
    // The autoscaler of ironcore-net is refused, not apinetlet.
    let gateways = env.source::<source::NatGateway>();
    let spec = json!({ "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "net" } });
    create(&gateways, "nat", spec).await;
    env.wait_warning("nat", "it has 0 public addresses and needs more").await;
    delete(&gateways, "nat").await;
    wait_gone(&gateways, "nat").await;
    assert_eq!(virtual_ips.get(waiting).await.unwrap().status.ip, None);
    assert_eq!(balancers.get("web").await.unwrap().status.ips, [""; 0]);

    // ironcore-net sometimes does not free the address of a deleted IP, if it allocates at the same moment. Two of four are needed.
    for vip in 0..number {
        let name = format!("vip-{vip}");
        delete(&virtual_ips, &name).await;
        wait_gone(&virtual_ips, &name).await;
        let mapped = async {
            wait(&virtual_ips, waiting, "an address", |one| one.status.ip.is_some()).await;
            wait(&balancers, "web", "two addresses", |one| one.status.ips.len() == 2).await;
        };
        if vip > 0 && tokio::time::timeout(RETRY, mapped).await.is_ok() {
            return;
        }
    }
    wait(&virtual_ips, waiting, "an address", |one| one.status.ip.is_some()).await;
    wait(&balancers, "web", "two addresses", |one| one.status.ips.len() == 2).await;
}
