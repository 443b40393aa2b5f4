//! Kubeconfigs of both clusters.

use apinetlet::api::source;
use e2e::program::Program;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::environment::{TestEnv, wait};

/// Both kubeconfigs are in Secrets of the cluster that the program finds by itself.
#[tokio::test]
async fn kubeconfigs_are_read_from_secrets() {
    let env = TestEnv::new().await;
    let (source, apinet) = env.kubeconfigs();
    let secrets = Api::<Secret>::namespaced(env.client.clone(), &env.source);
    for (name, file) in [("source", &source), ("apinet", &apinet)] {
        let kubeconfig = std::fs::read_to_string(file).unwrap();
        let secret = json!({ "metadata": { "name": name }, "stringData": { "kubeconfig": kubeconfig } });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    std::fs::copy(source, home.path().join(".kube/config")).unwrap();
    let program = Program::binary("apinetlet").unwrap().env("HOME", home.path()).args([
        "--kubeconfig-secret-name=source".to_owned(),
        "--api-net-kubeconfig-secret-name=apinet".to_owned(),
        format!("--own-namespace={}", env.source),
        format!("--namespace={}", env.source),
        format!("--api-net-namespace={}", env.apinet),
        "--health-probe-bind-address=127.0.0.1:0".to_owned(),
    ]);
    let _running = program.start().unwrap();
    env.network("net").await;
    wait(&env.source::<source::Network>(), "net", "Available", |one| one.status.state == "Available").await;
    let missing = program.arg("--kubeconfig-secret-namespace=default").start().unwrap();
    assert_eq!(missing.wait_exit().await.unwrap().code(), Some(2));
    assert!(
        missing.output().lines().concat().contains("Secret default/source"),
        "{:?}",
        missing.output().lines()
    );
}
