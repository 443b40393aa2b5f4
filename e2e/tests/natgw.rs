//! natgw on a real control plane: from a label to a route, and every state after it.
//!
//! docs/natgw/defects.md lists the numbered defects and the rulings.

mod commands;
mod features;
mod health;
mod input;
mod isolation;
mod jobs;
mod nodes;
mod rulings;

use e2e::natgw::{FLOATING_IP_LABEL, Gateway, TestEnv};
use e2e::program::Program;
use k8s_openapi::api::batch::v1::Job;
use natgw::names;
use nix::sys::signal::Signal;

const FIRST: &str = "198.51.100.1";
const SECOND: &str = "198.51.100.2";

/// Ends natgw as a kubelet does: it drains, and exits with 0.
async fn stop(natgw: &Program) {
    natgw.signal(Signal::SIGTERM).unwrap();
    assert_eq!(natgw.wait_exit().await.unwrap().code(), Some(0));
}

/// Starts natgw with these settings, and returns it with its primary and another gateway that is set up.
async fn pair(env: &TestEnv, settings: &str) -> (Program, Gateway, Gateway) {
    let first = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw(settings).unwrap().start().unwrap();
    env.wait_for_primary(&first).await.unwrap();
    let second = env.node(Some(SECOND)).await.unwrap();
    env.wait_for_setup(&second, SECOND).await.unwrap();
    (natgw, first, second)
}

/// Starts natgw, and returns it with a gateway whose setup hangs, the setup's Pod and its Job.
async fn hanging_setup(env: &TestEnv) -> (Program, Gateway, String, Job) {
    let gateway = env.node(Some(FIRST)).await.unwrap();
    gateway.hang("setup", true);
    let natgw = env.natgw("").unwrap().start().unwrap();
    let pod = gateway.wait_for_pod("setup:198.51.100.1").await.unwrap();
    let job = env.wait_for_job(&gateway, "setup:198.51.100.1").await.unwrap();
    (natgw, gateway, pod, job)
}

#[tokio::test]
async fn a_label_becomes_a_gateway_and_a_cordon_moves_the_route() {
    let env = TestEnv::start().await.unwrap();
    let first = env.node(Some("198.51.100.1")).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&first).await.unwrap();
    let annotation = env.annotation(&first.name, names::SETUP_ANNOTATION).await.unwrap();
    assert_eq!(annotation.as_deref(), Some("198.51.100.1"));
    assert_eq!(env.annotation(&first.name, names::PENDING_ANNOTATION).await.unwrap(), None);

    let second = env.node(Some("198.51.100.2")).await.unwrap();
    first.node.cordon(true).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_event("Node", &second.name, "GatewayCordoned").await.unwrap();

    first.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    env.wait("the teardown", || async {
        Ok(env.annotation(&first.name, names::SETUP_ANNOTATION).await?.is_none())
    })
    .await
    .unwrap();
    assert_eq!(natgw.metrics().await.unwrap().sum("natgw_route_switches_total", &[]), Some(2.0));
}
