//! The cases that the seed leaves open, as they were ruled, on the real API server.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use e2e::hetzner::NewServer;
use e2e::hollow_node::HollowNode;
use e2e::natgw::{FLOATING_IP_LABEL, TestEnv, acts};

use super::{FIRST, SECOND, pair, stop};

const FOREIGN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);

/// An environment with a default route to a server that is no Node.
async fn with_foreign_route() -> TestEnv {
    let env = TestEnv::start().await.unwrap();
    env.hetzner.add_server(NewServer::new("foreign").attached("lan", FOREIGN)).unwrap();
    env.hetzner.set_route(env.network, "0.0.0.0/0".parse().unwrap(), Some(FOREIGN)).unwrap();
    env
}

#[tokio::test]
async fn ruling_the_route_stays_where_it_works_after_an_uncordon_and_after_a_restart() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, first, second) = pair(&env, "").await;
    first.node.cordon(true).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    first.node.cordon(false).await.unwrap();
    env.wait_for_metric(&natgw, "natgw_nodes", &[("state", "candidate")], 2.0).await.unwrap();
    env.reconciles(&natgw, 2).await.unwrap();

    stop(&natgw).await;
    let writes = env.accepted_writes().len();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_metric(&natgw, "natgw_nodes", &[("state", "candidate")], 2.0).await.unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    assert_eq!(env.accepted_writes().len(), writes);
    env.wait_for_primary(&second).await.unwrap();
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn ruling_without_a_candidate_the_route_stays_and_a_warning_is_reported() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("onNoCandidate: remove").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    gateway.node.cordon(true).await.unwrap();
    env.wait("no role label", || async { Ok(env.role_holders().await?.is_empty()) }).await.unwrap();
    let event = env.wait_for_event("Namespace", &env.namespace, "NoCandidate").await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    env.reconciles(&natgw, 2).await.unwrap();
    assert_eq!(
        env.route(),
        Some(gateway.private_ip.to_string()),
        "also with onNoCandidate: remove: an eligible Node still translates"
    );
    env.wait_for_metric(&natgw, "natgw_primary", &[], 0.0).await.unwrap();
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn ruling_without_a_candidate_keep_leaves_a_route_to_no_gateway() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("onNoCandidate: keep").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    gateway.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    env.wait_for_no_annotations(&gateway).await.unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    assert_eq!(env.route(), Some(gateway.private_ip.to_string()));
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn ruling_without_a_candidate_remove_deletes_a_route_of_natgw() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let _natgw = env.natgw("onNoCandidate: remove").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    gateway.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    env.wait_for_no_annotations(&gateway).await.unwrap();
    assert_eq!(env.route(), None);
    assert!(env.role_holders().await.unwrap().is_empty());
    let order = env.writes_in_order();
    let removed = order.iter().position(|write| write.path.ends_with("delete_route")).unwrap();
    let teardown = order.iter().rposition(|write| write.path.ends_with("/jobs")).unwrap();
    assert!(removed < teardown, "the traffic goes before the rules do");
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule, the sweep's undisturbed run has the API server"]
async fn ruling_foreign_route_is_adopted() {
    let env = with_foreign_route().await;
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let _natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    let event = env.wait_for_event("Node", &gateway.name, "ForeignRoute").await.unwrap();
    assert!(event.note.unwrap().contains("foreign"));
}

