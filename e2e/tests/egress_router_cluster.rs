//! egress-router on a cluster of real nodes: installed by its DaemonSet from its own image, chained behind `bridge` by
//! containerd, and called by kubelets. What leaves is seen by a host in the Internet.
//!
//! Needs root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "egress_router_cluster/world.rs"]
mod world;

use std::time::Instant;

use serde_json::json;
use world::World;

/// One cluster for the whole story: it takes longer to start than all of it.
#[tokio::test]
async fn pods_leave_with_their_own_addresses_wherever_they_run() {
    let world = World::start().await;
    world.install().await;
    let server = world.server("node-2").await;
    by_name(&world, &server).await;
    from_a_config_map(&world).await;
    world.nothing_is_left().await;
}

/// `podIP`: the address has a pod's name, and is where the pod is.
async fn by_name(world: &World, server: &world::Server) {
    for (address, node) in
        [("198.18.50.80", "node-1"), ("198.18.50.80", "node-2"), ("198.18.50.80", "node-1")]
    {
        let since = Instant::now();
        // Ready is what its kubelet finds by a probe of the pod's own address.
        let own = world.pod("web-0", "egress", node).await;
        println!("web-0 on {node} Ready after {:.1} s", since.elapsed().as_secs_f64());
        assert_eq!(world.asked("web-0", "203.0.113.9").await, address, "{}", world.inside("web-0").await);
        // What is in the cluster sees the pod as it is known there.
        let name = "server.default.svc.cluster.local";
        for (what, host) in [("Service", &*server.service), ("pod", &server.pod), ("Service by name", name)] {
            assert_eq!(world.asked("web-0", host).await, own, "{what}; {}", world.inside("web-0").await);
        }
        // And comes to it, from this node and from another.
        assert_eq!(world.asked("server", &own).await, server.pod, "{}", world.inside("web-0").await);
        assert!(world.records(node).await.contains(".json"), "no record while it lives");
        world.delete("web-0").await;
    }
    let also = world.pod("db-7", "egress", "node-2").await;
    assert_ne!(also, "198.18.50.81");
    assert_eq!(world.asked("db-7", "203.0.113.9").await, "198.18.50.81", "by prefix");
    world.delete("db-7").await;

    let refused = world.refused("stranger", "egress", "node-1").await;
    assert!(refused.contains("podIP") && refused.contains("stranger"), "{refused}");
    world.delete("stranger").await;
}

/// `ipConfig`: read from the API server, with the rights that the manifests give.
async fn from_a_config_map(world: &World) {
    let refused = world.refused("worker", "egress-config", "node-1").await;
    assert!(refused.contains("ConfigMap") && refused.contains("egress-addresses"), "{refused}");
    // The kubelet tries again.
    world.config_map(&json!({"addresses": ["198.18.50.90/24"]})).await;
    world.until_ready("worker").await;
    assert_eq!(world.asked("worker", "203.0.113.9").await, "198.18.50.90");
    world.delete("worker").await;

    world.config_map(&json!({"addresses": ["198.18.50.91/24"]})).await;
    world.pod("worker", "egress-config", "node-2").await;
    assert_eq!(world.asked("worker", "203.0.113.9").await, "198.18.50.91");
    world.delete("worker").await;

    // What `overrides` do not list is nobody's to take.
    world.config_map(&json!({"addresses": ["198.18.50.99/24"]})).await;
    let refused = world.refused("worker", "egress-config", "node-1").await;
    assert!(refused.contains("198.18.50.99") && refused.contains("198.18.50.90"), "{refused}");
    world.delete("worker").await;
}
