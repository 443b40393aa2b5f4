//! One of the two clusters is away for a while.

use apinetlet::api::{apinet, source};
use e2e::fault_proxy::{Fault, FaultProxy, Matcher, RuleId};
use e2e::wait::TIMEOUT;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use super::environment::{TestEnv, create, delete, patch, wait, wait_gone};

/// Requests that are refused while the cluster is away, before the test goes on. Watches and writes are repeated all the time.
const REFUSED: u64 = 30;

/// From now on the cluster is away.
async fn take_away(proxy: &FaultProxy) -> RuleId {
    let away = proxy.rule(Matcher::any(), Fault::Refuse);
    proxy.sever().await;
    away
}

/// Changes of the source cluster while the apinet cluster is away are made up for. Nothing that was mapped changes its ID or address.
#[tokio::test]
async fn the_apinet_cluster_is_away_and_comes_back() {
    let (env, program) = TestEnv::started().await;
    let (networks, virtual_ips) = (env.source::<source::Network>(), env.source::<source::VirtualIp>());
    let address = json!({ "type": "Public", "ipFamily": "IPv4" });
    env.network("kept").await;
    env.network("deleted").await;
    create(&virtual_ips, "kept", address.clone()).await;
    let kept = wait(&networks, "kept", "Available", |one| one.status.state == "Available").await;
    wait(&networks, "deleted", "Available", |one| one.status.state == "Available").await;
    let ip = wait(&virtual_ips, "kept", "an address", |one| one.status.ip.is_some()).await.status.ip;

    let away = take_away(&env.apinet_proxy).await;
    env.network("created").await;
    create(&virtual_ips, "created", address).await;
    delete(&networks, "deleted").await;
    env.apinet_proxy.wait_applied(away, REFUSED, TIMEOUT).await.unwrap();
    // ironcore removes its own finalizer. That of apinetlet stays.
    let waits = |one: &source::Network| one.finalizers().len() == 1;
    wait(&networks, "deleted", "only the finalizer of apinetlet", waits).await;
    env.apinet_proxy.remove(away);

    wait_gone(&networks, "deleted").await;
    wait(&networks, "created", "Available", |one| one.status.state == "Available").await;
    wait(&virtual_ips, "created", "an address", |one| one.status.ip.is_some()).await;
    assert_eq!(networks.get("kept").await.unwrap().spec.provider_id, kept.spec.provider_id);
    assert_eq!(virtual_ips.get("kept").await.unwrap().status.ip, ip);
    assert_eq!(program.exited().unwrap(), None);
}

/// While the source cluster is away nothing counts as deleted there.
#[tokio::test]
async fn the_source_cluster_is_away_and_comes_back() {
    let (env, program) = TestEnv::started().await;
    let (networks, apinets) = (env.source::<source::Network>(), env.apinet::<apinet::Network>());
    env.network("net").await;
    let network = wait(&networks, "net", "Available", |one| one.status.state == "Available").await;
    let uids = async || {
        let all = apinets.list(&ListParams::default()).await.unwrap();
        all.items.iter().map(|one| one.uid()).collect::<Vec<_>>()
    };
    let before = uids().await;
    let away = take_away(&env.source_proxy).await;
    // A change in the apinet cluster wakes the controllers, and the collection of garbage.
    let label = json!({ "metadata": { "labels": { "changed": "true" } } });
    patch(&apinets, &network.uid().unwrap(), label).await;
    env.source_proxy.wait_applied(away, REFUSED, TIMEOUT).await.unwrap();
    assert_eq!(uids().await, before);
    env.source_proxy.remove(away);
    delete(&networks, "net").await;
    wait_gone(&networks, "net").await;
    assert_eq!(uids().await, []);
    assert_eq!(program.exited().unwrap(), None);
}
