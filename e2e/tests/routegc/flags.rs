//! One router by flags, without RouteGC objects.

use e2e::natgw::run;
use e2e::rights::{User, until_effective};
use e2e::routegc::{PODS, TestEnv, pods};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

/// The additional permissions of routegc with flags, as in docs/routegc.md.
async fn grant_config_maps(env: &TestEnv) {
    let namespace = &env.namespace;
    let role: Role = serde_json::from_value(json!({
        "metadata": { "name": "routegc-state" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"] }],
    }))
    .unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": "routegc-state" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "routegc-state" },
        "subjects": [{ "kind": "ServiceAccount", "name": "routegc", "namespace": namespace }],
    }))
    .unwrap();
    Api::namespaced(env.client.clone(), namespace).create(&PostParams::default(), &role).await.unwrap();
    Api::namespaced(env.client.clone(), namespace).create(&PostParams::default(), &binding).await.unwrap();
    let account = format!("system:serviceaccount:{namespace}:routegc");
    let user = User { name: account, groups: Vec::new() };
    let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] });
    until_effective(&env.client, &user, Some(namespace), &[rule]).await.unwrap();
}

#[tokio::test]
async fn a_cloud_conf_and_a_pod_network_are_enough_and_invalid_flags_send_no_request() {
    let env = TestEnv::start().await.unwrap();
    let conf = env.cloud_conf().unwrap();
    let invalid = env.command().unwrap().args(["--router-id", "r", "--cluster-cidr", "10.244.1.0/16"]);
    let (code, output) = run(&invalid.arg("--cloud-config").arg(&conf)).await.unwrap();
    assert_eq!((code, output.lines().count()), (2, 1), "{output}");
    assert!(output.contains("--cluster-cidr: 10.244.1.0/16 has host bits; write 10.244.0.0/16"), "{output}");
    assert!(env.api_proxy.requests().is_empty() && env.neutron.requests().is_empty());

    grant_config_maps(&env).await;
    env.populate(1, 1).await.unwrap();
    let flags = ["--cluster-cidr", PODS, "--min-age", "0s", "--mode", "enforce", "--all-next-hops-are-ports"];
    // OS_CLOUD of the user's shell must not override the flag.
    let command = env.routegc().unwrap().env("OS_CLOUD", "another");
    let command = command.arg("--cloud-config").arg(&conf).args(flags).arg("--once");
    e2e::natgw::wait_for("the permission to write the ConfigMap", || async {
        Ok(run(&command).await?.0 == 0)
    })
    .await
    .unwrap();
    let maps = Api::<ConfigMap>::namespaced(env.client.clone(), &env.namespace);
    let state = maps.get(&format!("routegc-{}", env.project.router)).await.unwrap();
    assert!(state.data.unwrap()["status.json"].contains("\"observations\":1"), "it survives a restart");
    let (code, output) = run(&command).await.unwrap();
    assert_eq!(code, 0, "{output}");
    assert_eq!(env.destinations().await.unwrap(), [pods(1)]);
    let dry = env.routegc().unwrap().arg("--cloud-config").arg(&conf).args(flags).arg("--dry-run");
    let (code, output) = run(&dry).await.unwrap();
    assert!(code == 0 && output.contains("nothing to do"), "{output}");
}
