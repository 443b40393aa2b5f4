//! Load balancers: the cloud controller's names and tags, and the Service that waits for their deletion.

use std::cell::RefCell;

use common::api::deorbit::Phase;
use e2e::openstack::{Part, Service};
use e2e::providers::Provider;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1;
use kube::Api;
use serde_json::json;

use super::deorbit::{deorbit, deorbiter, end, left};
use super::{TestEnv, until, workers, workers_alone};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn a_service_waits_for_its_load_balancer_even_if_the_worker_hangs() {
    let _guard = workers_alone().await;
    let env = TestEnv::start("balancer", &[Provider::CloudController]).await;
    env.initialised("node-1").await;
    env.providers.balancer("default", "web").await.unwrap();
    let address = env.providers.address("default", "web").await.unwrap();
    let list = left(&env, Service::LoadBalancer, "/loadbalancers", "loadbalancers").await;
    let balancer = &list[0];
    assert_eq!(balancer["name"], "kube_service_balancer_default_web");
    assert!(balancer["description"].as_str().unwrap().ends_with("from cluster balancer"), "{balancer}");
    assert!(balancer["tags"].as_array().unwrap().contains(&"kube_service_balancer_default_web".into()));
    let addresses = left(&env, Service::Network, "/floatingips", "floatingips").await;
    assert_eq!(addresses[0]["floating_ip_address"], address.as_str());

    let path = format!("/loadbalancers/{}", balancer["id"].as_str().unwrap());
    let status = async || {
        let shown = env.project.api().get(Service::LoadBalancer, &path).await.unwrap();
        shown["loadbalancer"]["provisioning_status"].as_str().unwrap().to_owned()
    };
    // The Service has its address before the last change to the load balancer is done.
    let hung_worker = RefCell::new(None);
    until("a load balancer at rest with a worker that hangs", async || {
        let paused = env.cloud.pause(Part::OctaviaWorker).unwrap();
        let rests = status().await == "ACTIVE";
        *hung_worker.borrow_mut() = rests.then_some(paused);
        rests
    })
    .await;
    let services: Api<v1::Service> = Api::namespaced(env.control_plane.client(), "default");
    services.delete("web", &Default::default()).await.unwrap();
    until("a load balancer on its way", async || status().await == "PENDING_DELETE").await;
    let finalizers = services.get("web").await.unwrap().metadata.finalizers.unwrap();
    assert_eq!(finalizers, ["service.kubernetes.io/load-balancer-cleanup"]);
    // Only an operator of Octavia can fix it: it is debris, with its state.
    let deorbiter = deorbiter(&env).await;
    deorbit(&env, "hung", "Delete", ("5s", "20s")).await;
    let hung = end(&env, "hung").await;
    assert_eq!(hung.phase, Phase::Succeeded, "{hung:#?}");
    let named = hung.debris.iter().find(|one| one.kind == "LoadBalancer").unwrap();
    assert_eq!(named.id.as_deref(), balancer["id"].as_str());
    assert!(named.reason.contains("the load balancer is PENDING_DELETE in OpenStack"), "{named:?}");
    assert!(named.reason.contains("not gone within 5s"), "{named:?}");
    drop(deorbiter);
    drop(hung_worker);
    until("the Service's end", async || services.get_opt("web").await.unwrap().is_none()).await;
    env.project.gone(Service::LoadBalancer, &path).await.unwrap();
    assert_eq!(left(&env, Service::Network, "/floatingips", "floatingips").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn load_balancers_of_a_stopped_cloud_controller_are_deleted_by_id_and_a_kept_address_stays() {
    let _guard = workers().await;
    let env = TestEnv::start("orphans", &[Provider::CloudController]).await;
    env.initialised("node-1").await;
    let keep = json!({ "loadbalancer.openstack.org/keep-floatingip": "true" });
    env.providers.balancer("default", "web").await.unwrap();
    env.providers.annotated_balancer("default", "shop", keep).await.unwrap();
    env.providers.address("default", "web").await.unwrap();
    let kept = env.providers.address("default", "shop").await.unwrap();
    let neighbour = env.project.load_balancer("kube_service_other_default_web", "").await.unwrap();
    let balancers = async || left(&env, Service::LoadBalancer, "/loadbalancers", "loadbalancers").await;
    let groups = async || {
        let all = left(&env, Service::Network, "/security-groups", "security_groups").await;
        all.into_iter().filter(|group| group["name"].as_str().unwrap().starts_with("lb-sg-")).count()
    };
    until("three load balancers at rest, with a security group for each Service", async || {
        let all = balancers().await;
        all.len() == 3 && all.iter().all(|one| one["provisioning_status"] == "ACTIVE") && groups().await == 2
    })
    .await;
    env.providers.kill(Provider::CloudController).unwrap();
    // Its stale Lease: the run does not wait for the cloud controller.
    let lease = json!({
        "metadata": { "name": "cloud-controller-manager" },
        "spec": { "holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" } });
    let leases: Api<Lease> = Api::namespaced(env.control_plane.client(), "kube-system");
    leases.create(&Default::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();

    let _deorbiter = deorbiter(&env).await;
    deorbit(&env, "run", "Delete", ("90s", "4m")).await;
    let status = end(&env, "run").await;
    let there: Vec<_> = balancers().await;
    let there: Vec<_> = there.iter().filter(|one| one["provisioning_status"] != "DELETED").collect();
    assert_eq!(there.iter().map(|one| one["id"].as_str().unwrap()).collect::<Vec<_>>(), [&neighbour]);
    let addresses = left(&env, Service::Network, "/floatingips", "floatingips").await;
    let addresses: Vec<_> =
        addresses.iter().map(|one| one["floating_ip_address"].as_str().unwrap()).collect();
    assert_eq!(addresses, [kept.as_str()]);
    // The cloud controller added each group to the ports of the Nodes, which deorbiter does not change: Neutron keeps it, and it is
    // debris.
    assert_eq!(status.phase, Phase::Succeeded, "{status:#?}");
    let named: Vec<_> = status.debris.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(named, ["SecurityGroup", "SecurityGroup"], "{status:#?}");
    assert!(status.debris.iter().all(|one| one.reason.contains("in use")), "{status:#?}");
}
