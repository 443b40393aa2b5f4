//! natgw on a real control plane: the seed's story from a label to a route, and every way on from there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use e2e::natgw::{FLOATING_IP_LABEL, World};
use natgw::names;

#[tokio::test]
async fn a_label_becomes_a_gateway_and_a_cordon_moves_the_route() {
    let world = World::start().await.unwrap();
    let first = world.node(Some("198.51.100.1")).await.unwrap();
    let natgw = world.natgw("").unwrap().start().unwrap();
    world.wait_for_primary(&first).await.unwrap();
    let annotation = world.annotation(&first.name, names::SETUP_ANNOTATION).await.unwrap();
    assert_eq!(annotation.as_deref(), Some("198.51.100.1"));
    assert_eq!(world.annotation(&first.name, names::PENDING_ANNOTATION).await.unwrap(), None);

    let second = world.node(Some("198.51.100.2")).await.unwrap();
    first.node.cordon(true).await.unwrap();
    world.wait_for_primary(&second).await.unwrap();
    world.wait_for_event("Node", &second.name, "GatewayCordoned").await.unwrap();

    first.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    world
        .wait("the teardown", || async {
            Ok(world.annotation(&first.name, names::SETUP_ANNOTATION).await?.is_none())
        })
        .await
        .unwrap();
    assert_eq!(natgw.metrics().await.unwrap().sum("natgw_route_switches_total", &[]), Some(2.0));
}
