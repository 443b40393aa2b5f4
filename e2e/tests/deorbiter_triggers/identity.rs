//! A login that an OpenStackClusterIdentity names, in a Secret of another namespace.

use std::collections::BTreeMap;

use common::api::deorbit::Deorbit;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::env::{TestEnv, resource, wait};

/// Reason and message of CloudReachable.
async fn reachable(env: &TestEnv) -> (String, String) {
    let deorbit = env.deorbits().await.pop().unwrap();
    let conditions = deorbit.status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|one| one.kind == "CloudReachable");
    found.map(|one| (one.reason, one.message)).unwrap_or_default()
}

#[tokio::test]
async fn a_cluster_identity_is_used_in_the_namespaces_that_it_selects() {
    let env = TestEnv::start().await;
    env.kubeconfig_secret("prod-kubeconfig").await;
    // Nothing listens there: NoResponse shows that the login was read.
    let clouds = "clouds: {north: {auth: {auth_url: 'http://127.0.0.1:9/v3', token: s3cr3t}}}";
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "shared-login" },
        "stringData": { "clouds.yaml": clouds } });
    let secrets = Api::<Secret>::namespaced(env.client.clone(), &env.own);
    secrets.patch("shared-login", &PatchParams::apply("e2e"), &Patch::Apply(&secret)).await.unwrap();
    let identity: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "OpenStackClusterIdentity",
        "metadata": { "name": "shared" },
        "spec": { "secretRef": { "namespace": env.own, "name": "shared-login" },
            "namespaceSelector": { "matchLabels": { "may-use": "shared" } } },
    }))
    .unwrap();
    let kind = resource("infrastructure.cluster.x-k8s.io/v1alpha1", "OpenStackClusterIdentity");
    let identities = Api::<DynamicObject>::all_with(env.client.clone(), &kind);
    identities.create(&PostParams::default(), &identity).await.unwrap();
    let deorbit = json!({ "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": { "name": "prod" },
        "spec": { "kubeconfig": { "secretRef": { "name": "prod-kubeconfig" } },
            "openstack": { "identityRef": { "type": "ClusterIdentity", "name": "shared", "cloudName": "north" } } } });
    let deorbits = Api::<Deorbit>::namespaced(env.client.clone(), &env.namespace);
    deorbits.create(&PostParams::default(), &serde_json::from_value(deorbit).unwrap()).await.unwrap();
    let deorbiter = env.deorbiter().start().unwrap();

    let refused = format!("namespace {} may not use OpenStackClusterIdentity shared", env.namespace);
    let is_refused = || async {
        let (reason, message) = reachable(&env).await;
        reason == "Refused" && message.contains(&refused)
    };
    wait("it is refused", is_refused).await;
    let namespaces = Api::<Namespace>::all(env.client.clone());
    let label = |value: Value| {
        Patch::Merge(json!({ "metadata": { "labels": BTreeMap::from([("may-use", value)]) } }))
    };
    namespaces.patch(&env.namespace, &PatchParams::default(), &label(json!("shared"))).await.unwrap();
    wait("the login is used", || async { reachable(&env).await.0 == "NoResponse" }).await;
    namespaces.patch(&env.namespace, &PatchParams::default(), &label(Value::Null)).await.unwrap();
    wait("it is refused again", is_refused).await;
    assert!(deorbiter.output().matching(|line| line.contains("s3cr3t")).is_empty(), "a secret in the log");
}
