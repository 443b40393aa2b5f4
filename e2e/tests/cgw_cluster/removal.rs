//! Unbinding and uninstalling, as docs/cgw-controller.md describes them.

use std::collections::BTreeMap;

use e2e::cgw::{GATEWAY_LABEL, NAMESPACE};
use e2e::cluster::Target;
use e2e::netns::Snapshot;
use e2e::wait::until;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::env::{SERVICES, TestEnv};

const IMAGE: &str = concat!("perimeter.dev/cgw-controller:", env!("CARGO_PKG_VERSION"));

/// The state of each node's network.
pub async fn snapshots(env: &TestEnv) -> BTreeMap<String, Snapshot> {
    let mut all = BTreeMap::new();
    for node in env.cluster.nodes() {
        all.insert(node.name().to_owned(), node.snapshot().await.unwrap());
    }
    all
}

/// Pods leave as before, and each node has the network that it had before the installation.
pub async fn nothing_is_left(env: &TestEnv, before: &BTreeMap<String, Snapshot>) {
    for (namespace, service, vip) in SERVICES {
        env.ctl(&format!("unbind {vip} {namespace} {service}")).await;
        if namespace == "shop" {
            env.ctl(&format!("unbind {vip} {namespace}")).await;
        }
    }
    for name in env.bound() {
        let node = env.node_source(env.pods[name].node);
        env.until_source(name, Target::ECHO, &node.to_string()).await;
    }
    for (namespace, name, _) in SERVICES {
        let api: Api<Service> = Api::namespaced(env.cluster.client(), namespace);
        let service = api.get(name).await.unwrap();
        let annotations = service.annotations();
        assert!(!annotations.contains_key("cgw-controller.perimeter.dev/vip"), "{annotations:?}");
        let ingress = service.status.and_then(|status| status.load_balancer?.ingress);
        assert!(ingress.is_none_or(|ingress| ingress.is_empty()), "{namespace}/{name} has an ingress");
    }

    env.kubectl(&format!("-n {NAMESPACE} delete daemonset cgw-agent --timeout=600s")).await;
    let agents = "-l app.kubernetes.io/component=agent --timeout=600s";
    env.kubectl(&format!("-n {NAMESPACE} wait --for=delete pod {agents}")).await;
    for node in env.cluster.nodes() {
        let name = format!("uninstall-{}", node.name());
        env.apply(&[json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "nodeName": node.name(), "hostNetwork": true, "restartPolicy": "Never",
                "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "agent", "image": IMAGE, "imagePullPolicy": "Never", "args": ["agent", "--uninstall"],
                    "securityContext": {
                        "runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
                    },
                }],
            },
        })])
        .await;
        let done = format!("--for=jsonpath={{.status.phase}}=Succeeded pod/{name} --timeout=600s");
        env.kubectl(&format!("-n {NAMESPACE} wait {done}")).await;
        println!("{}: {}", node.name(), env.kubectl(&format!("-n {NAMESPACE} logs {name}")).await.trim());
    }
    let folder = env.installation.folder().to_string_lossy().into_owned();
    env.cluster.kubectl(&["delete", "-k", &folder, "--ignore-not-found", "--timeout=600s"]).await.unwrap();
    env.kubectl(&format!("label node --all {GATEWAY_LABEL}-")).await;
    for node in env.cluster.nodes() {
        let changes = async || {
            let mut changes = before[node.name()].changes(&node.snapshot().await.unwrap());
            // Of pods.
            changes.retain(|line| !line.contains("veth") && !line.contains("cni0"));
            changes
        };
        let compared = until("the network as before", async || Ok(changes().await.is_empty().then_some(())));
        if let Err(error) = compared.await {
            panic!("{error:#}: {}: {:#?}", node.name(), changes().await);
        }
        let tables = node.exec(&["nft", "list", "tables"]).await.unwrap();
        assert!(!tables.contains("cgw"), "{}: {tables}", node.name());
    }
    for name in env.bound() {
        let node = env.node_source(env.pods[name].node);
        env.until_source(name, Target::ECHO, &node.to_string()).await;
    }
}
