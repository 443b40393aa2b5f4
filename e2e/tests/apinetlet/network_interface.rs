//! NetworkInterfaces, with a stand-in for the MachinePool.

use apinetlet::api::{apinet, source};
use apinetlet::names::Kind;
use e2e::fault_proxy::{Fault, Matcher};
use kube::ResourceExt as _;
use serde_json::json;

use super::environment::{TestEnv, create, delete, labels, of_each_flavor, patch, wait, wait_gone};

of_each_flavor!(
    an_interface_is_claimed_and_its_state_reported,
    an_interface_that_is_observed_after_the_provider_id_is_claimed,
    a_virtual_ip_becomes_the_public_address_and_takes_the_interface_out_of_nat,
    a_deleted_interface_releases_its_virtual_ip,
    a_deleted_virtual_ip_goes_after_the_interface_has_lost_its_address,
    an_apinet_interface_belongs_to_one_source_interface_only,
);

async fn an_interface_is_claimed_and_its_state_reported(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    env.network("net").await;
    let sources = env.source::<source::NetworkInterface>();
    let prefixes = json!({ "prefixes": [{ "value": "10.2.0.0/24" }] });
    let uid = env.interface("nic", "10.0.0.5", prefixes).await.uid().unwrap();
    let counterpart = env.attach("nic", "node-1").await;
    let name = counterpart.name_any();
    let apinets = env.apinet::<apinet::NetworkInterface>();
    let origin = |one: &apinet::NetworkInterface| env.origin(Kind::NetworkInterface, one);
    let is_claimed =
        |one: &apinet::NetworkInterface| origin(one).is_some_and(|of| of.uid == uid && of.name == "nic");
    let claimed = wait(&apinets, &name, "a claim", is_claimed).await;
    assert_eq!(claimed.spec.prefixes, ["10.2.0.0/24"]);
    env.set_state(&counterpart, "Ready").await;
    let ready = wait(&sources, "nic", "Available", |one| one.status.state == "Available").await;
    assert_eq!(
        (&ready.status.ips[..], &ready.status.prefixes[..]),
        (&["10.0.0.5".to_owned()][..], &["10.2.0.0/24".to_owned()][..])
    );
    assert!(ready.status.last_state_transition_time.is_some());

    // The apinet object is the MachinePool's: it stays.
    delete(&sources, "nic").await;
    wait_gone(&sources, "nic").await;
    let released = apinets.get(&name).await.unwrap();
    assert_eq!(labels(&released), Default::default());
    assert_eq!(released.spec.prefixes, [""; 0]);
}

/// The two clusters have a watch each. The Go program does not claim such an interface until another event of the source object.
async fn an_interface_that_is_observed_after_the_provider_id_is_claimed(env: TestEnv) {
    let apinetlet = env.start(&[]).await;
    env.network("net").await;
    let uid = env.interface("nic", "10.0.0.4", json!({})).await.uid().unwrap();
    let held = env.apinet_proxy.rule(Matcher::watches().resource("networkinterfaces"), Fault::hold_events());
    let name = env.attach("nic", "node-1").await.name_any();
    super::mapping::settled(&apinetlet).await;
    let apinets = env.apinet::<apinet::NetworkInterface>();
    assert_eq!(labels(&apinets.get(&name).await.unwrap()), Default::default());
    env.apinet_proxy.remove(held);
    let is_claimed = |one: &apinet::NetworkInterface| {
        env.origin(Kind::NetworkInterface, one).is_some_and(|of| of.uid == uid)
    };
    wait(&apinets, &name, "a claim", is_claimed).await;
}

/// onmetal-api-net has no policies that select by them.
#[tokio::test]
async fn labels_of_an_interface_follow_the_source_object_until_it_is_released() {
    let (env, _apinetlet) = TestEnv::started().await;
    env.network("net").await;
    let sources = env.source::<source::NetworkInterface>();
    env.interface("nic", "10.0.0.5", json!({})).await;
    patch(&sources, "nic", json!({ "metadata": { "labels": { "app": "web" } } })).await;
    let name = env.attach("nic", "node-1").await.name_any();
    let apinets = env.apinet::<apinet::NetworkInterface>();
    let is_labelled = |one: &apinet::NetworkInterface| labels(one).get("app").is_some_and(|app| app == "web");
    wait(&apinets, &name, "its label", is_labelled).await;
    patch(&sources, "nic", json!({ "metadata": { "labels": { "app": null, "tier": "db" } } })).await;
    let follows = |one: &apinet::NetworkInterface| {
        let labels = labels(one);
        labels.get("tier").is_some_and(|tier| tier == "db") && !labels.contains_key("app")
    };
    wait(&apinets, &name, "the new labels", follows).await;
    delete(&sources, "nic").await;
    wait_gone(&sources, "nic").await;
    assert_eq!(labels(&apinets.get(&name).await.unwrap()), Default::default());
}

