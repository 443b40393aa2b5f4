//! Ingresses of octavia-ingress-controller: what it creates for them, and how deorbiter deletes it.

use common::api::deorbit::{Kind, Phase};
use e2e::openstack::Service;
use e2e::providers::Provider;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use serde_json::{Value, json};

use super::deorbit::{deorbit_as, deorbiter, end, left, records};
use super::{TestEnv, until, workers};

const KEEP: &str = "octavia.ingress.kubernetes.io/keep-floatingip";

/// Load balancers that exist, by name.
async fn balancers(env: &TestEnv) -> Vec<Value> {
    let mut all = left(env, Service::LoadBalancer, "/loadbalancers", "loadbalancers").await;
    all.retain(|one| one["provisioning_status"] != "DELETED");
    all.sort_by_key(|one| one["name"].to_string());
    all
}

fn field<'a>(all: &'a [Value], key: &str) -> Vec<&'a str> {
    all.iter().map(|one| one[key].as_str().unwrap()).collect()
}

/// Security groups that the controller created.
async fn groups(env: &TestEnv) -> Vec<Value> {
    let mut all = left(env, Service::Network, "/security-groups", "security_groups").await;
    all.retain(|one| one["name"].as_str().unwrap().starts_with("kube_ingress_"));
    all
}

/// Two Ingresses with floating IPs, one of which is to be kept; returns when nothing changes any more.
async fn made(env: &TestEnv, names: [&str; 2]) -> [String; 2] {
    let [plain, keeps] = names;
    let outside = ("octavia.ingress.kubernetes.io/internal", "false");
    // The API server notices the end of the last block after a moment.
    until("an Ingress", async || env.providers.ingress("default", plain, &[outside]).await.is_ok()).await;
    env.providers.ingress("default", keeps, &[outside, (KEEP, "true")]).await.unwrap();
    let addresses = [
        env.providers.ingress_address("default", plain).await.unwrap(),
        env.providers.ingress_address("default", keeps).await.unwrap(),
    ];
    // Its last write is the load balancer's description, with the Ingress's version.
    until("the controller to be done", async || {
        let all = balancers(env).await;
        let done = |one: &&Value| {
            one["description"].as_str().unwrap().contains(", version: ")
                && one["provisioning_status"] == "ACTIVE"
        };
        all.iter().filter(done).count() == 2
    })
    .await;
    addresses
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn ingresses_are_deleted_by_their_controller_and_by_id_when_it_has_stopped() {
    let _guard = workers().await;
    let env = TestEnv::start("ingresses", &[Provider::CloudController]).await;
    env.initialised("node-1").await;
    // It reads Nodes once a minute.
    env.providers.run(Provider::IngressController).await.unwrap();
    let [_, kept] = made(&env, ["shop", "blog"]).await;
    let names = ["kube_ingress_ingresses_default_blog", "kube_ingress_ingresses_default_shop"];
    assert_eq!(field(&balancers(&env).await, "name"), names);
    assert_eq!(groups(&env).await.len(), 2);
    let neighbour = env.project.load_balancer("kube_ingress_other_default_shop", "").await.unwrap();

    let _deorbiter = deorbiter(&env).await;
    let spec = json!({ "resources": { "ingresses": "Delete" }, "orphanPolicy": "Delete" });
    deorbit_as(&env, "alive", spec).await;
    let alive = end(&env, "alive").await;
    assert_eq!((alive.phase, alive.debris_count), (Phase::Succeeded, 0), "{alive:#?}");
    let records = records(&env, &alive).await;
    let recorded = |kind: Kind| records.iter().filter(|one| one.kind == kind).count();
    let all = [Kind::LoadBalancer, Kind::FloatingIP, Kind::SecurityGroup].map(recorded);
    assert_eq!(all, [2, 2, 2], "{alive:#?}");
    assert_eq!(field(&balancers(&env).await, "id"), [neighbour.as_str()]);
    let floating = async || left(&env, Service::Network, "/floatingips", "floatingips").await;
    assert_eq!(field(&floating().await, "floating_ip_address"), [kept.as_str()]);
    // The controller has deleted everything, including its group on the Nodes' ports: deorbiter was not faster.
    assert_eq!(groups(&env).await, [] as [Value; 0]);

    let [_, kept_too] = made(&env, ["news", "wiki"]).await;
    env.providers.kill(Provider::IngressController).unwrap();
    let spec = json!({ "resources": { "ingresses": "Delete" }, "orphanPolicy": "Delete",
        "timeouts": { "perObject": "90s", "total": "4m", "loadBalancerGrace": "3s" } });
    deorbit_as(&env, "stopped", spec).await;
    let stopped = end(&env, "stopped").await;
    assert_eq!(field(&balancers(&env).await, "id"), [neighbour.as_str()], "{stopped:#?}");
    let ingresses: Api<Ingress> = Api::namespaced(env.control_plane.client(), "default");
    assert_eq!(ingresses.list(&Default::default()).await.unwrap().items.len(), 0);
    let mut both = [kept.as_str(), kept_too.as_str()];
    both.sort_unstable();
    let floating = floating().await;
    let mut existing = field(&floating, "floating_ip_address");
    existing.sort_unstable();
    assert_eq!(existing, both, "{stopped:#?}");
    // Its groups are on the Nodes' ports, which deorbiter does not change.
    assert_eq!(stopped.phase, Phase::Succeeded, "{stopped:#?}");
    let named: Vec<_> = stopped.debris.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(named, ["SecurityGroup", "SecurityGroup"], "{stopped:#?}");
}
