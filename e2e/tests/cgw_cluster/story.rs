//! All steps on one cluster, because each step starts with the result of the previous one.

use e2e::cgw::{GATEWAYS, NAMESPACE, Router};
use e2e::cluster::{PodNetwork, ProxyMode, Target};

use super::env::{A, B, C, FIRST, SECOND, SERVICES, TestEnv};
use super::{lifecycle, paths, removal, steady};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: real nodes"]
async fn bound_pods_leave_and_are_reached_with_their_vip() {
    let routers = [FIRST, SECOND];
    let env = TestEnv::start(&routers, ProxyMode::Nftables, PodNetwork::Bridge).await;
    for (name, pod) in &env.pods {
        env.until_source(name, Target::ECHO, &env.node_source(pod.node).to_string()).await;
    }
    // The capture sees what the fail-over test counts: a packet with the address of a node.
    let nodes = env.wrong_sources(&[A, B, C]);
    assert!(nodes.iter().any(|packets| packets.source == env.node_source("node-3")), "{nodes:?}");
    let before = removal::snapshots(&env).await;

    install_and_reach(&env, &routers).await;
    lifecycle::starting_and_terminating_pods(&env).await;
    steady::nothing_is_written(&env).await;
    lifecycle::no_gateway(&env).await;
    removal::nothing_is_left(&env, &before).await;
}

/// kube-proxy's rules come after the agent's, whatever they are made with.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: real nodes"]
async fn packets_take_the_same_ways_with_kube_proxy_in_mode_iptables() {
    let routers = [FIRST, SECOND];
    let env = TestEnv::start(&routers, ProxyMode::Iptables, PodNetwork::Bridge).await;
    let node = env.cluster.machine("node-1").network().unwrap();
    assert!(node.run("iptables-save", &["-t", "nat"]).unwrap().contains("KUBE-SERVICES"));
    install_and_reach(&env, &routers).await;
}

/// flannel's VXLAN is beside the agent's, and its rules would masquerade what the agent has translated.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: real nodes"]
async fn packets_take_the_same_ways_with_flannel() {
    let routers = [FIRST, SECOND];
    let env = TestEnv::start(&routers, ProxyMode::Iptables, PodNetwork::Flannel).await;
    let node = env.cluster.machine("node-1").network().unwrap();
    assert!(node.run("iptables-save", &["-t", "nat"]).unwrap().contains("FLANNEL-POSTRTG"));
    assert!(node.run("ip", &["link"]).unwrap().contains("flannel.1"));
    install_and_reach(&env, &routers).await;
}

/// Installs, binds, and sends packets by all ways, with one gateway and with two.
async fn install_and_reach(env: &TestEnv, routers: &[Router]) {
    env.install(routers).await;
    env.bind(&SERVICES).await;
    let gateways = together(env).await;
    paths::all(env, gateways).await;
    let gateways = apart(env).await;
    paths::all(env, gateways).await;
    paths::host_network(env).await;
}

/// The gateways of A and B, and of C.
pub type Gateways = [String; 2];

/// Waits for one gateway of all VIPs, moving the second virtual router if it is elsewhere.
async fn together(env: &TestEnv) -> Gateways {
    let first = env.master(&FIRST, |_| true).await;
    if env.master(&SECOND, |_| true).await != first {
        leave(env).await;
    }
    let second = env.master(&SECOND, |node| node == first).await;
    settled(env, [first, second]).await
}

/// Moves the second virtual router to the other gateway.
async fn apart(env: &TestEnv) -> Gateways {
    let first = env.master(&FIRST, |_| true).await;
    leave(env).await;
    let other = GATEWAYS.into_iter().find(|node| *node != first).unwrap();
    let second = env.master(&SECOND, |node| node == other).await;
    settled(env, [first, second]).await
}

/// Ends the keeper on the second virtual router's MASTER. The one that replaces it does not take over.
async fn leave(env: &TestEnv) {
    let master = env.master(&SECOND, |_| true).await;
    let label = format!("-l cgw-controller.perimeter.dev/virtual-router={}", SECOND.vrid);
    let field = format!("--field-selector=spec.nodeName={master}");
    env.kubectl(&format!("-n {NAMESPACE} delete pod {label} {field} --timeout=600s")).await;
    env.master(&SECOND, |node| node != master).await;
    env.installation.rolled_out(&env.cluster).await.unwrap();
}

async fn settled(env: &TestEnv, gateways: Gateways) -> Gateways {
    assert_eq!([env.settled(&FIRST).await, env.settled(&SECOND).await], gateways);
    let [first, second] = &gateways;
    println!("the gateway of {A} and {B} is {first}, that of {C} is {second}");
    gateways
}