#[tokio::test]
async fn ruling_foreign_route_is_kept_without_adoption() {
    let env = with_foreign_route().await;
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("adoptForeignRoute: false").unwrap().start().unwrap();
    env.wait_for_setup(&gateway, FIRST).await.unwrap();
    env.wait_for_event("Namespace", &env.namespace, "ForeignRouteKept").await.unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    // A candidate exists, and the foreign route is kept: no warning.
    env.wait_for_metric(&natgw, "natgw_nodes", &[("state", "candidate")], 1.0).await.unwrap();
    for (name, value) in [("natgw_primary", 0.0), ("natgw_route_in_place", 0.0)] {
        env.wait_for_metric(&natgw, name, &[], value).await.unwrap();
    }
    assert_eq!(env.route(), Some(FOREIGN.to_string()));
    assert!(env.role_holders().await.unwrap().is_empty());
    assert!(env.hetzner.writes().is_empty());
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn ruling_order_of_a_change_is_route_then_new_role_then_old_role() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, first, second) = pair(&env, "").await;
    env.reconciles(&natgw, 1).await.unwrap();
    let before = env.accepted_writes().len();
    // The primary loses its label: its traffic has to leave before its rules do.
    first.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_no_annotations(&first).await.unwrap();

    let writes = env.accepted_writes().split_off(before);
    let words: Vec<String> = writes
        .iter()
        .map(|write| match write.path.rsplit('/').next().unwrap() {
            node if node == first.name => format!("first {}", write.json().unwrap()["metadata"]["labels"]),
            node if node == second.name => format!("second {}", write.json().unwrap()["metadata"]["labels"]),
            other => format!("{} {other}", write.method),
        })
        .collect();
    let role = env.role_label();
    assert_eq!(
        words[..4],
        [
            "POST delete_route".to_owned(),
            "POST add_route".to_owned(),
            format!("second {{\"{role}\":\"\"}}"),
            format!("first {{\"{role}\":null}}"),
        ]
    );
    assert!(words[4..].contains(&"POST jobs".to_owned()), "{words:?}");
    // The role follows the present route, not the requested one.
    let route = env.hetzner.route_history(env.network).pop().unwrap();
    assert_eq!(route.gateway, Some(second.private_ip));
    assert!(SystemTime::now() - route.at.elapsed() < writes[2].at);
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn ruling_of_nodes_with_the_same_ip_the_one_that_the_cloud_names_is_elected() {
    let env = TestEnv::start().await.unwrap();
    let older = env.node(None).await.unwrap();
    let owner = env.node(Some(FIRST)).await.unwrap();
    older.node.label(FLOATING_IP_LABEL, Some(FIRST)).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_setup(&older, FIRST).await.unwrap();
    env.wait_for_primary(&owner).await.unwrap();
    for gateway in [&older, &owner] {
        env.wait_for_event("Node", &gateway.name, "DuplicateFloatingIP").await.unwrap();
    }
    env.wait_for_event("Node", &older.name, "FloatingIPNotAssigned").await.unwrap();
    let moved = acts(&natgw).iter().filter(|act| act.contains("0.0.0.0/0")).count();
    assert_eq!(moved, 1, "it never was elsewhere");
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn ruling_nodes_that_cannot_be_a_gateway_are_reported_and_left_alone() {
    let env = TestEnv::start().await.unwrap();
    let mut nodes = Vec::new();
    for (label, reason) in [("no-address", "InvalidFloatingIP"), ("2001-db8--1", "InvalidFloatingIP")] {
        let node = env.node(None).await.unwrap();
        node.node.label(FLOATING_IP_LABEL, Some(label)).await.unwrap();
        nodes.push((node, reason));
    }
    let robot = env.node_as(Some(FIRST), |name, _| HollowNode::builder(name).provider_id("hrobot://321"));
    nodes.push((robot.await.unwrap(), "UnsupportedServer"));
    let foreign = env.node_as(Some(SECOND), |name, _| HollowNode::builder(name).provider_id("aws:///i-1"));
    nodes.push((foreign.await.unwrap(), "ServerNotFound"));
    let detached = env.node(Some("198.51.100.3")).await.unwrap();
    env.hetzner.detach_server(detached.server, env.network).unwrap();
    nodes.push((detached, "ServerNotInNetwork"));

    let natgw = env.natgw("").unwrap().start().unwrap();
    for (node, reason) in &nodes {
        let event = env.wait_for_event("Node", &node.name, reason).await.unwrap();
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
    env.reconciles(&natgw, 2).await.unwrap();
    assert_eq!(env.writes.count(), 0);
    // One problem for each, and one that there is no candidate.
    assert_eq!(natgw.metrics().await.unwrap().sum("natgw_problems", &[]), Some(6.0));
}

#[tokio::test]
async fn ruling_node_without_provider_id_is_found_by_its_servers_name() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node_as(Some(FIRST), |name, _| HollowNode::builder(name)).await.unwrap();
    let _natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn ruling_a_server_that_leaves_the_network_loses_the_route() {
    let env = TestEnv::start().await.unwrap();
    let (_natgw, first, second) = pair(&env, "").await;
    env.hetzner.detach_server(first.server, env.network).unwrap();
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_event("Node", &first.name, "ServerNotInNetwork").await.unwrap();
    env.wait_for_event("Node", &second.name, "GatewayGone").await.unwrap();
}
