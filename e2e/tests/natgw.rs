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

use e2e::natgw::{FLOATING_IP_LABEL, TestEnv};
use e2e::program::Program;
use natgw::names;
use nix::sys::signal::Signal;

const FIRST: &str = "198.51.100.1";
const SECOND: &str = "198.51.100.2";

/// Ends natgw as a kubelet does: it drains, and exits with 0.
async fn stop(natgw: &Program) {
    natgw.signal(Signal::SIGTERM).unwrap();
    assert_eq!(natgw.wait_exit().await.unwrap().code(), Some(0));
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
