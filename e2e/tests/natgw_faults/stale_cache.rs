//! natgw believes what is no longer so: events of the watch come late, or never.

use e2e::fault_proxy::{Fault, Matcher};
use e2e::natgw::FLOATING_IP_LABEL;
use e2e::natgw::TIMEOUT;
use natgw::names;

use crate::natgw_faults::scene::Scene;
use crate::natgw_faults::story::{FIRST, SECOND};

fn nodes() -> Matcher {
    Matcher::watches().resource("nodes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_label_that_flaps_behind_held_events_is_never_recorded_wrongly() {
    let scene = Scene::start().await;
    let first = scene.gateway(FIRST).await;
    scene.env.wait_for_primary(&first).await.unwrap();

    // The Job of the second runs while its Node is cut out of natgw's sight, and its label goes, comes and changes.
    let second = scene.env.node(None).await.unwrap();
    scene.witness.observe(&second);
    let held = scene.env.api_proxy.rule(
        nodes(),
        // From the marker on: natgw has begun, and sees nothing more of Nodes.
        Fault::Event(
            e2e::fault_proxy::Fate::Hold,
            e2e::fault_proxy::EventFilter::when(|event| {
                event["object"]["metadata"]["annotations"][names::PENDING_ANNOTATION].is_string()
            }),
        ),
    );
    second.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    scene.env.api_proxy.wait_applied(held, 1, TIMEOUT).await.unwrap();
    for label in [None, Some(SECOND), None] {
        second.node.label(FLOATING_IP_LABEL, label).await.unwrap();
    }
    // What natgw decides on its old picture, the API server refuses: every patch carries the version it was made on.
    let refused = |call: &e2e::fault_proxy::Recorded| {
        call.upstream_status == Some(409) && call.kube().is_some_and(|request| request.resource == "nodes")
    };
    scene.env.api_proxy.wait_for(|calls| calls.iter().any(refused), TIMEOUT).await.unwrap();
    assert_eq!(scene.env.annotation(&second.name, names::SETUP_ANNOTATION).await.unwrap(), None);
    scene.env.api_proxy.remove(held);

    // In the light again: what was begun is taken back, since nobody wants it any more.
    scene.wait_for_setup(&second, None).await;
    scene
        .env
        .wait("the teardown of what was begun", || async { Ok(scene.witness.kernel(&second).is_none()) })
        .await
        .unwrap();
    scene.rest(&first).await;
    scene.env.wait_for_primary(&first).await.unwrap();
    scene.witness.assert_unbroken(&scene.env, "held events");
    println!(
        "held events: the stale patch was refused; Jobs on the second: {:?}",
        scene.witness.runs(&second)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_event_is_made_good_by_the_next_list() {
    let scene = Scene::start().await;
    let first = scene.gateway(FIRST).await;
    scene.env.wait_for_primary(&first).await.unwrap();
    let second = scene.gateway(SECOND).await;
    scene.wait_for_setup(&second, Some(SECOND)).await;
    let dropped = scene.env.api_proxy.rule(
        nodes(),
        Fault::drop_events(|event| event["object"]["spec"]["unschedulable"].as_bool() == Some(true)),
    );
    first.node.cordon(true).await.unwrap();
    scene.env.api_proxy.wait_applied(dropped, 1, TIMEOUT).await.unwrap();
    scene.walks_on(&second, 2).await;
    assert_eq!(scene.env.route(), Some(first.private_ip.to_string()), "nobody told natgw");
    scene.env.api_proxy.remove(dropped);
    assert!(scene.env.api_proxy.expire_watches(&nodes()) > 0);
    scene.env.wait_for_primary(&second).await.unwrap();
    scene.witness.assert_unbroken(&scene.env, "dropped events");
    println!("dropped events: the cordon was seen after the watch had expired");
}
