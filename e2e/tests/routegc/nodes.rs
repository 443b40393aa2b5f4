//! The cluster's Nodes as one more witness, and as those who say when to look.

use e2e::natgw::wait_for;
use e2e::openstack::Service;
use e2e::routegc::{TestEnv, pods};
use serde_json::json;

/// One node that lives by its port, and routes to two of these numbers that do not, at 10.7.2.`number`. The Nodes of all tests here
/// are in one cluster: no two tests have the same numbers.
async fn witnessed(from: serde_json::Value, numbers: [u8; 2]) -> TestEnv {
    let env = TestEnv::start().await.unwrap();
    env.node(1).await.unwrap();
    for number in numbers {
        env.project.add_routes(&[(&pods(number), &format!("10.7.2.{number}"))]).await.unwrap();
    }
    env.let_see_nodes().await.unwrap();
    env.kubeconfig_secret("cloud-config-of-nodes").await.unwrap();
    env.policy("prod", json!({ "nodesFrom": from })).await.unwrap();
    env
}

/// An address of a Node lives without a port; of several routes to a Node's pods only the one that leads to it does, once a port
/// shows that its address is still its own.
#[tokio::test]
async fn a_node_is_a_witness() {
    let env = witnessed(json!({ "inCluster": true }), [2, 3]).await;
    let node = env.cluster_node(2, "10.7.2.2", "s-2").await.unwrap();
    env.project.port(Some("10.7.2.22"), Some("s-22")).await.unwrap();
    env.project.add_routes(&[(&pods(2), "10.7.2.22")]).await.unwrap();
    env.passes(1).await.unwrap();
    let found = async || {
        let candidates = env.status("prod").await.unwrap().candidates;
        candidates.into_iter().map(|one| (one.nexthop, one.reason)).collect::<Vec<_>>()
    };
    let dead = |nexthop: &str, reason: &str| vec![(nexthop.to_owned(), reason.to_owned())];
    assert_eq!(found().await, dead("10.7.2.3", "NoPort"), "a Node's word alone is nothing against a port");
    let port = env.project.port(Some("10.7.2.2"), Some("s-2")).await.unwrap();
    env.passes(1).await.unwrap();
    assert_eq!(found().await, dead("10.7.2.22", "NodeHasAnother"));
    env.passes(1).await.unwrap();
    let left = env.project.routes().await.unwrap();
    assert_eq!(left[1], (pods(2), "10.7.2.2".to_owned()));
    assert_eq!(left.len(), 2, "{left:?}");
    let path = format!("/ports/{port}");
    env.openstack.admin().delete(Service::Network, &path).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 2, "a Node's address lives without a port too");
    env.delete_cluster_node(&node).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1)]);
}

/// A route that somebody puts back is reported with the Node and the server that it is for.
#[tokio::test]
async fn who_a_contested_route_is_for_is_said() {
    let env = witnessed(json!({ "inCluster": true }), [32, 33]).await;
    let node = env.cluster_node(33, "10.7.2.99", "s-3").await.unwrap();
    env.passes(2).await.unwrap();
    env.project.add_routes(&[(&pods(33), "10.7.2.33")]).await.unwrap();
    env.passes(3).await.unwrap();
    let contested = env.status("prod").await.unwrap().contested;
    assert_eq!(contested.len(), 1, "{contested:?}");
    assert_eq!(
        (contested[0].node.as_deref(), contested[0].server.as_deref()),
        (Some(node.as_str()), Some("s-3"))
    );
    assert!(contested[0].removed_at <= contested[0].back_since);
    let events = env.events().await.unwrap();
    let said = events.iter().find(|(reason, _)| reason == "Contested");
    assert!(
        said.is_some_and(|(_, note)| note.contains(&node) && note.contains("removed once")),
        "{events:?}"
    );
    env.delete_cluster_node(&node).await.unwrap();
}

/// The kubeconfig of another cluster, which may not be read until the Role names its Secret.
#[tokio::test]
async fn nodes_of_another_cluster_are_read_through_a_secret() {
    let env = witnessed(json!({ "secretRef": { "name": "cloud-config-of-nodes" } }), [42, 43]).await;
    assert!(env.failing_pass().await.unwrap().contains("add its name to the Role routegc-secrets"));
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!NodesUnavailable");
    // The Secret that the Role names has room for one more key.
    env.kubeconfig_secret("cloud-config").await.unwrap();
    let from = json!({ "secretRef": { "name": "cloud-config" } });
    env.patch("prod", json!({ "spec": { "nodesFrom": from } })).await.unwrap();
    let node = env.cluster_node(44, "10.7.2.44", "s-2").await.unwrap();
    env.project.add_routes(&[(&pods(44), "10.7.2.44")]).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(44)]);
    env.delete_cluster_node(&node).await.unwrap();
}

/// The next pass is made when a Node goes, not when the hour is over.
#[tokio::test]
async fn a_node_that_goes_is_noticed_at_once() {
    let env = TestEnv::start().await.unwrap();
    env.node(1).await.unwrap();
    env.project.add_routes(&[(&pods(55), "10.7.2.55")]).await.unwrap();
    env.let_see_nodes().await.unwrap();
    let node = env.cluster_node(55, "10.7.2.55", "s-5").await.unwrap();
    let more =
        json!({ "nodesFrom": { "inCluster": true }, "safety": { "confirmations": 1, "minAge": "0s" } });
    env.policy("prod", more).await.unwrap();
    let _routegc = env.routegc().unwrap().start().unwrap();
    env.wait_for_reason("prod", "NoOrphans").await.unwrap();
    env.delete_cluster_node(&node).await.unwrap();
    wait_for("the removal", || async { Ok(env.destinations().await? == [pods(1)]) }).await.unwrap();
}
