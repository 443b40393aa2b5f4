//! The cluster's Nodes as a source of live addresses, and their deletion as a trigger.

use e2e::natgw::wait_for;
use e2e::openstack::Service;
use e2e::routegc::{TestEnv, pods};
use serde_json::json;

/// A policy with `nodesFrom`, one node with a port, and routes of two nodes without a port, via 10.7.2.`number`. All tests share the
/// cluster, so no two tests use the same numbers.
async fn policy_with_nodes(from: serde_json::Value, numbers: [u8; 2]) -> TestEnv {
    let env = TestEnv::start().await.unwrap();
    env.node(1).await.unwrap();
    for number in numbers {
        env.project.add_routes(&[(&pods(number), &format!("10.7.2.{number}"))]).await.unwrap();
    }
    env.grant("routegc-nodes").await.unwrap();
    env.kubeconfig_secret("cloud-config-of-nodes").await.unwrap();
    env.policy("prod", json!({ "nodesFrom": from })).await.unwrap();
    env
}

/// An address of a Node is valid without a port. Of several routes to a Node's pods, the others are orphaned once a port of the Node's
/// server has its address.
#[tokio::test]
async fn an_address_of_a_node_is_valid_and_other_routes_to_its_pods_are_orphaned() {
    let env = policy_with_nodes(json!({ "inCluster": true }), [2, 3]).await;
    let node = env.cluster_node(2, "10.7.2.2", "s-2").await.unwrap();
    env.project.port(Some("10.7.2.22"), Some("s-22")).await.unwrap();
    env.project.add_routes(&[(&pods(2), "10.7.2.22")]).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    let found = async || {
        let candidates = env.status("prod").await.unwrap().candidates;
        candidates.into_iter().map(|one| (one.nexthop, one.reason)).collect::<Vec<_>>()
    };
    let orphan = |nexthop: &str, reason: &str| vec![(nexthop.to_owned(), reason.to_owned())];
    assert_eq!(
        found().await,
        orphan("10.7.2.3", "NoPort"),
        "a port takes precedence over a Node's address list"
    );
    let port = env.project.port(Some("10.7.2.2"), Some("s-2")).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    assert_eq!(found().await, orphan("10.7.2.22", "NodeHasAnother"));
    env.reconcile_times(1).await.unwrap();
    let left = env.project.routes().await.unwrap();
    assert_eq!(left[1], (pods(2), "10.7.2.2".to_owned()));
    assert_eq!(left.len(), 2, "{left:?}");
    let path = format!("/ports/{port}");
    env.openstack.admin().delete(Service::Network, &path).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 2, "a Node's address is valid without a port");
    env.delete_cluster_node(&node).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1)]);
}

/// A recreated route is reported with the Node and the server of its destination.
#[tokio::test]
async fn a_recreated_route_is_reported_with_its_node_and_server() {
    let env = policy_with_nodes(json!({ "inCluster": true }), [32, 33]).await;
    let node = env.cluster_node(33, "10.7.2.99", "s-3").await.unwrap();
    env.reconcile_times(2).await.unwrap();
    env.project.add_routes(&[(&pods(33), "10.7.2.33")]).await.unwrap();
    env.reconcile_times(3).await.unwrap();
    let recreated = env.status("prod").await.unwrap().recreated;
    assert_eq!(recreated.len(), 1, "{recreated:?}");
    assert_eq!(
        (recreated[0].node.as_deref(), recreated[0].server.as_deref()),
        (Some(node.as_str()), Some("s-3"))
    );
    assert!(recreated[0].removed_at <= recreated[0].back_since);
    let events = env.events().await.unwrap();
    let event = events.iter().find(|(reason, _)| reason == "Recreated");
    assert!(
        event.is_some_and(|(_, note)| note.contains(&node) && note.contains("removed once")),
        "{events:?}"
    );
    env.delete_cluster_node(&node).await.unwrap();
}

/// routegc may read the kubeconfig only if the Role names its Secret.
#[tokio::test]
async fn nodes_of_another_cluster_are_read_through_a_secret() {
    let env = policy_with_nodes(json!({ "secretRef": { "name": "cloud-config-of-nodes" } }), [42, 43]).await;
    assert!(env.failing_reconcile().await.unwrap().contains("add its name to the Role routegc-secrets"));
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!NodesUnavailable");
    // The Role names this Secret; it gets one more key.
    env.kubeconfig_secret("cloud-config").await.unwrap();
    let from = json!({ "secretRef": { "name": "cloud-config" } });
    env.patch("prod", json!({ "spec": { "nodesFrom": from } })).await.unwrap();
    let node = env.cluster_node(44, "10.7.2.44", "s-2").await.unwrap();
    env.project.add_routes(&[(&pods(44), "10.7.2.44")]).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(44)]);
    env.delete_cluster_node(&node).await.unwrap();
}

/// The deletion triggers the reconciliation, not the interval of an hour.
#[tokio::test]
async fn a_deleted_node_triggers_a_reconciliation() {
    let env = TestEnv::start().await.unwrap();
    env.node(1).await.unwrap();
    env.project.add_routes(&[(&pods(55), "10.7.2.55")]).await.unwrap();
    env.grant("routegc-nodes").await.unwrap();
    let node = env.cluster_node(55, "10.7.2.55", "s-5").await.unwrap();
    let more =
        json!({ "nodesFrom": { "inCluster": true }, "safety": { "confirmations": 1, "minAge": "0s" } });
    env.policy("prod", more).await.unwrap();
    let _routegc = env.routegc().unwrap().start().unwrap();
    env.wait_for_reason("prod", "NoOrphans").await.unwrap();
    env.delete_cluster_node(&node).await.unwrap();
    wait_for("the removal", || async { Ok(env.destinations().await? == [pods(1)]) }).await.unwrap();
}
