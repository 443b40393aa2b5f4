//! With `--network-interface-status=false` another program writes the status of source NetworkInterfaces: this test.

use apinetlet::api::{apinet, source};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::environment::{TestEnv, create, delete, labels, patch, wait, wait_gone};
use super::mapping::settled;

/// Writes the status as the other program.
async fn report(env: &TestEnv, status: &Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    let sources = env.source::<source::NetworkInterface>();
    sources.patch_status("nic", &PatchParams::default(), &patch).await.unwrap();
}

/// The writes of apinetlet to the source NetworkInterface, and those of them that contain a status. This API server accepts one in a
/// write of the object too.
fn writes(env: &TestEnv) -> (usize, Vec<String>) {
    let mut writes = env.source_proxy.writes();
    writes.retain(|write| write.path.contains("/networkinterfaces/nic"));
    let has_status = |body: &Value| body.get("status").is_some();
    let of_status = writes
        .iter()
        .filter(|write| write.path.ends_with("/status") || write.json().as_ref().is_none_or(has_status));
    (writes.len(), of_status.map(|write| format!("{} {}", write.method, write.path)).collect())
}

#[tokio::test]
async fn the_status_of_an_interface_is_left_to_another_program() {
    let env = TestEnv::new().await;
    let apinetlet = env.start(&["--network-interface-status=false"]).await;
    env.network("net").await;
    let virtual_ips = env.source::<source::VirtualIp>();
    create(&virtual_ips, "vip", json!({ "type": "Public", "ipFamily": "IPv4" })).await;
    let address = wait(&virtual_ips, "vip", "an address", |one| one.status.ip.is_some()).await.status.ip;
    let balancer = json!({
        "type": "Public", "ipFamilies": ["IPv4"], "networkRef": { "name": "net" },
        "networkInterfaceSelector": { "matchLabels": { "app": "web" } },
    });
    let balancers = env.source::<source::LoadBalancer>();
    let balancer = create(&balancers, "web", balancer).await.uid().unwrap();
    env.interface("nic", "10.0.8.1", json!({})).await;
    let (sources, apinets) =
        (env.source::<source::NetworkInterface>(), env.apinet::<apinet::NetworkInterface>());
    patch(&sources, "nic", json!({ "metadata": { "labels": { "app": "web" } } })).await;
    let interface = env.attach("nic", "node-1").await;
    let name = interface.name_any();
    wait(&apinets, &name, "the label", |one| labels(one).contains_key("app")).await;

    // The state of the apinet object is not reported; that of the other program is, and the load balancer gets its target by it.
    env.set_state(&interface, "Error").await;
    let mut status = json!({ "state": "Available", "ips": ["10.0.8.1"] });
    report(&env, &status).await;
    let routings = env.apinet::<apinet::LoadBalancerRouting>();
    let routing = wait(&routings, &balancer, "the target", |one| one.destinations.len() == 1).await;
    assert_eq!(routing.destinations[0].ip, "10.0.8.1");

    patch(&sources, "nic", json!({ "spec": { "virtualIP": { "virtualIPRef": { "name": "vip" } } } })).await;
    wait(&apinets, &name, "a public address", |one| one.spec.public_ips.len() == 1).await;
    env.set_state(&interface, "Ready").await;
    status["virtualIP"] = json!(address);
    report(&env, &status).await;
    patch(&sources, "nic", json!({ "metadata": { "labels": { "tier": "edge" } } })).await;
    wait(&apinets, &name, "another label", |one| labels(one).contains_key("tier")).await;
    patch(&sources, "nic", json!({ "spec": { "virtualIP": null } })).await;
    wait(&virtual_ips, "vip", "free", |one| one.spec.target_ref.is_none()).await;
    wait(&apinets, &name, "no public address", |one| one.spec.public_ips.is_empty()).await;
    settled(&apinetlet).await;
    let reported = sources.get("nic").await.unwrap().status;
    assert_eq!(
        (reported.state.as_str(), &reported.ips[..], &reported.virtual_ip),
        ("Available", &["10.0.8.1".to_owned()][..], &address),
        "the other program has not removed it"
    );

    // Nor at a restart, or at the end.
    drop(apinetlet);
    let _apinetlet = env.start(&["--network-interface-status=false"]).await;
    delete(&sources, "nic").await;
    wait_gone(&sources, "nic").await;
    let (all, of_status) = writes(&env);
    assert_eq!(of_status, [""; 0], "{all} writes");
    assert!(all >= 2, "the finalizer is added and removed");
}