async fn a_virtual_ip_becomes_the_public_address_and_takes_the_interface_out_of_nat(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    env.network("net").await;
    let spec = json!({ "type": "Public", "ipFamily": "IPv4" });
    let virtual_ips = env.source::<source::VirtualIp>();
    create(&virtual_ips, "vip", spec).await;
    let gateway = json!({ "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "net" } });
    create(&env.source::<source::NatGateway>(), "nat", gateway).await;
    let sources = env.source::<source::NetworkInterface>();
    let uid = env.interface("nic", "10.0.0.6", json!({})).await.uid().unwrap();
    let counterpart = env.attach("nic", "node-1").await;
    let name = counterpart.name_any();
    let apinets = env.apinet::<apinet::NetworkInterface>();
    wait(&apinets, &name, "NAT", |one| one.spec.nat_gateways.len() == 1).await;

    let reference = json!({ "spec": { "virtualIP": { "virtualIPRef": { "name": "vip" } } } });
    patch(&sources, "nic", reference).await;
    let public = wait(&apinets, &name, "a public address", |one| one.spec.public_ips.len() == 1).await;
    let address = virtual_ips.get("vip").await.unwrap().status.ip;
    assert_eq!(public.spec.public_ips[0].ip, address);
    assert_eq!(public.spec.nat_gateways, []);
    let claimed = virtual_ips.get("vip").await.unwrap();
    assert_eq!(claimed.spec.target_ref.unwrap().uid, uid);
    env.set_state(&counterpart, "Ready").await;
    wait(&sources, "nic", "the public address", |one| one.status.virtual_ip == address).await;

    patch(&sources, "nic", json!({ "spec": { "virtualIP": null } })).await;
    let is_back =
        |one: &apinet::NetworkInterface| one.spec.public_ips.is_empty() && one.spec.nat_gateways.len() == 1;
    wait(&apinets, &name, "NAT again", is_back).await;
    wait(&virtual_ips, "vip", "free", |one| one.spec.target_ref.is_none()).await;
    env.set_state(&counterpart, "Ready").await;
    wait(&sources, "nic", "no public address", |one| one.status.virtual_ip.is_none()).await;
}

async fn a_deleted_interface_releases_its_virtual_ip(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    env.network("net").await;
    let virtual_ips = env.source::<source::VirtualIp>();
    create(&virtual_ips, "vip", json!({ "type": "Public", "ipFamily": "IPv4" })).await;
    let reference = json!({ "virtualIP": { "virtualIPRef": { "name": "vip" } } });
    env.interface("nic", "10.0.0.7", reference).await;
    let name = env.attach("nic", "node-1").await.name_any();
    let apinets = env.apinet::<apinet::NetworkInterface>();
    wait(&apinets, &name, "a public address", |one| one.spec.public_ips.len() == 1).await;
    let sources = env.source::<source::NetworkInterface>();
    delete(&sources, "nic").await;
    wait_gone(&sources, "nic").await;
    assert_eq!(apinets.get(&name).await.unwrap().spec.public_ips, []);
    assert_eq!(virtual_ips.get("vip").await.unwrap().spec.target_ref, None);
}

async fn a_deleted_virtual_ip_goes_after_the_interface_has_lost_its_address(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    env.network("net").await;
    let virtual_ips = env.source::<source::VirtualIp>();
    create(&virtual_ips, "vip", json!({ "type": "Public", "ipFamily": "IPv4" })).await;
    let reference = json!({ "virtualIP": { "virtualIPRef": { "name": "vip" } } });
    env.interface("nic", "10.0.0.9", reference).await;
    let name = env.attach("nic", "node-1").await.name_any();
    let apinets = env.apinet::<apinet::NetworkInterface>();
    wait(&apinets, &name, "a public address", |one| one.spec.public_ips.len() == 1).await;
    delete(&virtual_ips, "vip").await;
    wait_gone(&virtual_ips, "vip").await;
    assert_eq!(apinets.get(&name).await.unwrap().spec.public_ips, []);
}

async fn an_apinet_interface_belongs_to_one_source_interface_only(env: TestEnv) {
    let _apinetlet = env.start(&[]).await;
    env.network("net").await;
    let first = env.interface("first", "10.0.0.8", json!({})).await.uid().unwrap();
    let name = env.attach("first", "node-1").await.name_any();
    let apinets = env.apinet::<apinet::NetworkInterface>();
    let holder =
        |one: &apinet::NetworkInterface| env.origin(Kind::NetworkInterface, one).map(|origin| origin.uid);
    wait(&apinets, &name, "a claim", |one| holder(one).as_ref() == Some(&first)).await;
    let sources = env.source::<source::NetworkInterface>();
    let id = sources.get("first").await.unwrap().spec.provider_id;
    env.interface("second", "10.0.0.8", json!({})).await;
    patch(&sources, "second", json!({ "spec": { "providerID": id } })).await;
    e2e::wait::until("an Event", async || {
        Ok(env.event_reasons("second").await.contains(&"InterfaceTaken".to_owned()).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(holder(&apinets.get(&name).await.unwrap()), Some(first));
    // The first one gives it up.
    patch(&sources, "first", json!({ "spec": { "providerID": "" } })).await;
    let second = sources.get("second").await.unwrap().uid();
    wait(&apinets, &name, "the claim of the second", |one| holder(one) == second).await;
}
