//! A Kluster with the Secret that Kubernikus itself writes, and the example binding as it is shipped.

use common::api::deorbit::Phase;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::env::{TestEnv, example, wait};

/// The Secret of a Kluster: the certificates of the administrator, and those that deorbiter does not read.
async fn kluster_secret(env: &TestEnv, kluster: &str) -> String {
    let (certificate, key) = env.control_plane.admin_identity_pem().unwrap();
    let name = format!("{kluster}-secret");
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": {
        "tls-ca.pem": env.control_plane.ca_pem().unwrap(),
        "apiserver-clients-cluster-admin.pem": certificate,
        "apiserver-clients-cluster-admin-key.pem": key,
        "etcd-clients-ca.pem": "not read",
        "bootstrapToken": "not read",
    } });
    let api = Api::<Secret>::namespaced(env.client.clone(), &env.namespace);
    api.patch(&name, &PatchParams::apply("e2e"), &Patch::Apply(&secret)).await.unwrap();
    key
}

/// Without OpenStack, so that the Deorbit can be complete here.
fn binding() -> Value {
    let mut spec = example("kluster-binding.yaml")["spec"].clone();
    let template = spec["template"]["spec"].as_object_mut().unwrap();
    let login = template.remove("openstack").unwrap();
    assert_eq!(login["identityRef"]["name"], template["kubeconfig"]["secretRef"]["name"], "one Secret");
    template.insert("timeouts".to_owned(), json!({ "loadBalancerGrace": "0s", "apiUnavailable": "20s" }));
    spec
}

#[tokio::test]
async fn a_kluster_is_deorbited_with_the_secret_that_kubernikus_writes() {
    let env = TestEnv::start().await;
    let key = kluster_secret(&env, "prod").await;
    env.kluster("prod", "Running").await;
    env.bind("klusters", binding()).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait("the finalizer", || async {
        env.finalizers("prod").await.unwrap().contains(&"deorbiter".to_owned())
    })
    .await;
    env.delete_kluster("prod").await;
    env.patch_kluster("prod", json!({ "status": { "phase": "Terminating" } })).await;

    // The Secret does not have the URL: without it in the status there is no Deorbit.
    wait("it is held", || async { env.binding("klusters").await.unwrap()["status"]["held"] == 1 }).await;
    assert!(env.deorbits().await.is_empty());
    env.patch_kluster("prod", json!({ "status": { "apiserver": env.control_plane.url() } })).await;
    env.wait_for_phase(Phase::Succeeded).await;
    wait("its release", || async { env.finalizers("prod").await.unwrap() == ["groundctl"] }).await;

    let secret_line = key.lines().nth(1).unwrap();
    let is_secret = |line: &str| line.contains(secret_line) || line.contains("PRIVATE KEY");
    assert!(deorbiter.output().matching(is_secret).is_empty(), "a private key in the log");
}
