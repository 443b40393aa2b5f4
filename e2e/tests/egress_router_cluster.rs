//! egress-router on a cluster of real nodes: installed by its DaemonSet from its own image, chained behind `bridge` by
//! containerd, and called by kubelets. A host in the Internet reports the source addresses.
//!
//! Needs root.

mod env;
mod multus;

use std::time::Instant;

use env::TestEnv;
use serde_json::json;

/// One cluster for all steps, because its start takes longer than they do.
#[tokio::test]
#[ignore = "full: real nodes"]
async fn pods_leave_with_their_own_addresses_on_any_node() {
    let env = TestEnv::start().await;
    env.install().await;
    let server = env.server("node-2").await;
    by_name(&env, &server).await;
    from_a_config_map(&env).await;
    env.nothing_is_left().await;
}

#[tokio::test]
#[ignore = "full: real nodes"]
async fn multus_attaches_two_networks_to_a_pod() {
    let env = TestEnv::start().await;
    env.install().await;
    multus::install(&env).await;
    multus::two_networks(&env).await;
}

/// `podIP`: the address belongs to the pod's name, on any node.
async fn by_name(env: &TestEnv, server: &env::Server) {
    for (address, node) in
        [("198.18.50.80", "node-1"), ("198.18.50.80", "node-2"), ("198.18.50.80", "node-1")]
    {
        let since = Instant::now();
        // Ready, by the kubelet's probe of the pod's primary address.
        let own = env.pod("web-0", "egress", node).await;
        println!("web-0 on {node} Ready after {:.1} s", since.elapsed().as_secs_f64());
        assert_eq!(env.asked("web-0", "203.0.113.9").await, address, "{}", env.inside("web-0").await);
        // Other pods see its primary address.
        let name = "server.default.svc.cluster.local";
        for (what, host) in [("Service", &*server.service), ("pod", &server.pod), ("Service by name", name)] {
            assert_eq!(env.asked("web-0", host).await, own, "{what}; {}", env.inside("web-0").await);
        }
        // It is reachable from this node and from another one.
        assert_eq!(env.asked("server", &own).await, server.pod, "{}", env.inside("web-0").await);
        assert!(env.records(node).await.contains(".json"), "no record while it lives");
        env.delete("web-0").await;
    }
    let also = env.pod("db-7", "egress", "node-2").await;
    assert_ne!(also, "198.18.50.81");
    assert_eq!(env.asked("db-7", "203.0.113.9").await, "198.18.50.81", "by prefix");
    env.delete("db-7").await;

    let refused = env.refused("unlisted", "egress", "node-1").await;
    assert!(refused.contains("podIP") && refused.contains("unlisted"), "{refused}");
    env.delete("unlisted").await;
}

/// `ipConfig`: read from the API server with the permissions of the manifests.
async fn from_a_config_map(env: &TestEnv) {
    let refused = env.refused("worker", "egress-config", "node-1").await;
    assert!(refused.contains("ConfigMap") && refused.contains("egress-addresses"), "{refused}");
    // The kubelet retries.
    env.config_map(&json!({"addresses": ["198.18.50.90/24"]})).await;
    env.until_ready("worker").await;
    assert_eq!(env.asked("worker", "203.0.113.9").await, "198.18.50.90");
    env.delete("worker").await;

    env.config_map(&json!({"addresses": ["198.18.50.91/24"]})).await;
    env.pod("worker", "egress-config", "node-2").await;
    assert_eq!(env.asked("worker", "203.0.113.9").await, "198.18.50.91");
    env.delete("worker").await;

    // An address that is not in `overrides` is refused.
    env.config_map(&json!({"addresses": ["198.18.50.99/24"]})).await;
    let refused = env.refused("worker", "egress-config", "node-1").await;
    assert!(refused.contains("198.18.50.99") && refused.contains("198.18.50.90"), "{refused}");
    env.delete("worker").await;
}
