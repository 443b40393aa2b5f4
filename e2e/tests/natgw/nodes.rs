//! Nodes that come, go, restart or change behind natgw's back: defects 7, 10, 12, 13, 14, 16, 18.

use e2e::control_plane::ControlPlane;
use e2e::fault_proxy::{Fault, Matcher};
use e2e::hetzner::NewServer;
use e2e::hollow_node::HollowNode;
use e2e::natgw::{FLOATING_IP_LABEL, TIMEOUT, TestEnv, task_of};
use kube::ResourceExt;

use super::{FIRST, SECOND, pair};

#[tokio::test]
#[ignore = "full: the plan's tests have the rule, the sweep's undisturbed run has the API server"]
async fn defect_07_a_reboot_moves_the_route_and_the_setup_runs_again() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, first, second) = pair(&env, "").await;

    // So quick that Kubernetes does not report it as NotReady.
    first.node.reboot().await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_event("Node", &second.name, "GatewayNotEligible").await.unwrap();
    env.wait_for_setup(&first, FIRST).await.unwrap();
    assert_eq!(first.tasks(), ["setup:198.51.100.1", "setup:198.51.100.1"]);
    env.wait_for_event("Node", &first.name, "NodeRebooted").await.unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    let switches = natgw.metrics().await.unwrap().sum("natgw_route_switches_total", &[]);
    assert_eq!(switches, Some(2.0), "it does not go back");
}

#[tokio::test]
#[ignore = "full: the Job's tests have the rule"]
async fn defect_10_names_of_jobs_and_labels_hold_a_node_name_of_any_length() {
    let env = TestEnv::start().await.unwrap();
    let long = "n".repeat(60);
    let gateway = env
        .node_as(Some(FIRST), |name, server| {
            HollowNode::builder(format!("{name}.{long}.{long}.{long}"))
                .provider_id(format!("hcloud://{server}"))
                .labels([("kubernetes.io/hostname", "short")])
        })
        .await
        .unwrap();
    assert!(gateway.name.len() > 190);
    let _natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    let job = env.wait_for_job(&gateway, "setup:198.51.100.1").await.unwrap();
    assert!(job.name_any().len() <= 63 && !job.name_any().contains('.'), "{}", job.name_any());
}

#[tokio::test]
async fn defect_12_node_that_is_deleted_while_its_job_runs_blocks_nothing() {
    let env = TestEnv::start().await.unwrap();
    let doomed = env.node(Some(FIRST)).await.unwrap();
    doomed.hang("setup", true);
    let natgw = env.natgw("").unwrap().start().unwrap();
    doomed.wait_for_pod("setup:198.51.100.1").await.unwrap();
    doomed.node.remove().await.unwrap();
    let other = env.node(Some(SECOND)).await.unwrap();
    env.wait_for_primary(&other).await.unwrap();
    env.wait("only the other Node's Job", || async {
        Ok(env.jobs().await?.iter().map(task_of).collect::<Vec<_>>() == ["setup:198.51.100.2"])
    })
    .await
    .unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    let errors = natgw.metrics().await.unwrap().sum("controller_runtime_reconcile_errors_total", &[]);
    assert_eq!(errors, Some(0.0));
}

#[tokio::test]
async fn defect_13_a_node_without_any_annotation_is_annotated() {
    // The control plane's own ttl-controller annotates every Node, and would hide it.
    let control_plane =
        ControlPlane::builder().controller_flag("--controllers=*,-ttl-controller").start().await.unwrap();
    let env = TestEnv::on(control_plane).await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    assert_eq!(env.get(&gateway.name).await.unwrap().metadata.annotations, None);
    let _natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    gateway.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    env.wait_for_no_annotations(&gateway).await.unwrap();
    assert_eq!(env.get(&gateway.name).await.unwrap().metadata.annotations, None);
}

#[tokio::test]
async fn defect_14_a_decision_on_an_outdated_node_is_refused_by_the_api_server() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    // Without the server in the cloud, natgw writes nothing.
    let address = gateway.private_ip;
    env.hetzner.delete_server(gateway.server).unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_event("Node", &gateway.name, "ServerNotFound").await.unwrap();

    let held = env.api_proxy.rule(Matcher::watches().resource("nodes"), Fault::hold_events());
    gateway.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    env.hetzner
        .add_server(NewServer::new(&gateway.name).id(gateway.server).attached("lan", address))
        .unwrap();
    let requests = env
        .api_proxy
        .wait_for(
            |requests| requests.iter().any(|one| one.method == "PATCH" && one.status == Some(409)),
            TIMEOUT,
        )
        .await
        .unwrap();
    let refused = requests.iter().find(|one| one.status == Some(409)).unwrap();
    let body = refused.json().unwrap();
    assert_eq!(body["metadata"]["annotations"]["natgw.perimeter.dev/pending"], "setup:198.51.100.1");
    assert!(env.annotations_of(&gateway).await.unwrap().is_empty());
    assert!(env.jobs().await.unwrap().is_empty());

    env.api_proxy.remove(held);
    env.wait_for_setup(&gateway, SECOND).await.unwrap();
    assert_eq!(gateway.tasks(), ["setup:198.51.100.2"]);
    let errors = natgw.metrics().await.unwrap().sum("controller_runtime_reconcile_errors_total", &[]);
    assert_eq!(errors, Some(0.0), "a cache that lags behind is no error");
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_16_a_node_that_leaves_the_selector_is_torn_down() {
    let env = TestEnv::start().await.unwrap();
    let (_natgw, first, second) = pair(&env, "").await;
    first.node.label("env", None).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_no_annotations(&first).await.unwrap();
    assert_eq!(first.tasks(), ["setup:198.51.100.1", "teardown:198.51.100.1"]);
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_18_label_of_an_ip_that_is_assigned_elsewhere_elects_no_node() {
    let env = TestEnv::start().await.unwrap();
    let stale = env.node(Some(FIRST)).await.unwrap();
    let other = env.hetzner.add_server(NewServer::new("other").id(4711)).unwrap();
    env.hetzner.assign_floating_ip(stale.floating_ip(), Some(other)).unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_setup(&stale, FIRST).await.unwrap();
    env.wait_for_event("Node", &stale.name, "FloatingIPNotAssigned").await.unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    assert_eq!(env.route(), None);
    assert!(env.role_holders().await.unwrap().is_empty());

    let honest = env.node(Some(SECOND)).await.unwrap();
    env.wait_for_primary(&honest).await.unwrap();
}
