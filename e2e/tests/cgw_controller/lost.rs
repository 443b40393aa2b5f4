//! Keepers that do not run any more: their entries are removed when it is proven, and stay otherwise.

use e2e::fault_proxy::{Fault, Matcher, Reply};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::env::{PREFIX, TestEnv, wait};

/// A keeper that runs nowhere. The API server of a control plane has no Node of its name before the test.
const GONE: &str = "127.0.0.23";
const NODE: &str = "lost-keeper-1";

impl TestEnv {
    async fn register_lost(&self) {
        let entry = json!({ "v": 1, "ip": GONE, "port": 1, "node": NODE, "vrid": 52, "vips": ["192.168.50.99"], "boot": "b" });
        let key = format!("{PREFIX}/host.{GONE}-1");
        self.annotate(&self.own, "cgw-hosts", json!({ key: entry.to_string() })).await;
    }

    async fn is_registered(&self) -> bool {
        self.annotation(&self.own, "cgw-hosts", &format!("host.{GONE}-1")).await.is_some()
    }

    /// How often the controller has read the Node of a keeper that does not respond.
    fn examined(&self) -> usize {
        let requests = self.proxy.requests();
        requests.iter().filter(|one| one.path == format!("/api/v1/nodes/{NODE}")).count()
    }

    /// Waits until the controller has examined the keeper twice more. The first of both may have begun before.
    async fn stays(&self, why: &str) {
        let before = self.examined();
        wait("the keeper is examined", async || self.examined() >= before + 2).await;
        assert!(self.is_registered().await, "{why}");
    }

    async fn node_is(&self, ready: &str) {
        let nodes = Api::<Node>::all(self.client.clone());
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": ready, "reason": "Test", "message": "" }] } });
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    }
}

#[tokio::test]
async fn the_entry_of_a_keeper_is_removed_only_if_its_node_or_its_pod_is_gone() {
    let env = TestEnv::start().await;
    let nodes = Api::<Node>::all(env.client.clone());
    env.apply("v1", "Node", None, NODE, json!({})).await;
    env.node_is("True").await;
    let pod = json!({ "spec": {
        "nodeName": NODE, "serviceAccountName": "cgw-keeper", "containers": [{ "name": "keeper", "image": "keeper" }],
    } });
    env.apply("v1", "Pod", Some(&env.own), "keeper-1", pod).await;
    env.register_lost().await;
    // The keeper that is lost refuses connections.
    let controller = env.launch().args(["--lost-keeper-timeout", "1s"]).start().unwrap();

    env.stays("its Pod exists, and may be frozen").await;
    let pods = Api::<Pod>::namespaced(env.client.clone(), &env.own);
    let lists = Matcher::reads().path("/api/v1/namespaces/*/pods");
    let refused = env.proxy.rule(lists, Fault::Reject(Reply::unavailable()));
    pods.delete("keeper-1", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait("the Pod is deleted", async || pods.get_opt("keeper-1").await.unwrap().is_none()).await;
    env.stays("whether its Pod exists is not known").await;
    env.node_is("Unknown").await;
    // The last examination may have read the Node before.
    env.stays("whether its Pod exists is not known").await;
    env.proxy.remove(refused);
    env.stays("its kubelet does not report").await;
    // kube-controller-manager changes the condition of a Node without a kubelet after a time.
    wait("the entry of the keeper without a Pod is removed", async || {
        env.node_is("True").await;
        !env.is_registered().await
    })
    .await;

    nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
    wait("the Node is deleted", async || nodes.get_opt(NODE).await.unwrap().is_none()).await;
    env.register_lost().await;
    wait("the entry of the keeper without a Node is removed", async || !env.is_registered().await).await;
    // Those that respond have no Node either, and stay.
    for keeper in &env.keepers {
        let key = format!("host.{}-{}", keeper.node, keeper.port);
        assert!(env.annotation(&env.own, "cgw-hosts", &key).await.is_some(), "{key}");
    }
    // An action is counted after the response of the API server.
    for reason in ["NodeGone", "PodGone"] {
        let labels = [("action", "RemoveKeeper"), ("reason", reason), ("result", "done")];
        wait(reason, async || {
            let metrics = controller.metrics().await.unwrap();
            metrics.sum("perimeter_actions_total", &labels) == Some(1.0)
        })
        .await;
    }
}
