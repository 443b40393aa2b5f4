//! Clusters of Cluster API without ClusterClass, with the example binding. The tests delete as Cluster API's controllers do: the Cluster
//! first, then all of its Machines at once; the server of a Machine is deleted when the Machine has no pre-terminate hook.

use std::collections::BTreeSet;

use common::api::deorbit::Phase;
use e2e::fault_proxy::{Fault, Matcher};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::env::{TestEnv, example, wait};

const API: &str = "cluster.x-k8s.io/v1beta2";
const HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/deorbiter";
const FINALIZER: &str = "deorbiter.perimeter.dev/cleanup";
/// Cluster API's own.
pub const OTHERS: &str = "cluster.cluster.x-k8s.io";

/// Without OpenStack, so that the Deorbit can be complete here.
pub fn binding() -> Value {
    let mut spec = example("cluster-binding.yaml")["spec"].clone();
    let template = spec["template"]["spec"].as_object_mut().unwrap();
    template.remove("openstack").unwrap();
    template.insert("timeouts".to_owned(), json!({ "loadBalancerGrace": "0s", "apiUnavailable": "20s" }));
    spec
}

pub async fn cluster(env: &TestEnv, name: &str) {
    env.create(API, "Cluster", name, json!({ "metadata": { "finalizers": [OTHERS] }, "spec": {} })).await;
}

pub async fn machine(env: &TestEnv, name: &str, cluster: &str) {
    let metadata = json!({ "labels": { "cluster.x-k8s.io/cluster-name": cluster }, "finalizers": ["machine.cluster.x-k8s.io"] });
    env.create(API, "Machine", name, json!({ "metadata": metadata, "spec": {} })).await;
}

pub async fn has_hook(env: &TestEnv, name: &str) -> bool {
    env.api(API, "Machine").get(name).await.unwrap().annotations().contains_key(HOOK)
}

pub async fn finalizers(env: &TestEnv, name: &str) -> Vec<String> {
    env.api(API, "Cluster").get(name).await.unwrap().finalizers().to_vec()
}

pub async fn delete(env: &TestEnv, kind: &str, name: &str) {
    env.api(API, kind).delete(name, &DeleteParams::default()).await.unwrap();
}

/// A bound Cluster `prod` with two Machines that have the hook.
async fn bound(env: &TestEnv) {
    cluster(env, "prod").await;
    for name in ["w1", "w2"] {
        machine(env, name, "prod").await;
    }
    env.bind("clusters", binding()).await;
}

async fn wait_for_hooks(env: &TestEnv, names: &[&str]) {
    for name in names {
        wait(&format!("the hook of {name}"), || has_hook(env, name)).await;
    }
}

#[tokio::test]
async fn the_servers_of_a_cluster_stay_until_its_deorbit_is_complete() {
    let env = TestEnv::start().await;
    bound(&env).await;
    machine(&env, "elsewhere", "no-cluster").await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait_for_hooks(&env, &["w1", "w2"]).await;
    assert_eq!(finalizers(&env, "prod").await, [OTHERS, FINALIZER]);
    assert!(!has_hook(&env, "elsewhere").await);

    // A rollout: the old Machine does not wait, and the new one gets the hook.
    machine(&env, "w3", "prod").await;
    delete(&env, "Machine", "w2").await;
    wait_for_hooks(&env, &["w3"]).await;
    wait("w2 may go", || async { !has_hook(&env, "w2").await }).await;

    delete(&env, "Cluster", "prod").await;
    for name in ["w1", "w3"] {
        delete(&env, "Machine", name).await;
    }
    // Without its Secret the Deorbit waits, and the Machines with it.
    wait("a Deorbit that is refused", || async {
        let deorbits = env.deorbits().await;
        let mut conditions =
            deorbits.into_iter().filter_map(|one| one.status).flat_map(|status| status.conditions);
        conditions.any(|one| one.kind == "TargetReachable" && one.reason == "Refused")
    })
    .await;
    assert!(has_hook(&env, "w1").await && has_hook(&env, "w3").await);

    env.kubeconfig_secret("prod-kubeconfig").await;
    env.wait_for_phase(Phase::Succeeded).await;
    for name in ["w1", "w3"] {
        wait(&format!("{name} may go"), || async { !has_hook(&env, name).await }).await;
    }
    assert_eq!(finalizers(&env, "prod").await, [OTHERS], "before the hooks");
    drop(deorbiter);
}

/// The plan sees the Machine's deletion, and not yet the Cluster's.
#[tokio::test]
async fn a_machine_keeps_its_hook_if_the_event_of_its_cluster_is_late() {
    let env = TestEnv::start().await;
    bound(&env).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait_for_hooks(&env, &["w1", "w2"]).await;
    let held = env.api_proxy.rule(Matcher::watches().resource("clusters"), Fault::hold_events());
    let before = env.api_proxy.requests().len();
    delete(&env, "Cluster", "prod").await;
    delete(&env, "Machine", "w1").await;
    // It reads the Cluster before it would remove the hook; the second time shows that the first has ended.
    wait("the Cluster is read twice", || async {
        let requests = env.api_proxy.requests();
        let reads = requests.iter().skip(before).filter_map(|request| request.kube());
        reads.filter(|it| it.verb == "get" && it.resource == "clusters").count() >= 2
    })
    .await;
    assert!(has_hook(&env, "w1").await);
    env.api_proxy.remove(held);
    wait("a Deorbit", || async { !env.deorbits().await.is_empty() }).await;
    assert!(has_hook(&env, "w1").await);
    drop(deorbiter);
}

#[tokio::test]
async fn a_deleted_binding_removes_its_hooks() {
    let env = TestEnv::start().await;
    bound(&env).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait_for_hooks(&env, &["w1", "w2"]).await;
    let refused = async |patch: Value| {
        let bindings = Api::<common::api::deorbit_binding::DeorbitBinding>::all(env.client.clone());
        let response = bindings.patch("clusters", &PatchParams::default(), &Patch::Merge(patch)).await;
        response.unwrap_err().to_string()
    };
    let why = refused(json!({ "spec": { "machineHook": "None" } })).await;
    assert!(why.contains("machineHook cannot be changed"), "{why}");
    let bindings = Api::<common::api::deorbit_binding::DeorbitBinding>::all(env.client.clone());
    bindings.delete("clusters", &DeleteParams::default()).await.unwrap();
    wait("the binding is gone", || async { env.binding("clusters").await.is_none() }).await;
    assert!(!has_hook(&env, "w1").await && !has_hook(&env, "w2").await);
    assert_eq!(finalizers(&env, "prod").await, [OTHERS]);
    drop(deorbiter);

    // Least rights: each of the example is used, and none is missing.
    let requests = env.api_proxy.requests();
    assert!(requests.iter().all(|request| request.upstream_status != Some(403)));
    let used: BTreeSet<(String, String)> =
        requests.iter().filter_map(|request| request.kube()).map(|it| (it.resource, it.verb)).collect();
    let rule = &example("cluster-rights.yaml")["rules"][0];
    for resource in rule["resources"].as_array().unwrap() {
        for verb in rule["verbs"].as_array().unwrap() {
            let right = (resource.as_str().unwrap().to_owned(), verb.as_str().unwrap().to_owned());
            assert!(used.contains(&right), "granted and not used: {right:?}");
        }
    }
}
