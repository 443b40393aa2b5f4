//! A server is away for a while, or is an old one.

use std::time::Duration;

use e2e::control_plane::{ControlPlane, Part};
use e2e::fault_proxy::{Answer, Fault, Matcher};
use e2e::natgw::{FLOATING_IP_LABEL, TestEnv};

use crate::natgw_faults::scene::Scene;
use crate::natgw_faults::story::{self, FIRST, SECOND};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_api_server_is_followed_again() {
    // While the API server is away nobody hears the Nodes: that shall not make them NotReady on a busy machine.
    let control_plane = ControlPlane::builder().grace(Duration::from_secs(120)).start().await.unwrap();
    let env = TestEnv::on(control_plane).await.unwrap();
    let scene = Scene::with(env).await;
    let first = scene.gateway(FIRST).await;
    scene.env.wait_for_primary(&first).await.unwrap();
    let second = scene.gateway(SECOND).await;
    scene.wait_for_setup(&second, Some(SECOND)).await;
    let routes = scene.env.hetzner.route_history(scene.env.network).len();

    scene.env.control_plane.kill(Part::ApiServer).unwrap();
    scene
        .env
        .wait("natgw to report that a watch fails", || async {
            Ok(!scene.program().output().matching(|line| line.contains("watch failed")).is_empty())
        })
        .await
        .unwrap();
    let ready = scene.program().get("/readyz").await.unwrap().0;
    assert!(ready.is_success(), "a cache that was synced once stays ready: {ready}");
    assert_eq!(scene.env.hetzner.route_history(scene.env.network).len(), routes, "no news is no reason");
    scene.env.control_plane.restart(Part::ApiServer).await.unwrap();
    scene
        .env
        .wait("natgw to be ready", || async { Ok(scene.program().get("/readyz").await?.0.is_success()) })
        .await
        .unwrap();
    assert_eq!(scene.env.hetzner.route_history(scene.env.network).len(), routes, "nothing has changed");
    first.node.cordon(true).await.unwrap();
    scene.env.wait_for_primary(&second).await.unwrap();
    assert_eq!(scene.program().exited().unwrap(), None, "the same process all the time");
    scene.witness.assert_unbroken(&scene.env, "API server restarted");
    println!("API server killed and started again: red, green, and the next cordon moved the route");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_streamed_lists_is_listed_in_pages() {
    let control_plane =
        ControlPlane::builder().api_server_flag("--feature-gates=WatchList=false").start().await.unwrap();
    let scene = Scene::with(TestEnv::on(control_plane).await.unwrap()).await;
    let program = scene.program();
    let end = story::play(&scene, "without WatchList").await;
    let fallback = program.output().matching(|line| line.contains("does not stream lists"));
    assert_eq!(fallback.len(), 2, "said once for each cache: {fallback:?}");

    let undisturbed = Scene::start().await;
    assert_eq!(end, story::play(&undisturbed, "with WatchList").await);
    println!("without WatchList: pages instead, same end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_cannot_be_reached_delays_the_move_and_nothing_else() {
    let scene = Scene::start().await;
    let first = scene.gateway(FIRST).await;
    scene.env.wait_for_primary(&first).await.unwrap();
    let second = scene.gateway(SECOND).await;
    scene.wait_for_setup(&second, Some(SECOND)).await;
    scene.rest(&second).await;

    scene.env.cloud_proxy.refuse_all(true);
    let (_, failed) = scene.walks().await.unwrap();
    first.node.cordon(true).await.unwrap();
    let env = &scene.env;
    env.wait("two walks that fail", || async { Ok(scene.walks().await?.1 >= failed + 2.0) }).await.unwrap();
    env.wait_for_event("Namespace", &env.namespace, "ObserveFailed").await.unwrap();
    assert_eq!(
        env.role_holders().await.unwrap(),
        vec![first.name.clone()],
        "nothing is written on half a picture"
    );
    let writes = env.writes.count();
    env.cloud_proxy.refuse_all(false);
    env.wait_for_primary(&second).await.unwrap();
    assert!(env.writes.count() > writes);
    scene.witness.assert_unbroken(env, "cloud unreachable");
    println!("cloud unreachable: said so, changed nothing, and moved the route when it was back");
}

/// As an admission webhook whose pods are gone: each request waits for its deadline, and is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_refused_slowly_hold_up_no_failover_and_each_node_has_its_turn() {
    const NODES: usize = 12;
    let scene = Scene::start().await;
    let env = &scene.env;
    let first = scene.gateway(FIRST).await;
    env.wait_for_primary(&first).await.unwrap();
    let second = scene.gateway(SECOND).await;
    scene.wait_for_setup(&second, Some(SECOND)).await;
    scene.rest(&second).await;

    let jobs = || Matcher::any().verb("create").resource("jobs");
    env.api_proxy.rule(jobs(), Fault::DelayRequest(Duration::from_secs(2)));
    let refused = env.api_proxy.rule(jobs(), Fault::Reject(Answer::internal()));
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(env.node(None).await.unwrap());
    }
    for (number, node) in nodes.iter().enumerate() {
        node.node.label(FLOATING_IP_LABEL, Some(&format!("198.51.100.{}", 100 + number))).await.unwrap();
    }
    env.wait("the first refusal", || async { Ok(env.api_proxy.applied(refused) > 0) }).await.unwrap();
    let before = env.api_proxy.applied(refused);
    first.node.cordon(true).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    let meanwhile = env.api_proxy.applied(refused) - before;
    assert!(meanwhile < 2 * NODES as u64 / 3, "the route waited for {meanwhile} Jobs");
    for node in &nodes {
        let refused = || async {
            let events = env.events_about("Node", &node.name).await?;
            Ok(events.iter().any(|event| event.action.as_deref() == Some("CreateJob")))
        };
        env.wait(&format!("the turn of {}", node.name), refused).await.unwrap();
    }
    scene.witness.assert_unbroken(env, "Jobs refused slowly");
    println!(
        "Jobs of {NODES} Nodes refused slowly: {meanwhile} more before the route moved, and each had its turn"
    );
}

/// As an admission webhook on Nodes whose pods are gone, and that nobody has to answer: each write takes its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_marked_slowly_have_their_jobs_made_all_the_same() {
    let scene = Scene::start().await;
    let env = &scene.env;
    let first = scene.gateway(FIRST).await;
    env.wait_for_primary(&first).await.unwrap();
    let marks = Matcher::any().verb("patch").resource("nodes");
    env.api_proxy.rule(marks, Fault::DelayRequest(Duration::from_secs(6)));
    let mut nodes = Vec::new();
    for number in 0..3 {
        let node = env.node(None).await.unwrap();
        node.node.label(FLOATING_IP_LABEL, Some(&format!("198.51.100.{}", 100 + number))).await.unwrap();
        nodes.push(node);
    }
    for node in &nodes {
        let made = || async {
            let events = env.events_about("Node", &node.name).await?;
            Ok(events.iter().any(|event| event.action.as_deref() == Some("CreateJob")))
        };
        env.wait(&format!("the Job of {}", node.name), made).await.unwrap();
    }
    println!("Nodes marked slowly: each got its Job");
}
