//! Failures and wrong lists that must not spread: defects 23 to 25.

use e2e::fault_proxy::{Fault, Matcher, Reply};
use e2e::natgw::{FLOATING_IP_LABEL, TIMEOUT, TestEnv};
use http::{Method, StatusCode};
use serde_json::json;

use super::{FIRST, SECOND, hanging_setup, pair};

const THIRD: &str = "198.51.100.3";

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_23_the_route_leaves_a_primary_whose_floating_ip_is_unassigned() {
    let env = TestEnv::start().await.unwrap();
    let (_natgw, first, second) = pair(&env, "").await;

    env.hetzner.assign_floating_ip(first.floating_ip(), None).unwrap();
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_event("Node", &second.name, "GatewayLostFloatingIP").await.unwrap();
    let event = env.wait_for_event("Node", &first.name, "FloatingIPNotAssigned").await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(first.tasks(), ["setup:198.51.100.1"], "its label is not natgw's to change");
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_24_an_empty_list_of_floating_ips_leaves_the_last_gateway() {
    let env = TestEnv::start().await.unwrap();
    let first = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("floatingIPs: {label: true}").unwrap().start().unwrap();
    env.wait_for_primary(&first).await.unwrap();

    let empty = json!({
        "floating_ips": [],
        "meta": { "pagination": { "page": 1, "per_page": 50, "previous_page": null, "next_page": null,
            "last_page": 1, "total_entries": 0 } },
    });
    let lists = || Matcher::any().method(Method::GET).path("*/floating_ips*");
    let reply = Reply::status(StatusCode::OK).body(empty.to_string());
    let empty_list = env.cloud_proxy.rule(lists(), Fault::Reject(reply));
    let event = env.wait_for_event("Namespace", &env.namespace, "LabelRemovalHeld").await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    // More polls than the confirmation takes.
    env.cloud_proxy.wait_applied(empty_list, 6, TIMEOUT).await.unwrap();
    env.reconciles(&natgw, 1).await.unwrap();
    let labels = env.get(&first.name).await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels.get(FLOATING_IP_LABEL).map(String::as_str), Some(FIRST));
    assert_eq!(env.route(), Some(first.private_ip.to_string()));
    assert_eq!(first.tasks(), ["setup:198.51.100.1"]);

    env.cloud_proxy.remove(empty_list);
    env.wait_for_primary(&first).await.unwrap();
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_25_a_refused_route_write_stops_no_job() {
    let env = TestEnv::start().await.unwrap();
    let first = env.node(Some(FIRST)).await.unwrap();
    let adds = Matcher::any().method(Method::POST).path("*/actions/add_route");
    let refused = env.cloud_proxy.rule(adds, Fault::Reject(Reply::status(StatusCode::FORBIDDEN)));
    let _natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_setup(&first, FIRST).await.unwrap();
    env.cloud_proxy.wait_applied(refused, 1, TIMEOUT).await.unwrap();

    let second = env.node(Some(SECOND)).await.unwrap();
    env.wait_for_setup(&second, SECOND).await.unwrap();
    second.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    env.wait_for_no_annotations(&second).await.unwrap();
    assert_eq!(env.route(), None);
    assert!(env.role_holders().await.unwrap().is_empty(), "the role follows the route");

    env.cloud_proxy.remove(refused);
    env.wait_for_primary(&first).await.unwrap();
}

#[tokio::test]
async fn defect_25_a_node_that_cannot_be_patched_stops_no_other_and_a_refused_role_label_no_job() {
    let env = TestEnv::start().await.unwrap();
    let first = env.node(Some(FIRST)).await.unwrap();
    let role = env.role_label();
    let of_role = move |call: &e2e::fault_proxy::Call| {
        let body = String::from_utf8_lossy(&call.body).into_owned();
        call.method == Method::PATCH && body.contains(&role)
    };
    let forbidden = || Fault::Reject(Reply::status(StatusCode::FORBIDDEN));
    let refused = env.api_proxy.rule(Matcher::any().when(of_role), forbidden());
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.api_proxy.wait_applied(refused, 1, TIMEOUT).await.unwrap();
    let route = Some(first.private_ip.to_string());
    env.wait("the route, which does not wait for the label", || async { Ok(env.route() == route) })
        .await
        .unwrap();

    let second = env.node(None).await.unwrap();
    let path = format!("/api/v1/nodes/{}", second.name);
    let locked = env.api_proxy.rule(Matcher::any().method(Method::PATCH).path(&path), forbidden());
    second.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    env.api_proxy.wait_applied(locked, 1, TIMEOUT).await.unwrap();
    let third = env.node(Some(THIRD)).await.unwrap();
    env.wait_for_setup(&third, THIRD).await.unwrap();
    assert!(second.tasks().is_empty(), "no Job without its annotation");
    // An action is counted after its response, so a moment after it is seen in the cluster.
    for (action, result, count) in
        [("SetRole", "failed", 1.0), ("RecordPending", "failed", 1.0), ("RecordSetup", "done", 2.0)]
    {
        let labels = [("action", action), ("result", result)];
        let counted =
            || async { Ok(natgw.metrics().await?.sum("perimeter_actions_total", &labels) >= Some(count)) };
        env.wait(&format!("{count} times {action} {result}"), counted).await.unwrap();
    }

    env.api_proxy.remove(refused);
    env.api_proxy.remove(locked);
    env.wait_for_primary(&first).await.unwrap();
    env.wait_for_setup(&second, SECOND).await.unwrap();
}

#[tokio::test]
async fn defect_26_a_node_that_cannot_be_patched_fails_no_reconciliation_and_is_counted() {
    let env = TestEnv::start().await.unwrap();
    let first = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&first).await.unwrap();
    let second = env.node(None).await.unwrap();
    let path = format!("/api/v1/nodes/{}", second.name);
    let patches = || Matcher::any().method(Method::PATCH).path(&path);
    let locked = env.api_proxy.rule(patches(), Fault::Reject(Reply::status(StatusCode::FORBIDDEN)));
    second.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    env.api_proxy.wait_applied(locked, 3, TIMEOUT).await.unwrap();
    let nodes = [("scope", "nodes")];
    env.wait_for_metric(&natgw, "natgw_write_failures", &nodes, 1.0).await.unwrap();
    let metrics = natgw.metrics().await.unwrap();
    assert_eq!(metrics.sum("natgw_write_failures", &[("scope", "route")]), Some(0.0));
    assert_eq!(metrics.sum("controller_runtime_reconcile_errors_total", &[]), Some(0.0));

    // A conflict that never ends is a failure as well.
    env.api_proxy.remove(locked);
    let conflicts = env.api_proxy.rule(patches(), Fault::Reject(Reply::conflict()));
    env.api_proxy.wait_applied(conflicts, 6, TIMEOUT).await.unwrap();
    env.wait_for_metric(&natgw, "natgw_write_failures", &nodes, 1.0).await.unwrap();
    let once = env.natgw("").unwrap().args(["--once", "--leader-elect=false"]).start().unwrap();
    assert_eq!(once.wait_exit().await.unwrap().code(), Some(1), "it ends, and tells that it has failed");
    env.api_proxy.remove(conflicts);
    env.wait_for_setup(&second, SECOND).await.unwrap();
    env.wait_for_metric(&natgw, "natgw_write_failures", &nodes, 0.0).await.unwrap();
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_27_a_job_without_its_annotations_does_not_block_its_node() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, gateway, pod, job) = hanging_setup(&env).await;
    super::stop(&natgw).await;
    let annotations = json!({ "natgw.perimeter.dev/node-name": null, "natgw.perimeter.dev/attempt": null });
    env.patch_job(job.metadata.name.as_ref().unwrap(), json!({ "metadata": { "annotations": annotations } }))
        .await
        .unwrap();
    let once = env.natgw("").unwrap().arg("--once").start().unwrap();
    assert_eq!(once.wait_exit().await.unwrap().code(), Some(0));
    gateway.node.finish(&pod, 0).unwrap();
    let _natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_setup(&gateway, FIRST).await.unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    assert_eq!(gateway.tasks(), ["setup:198.51.100.1"], "its result counts");
}

#[tokio::test]
async fn defect_30_a_change_of_the_route_without_a_response_is_repeated_after_five_seconds() {
    let env = TestEnv::start().await.unwrap();
    let (_natgw, first, second) = pair(&env, "").await;
    let sent = || {
        let mut requests = env.cloud_proxy.requests();
        requests.retain(|request| request.method == Method::POST && request.path.ends_with("/add_route"));
        requests
    };
    let before = sent().len();
    let adds = Matcher::any().method(Method::POST).path("*/actions/add_route").times(1);
    env.cloud_proxy.rule(adds, Fault::Blackhole);
    first.node.cordon(true).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    let sent = sent();
    let took = sent[before + 1].at.duration_since(sent[before].at).unwrap();
    // With the response timeout of the client, it took 15 s and more.
    assert!(took < std::time::Duration::from_secs(15), "{took:?}");
}
