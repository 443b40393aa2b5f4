//! The metrics server of the Go program.

use e2e::program::free_port;
use e2e::wait::until;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::environment::TestEnv;
use super::permissions::upstream_rules;

/// Gives the rules of a file of upstream's manifests to a subject, in the whole cluster.
async fn grant(env: &TestEnv, name: &str, file: &str, subject: Value) {
    let metadata = json!({ "name": name });
    let role = json!({ "metadata": metadata, "rules": upstream_rules(file) });
    let roles = Api::<ClusterRole>::all(env.client.clone());
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let binding = json!({
        "metadata": metadata, "subjects": [subject],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
    });
    let bindings = Api::<ClusterRoleBinding>::all(env.client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

#[tokio::test]
async fn metrics_are_served_by_https_to_those_whom_rbac_permits_it() {
    let env = TestEnv::new().await;
    let user = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("apinetlet-{}", env.source) });
    grant(&env, &format!("reviews-{}", env.source), "rbac/metrics_auth_role.yaml", user).await;
    let account = json!({ "kind": "ServiceAccount", "name": "prometheus", "namespace": env.source });
    grant(&env, &format!("reader-{}", env.source), "rbac/metrics_reader_role.yaml", account).await;
    let port = free_port().unwrap();
    let _apinetlet = env.start(&[&format!("--metrics-bind-address=127.0.0.1:{port}")]).await;
    let get = async |account| env.https_metrics(port, account, "/metrics").await;
    // A process is ready before it leads. Its controllers, and their counters, exist from then on.
    let served = until("the counters of the controllers", async || {
        let (code, text) = get(Some("prometheus")).await;
        Ok((code == 200 && text.contains("controller_runtime_reconcile_total")).then_some(()))
    })
    .await;
    if let Err(error) = served {
        panic!("{error}: {:?}", get(Some("prometheus")).await);
    }
    assert_eq!(get(Some("other")).await.0, 403);
    assert_eq!(get(None).await.0, 401);
}
