//! Health checks on real nodes with packets: a stopped gateway is left within seconds, and nothing moves without need.

use std::time::{Duration, Instant};

use e2e::cluster::Installation;

use crate::cluster::env::{CLIENT, GATEWAYS, IPS, TestEnv};

/// Times that each disturbance is made: with three kinds, fifty in all.
const ROUNDS: usize = 17;
/// As long as a move by a wrong verdict would take, with a margin.
const OBSERVED: Duration = Duration::from_secs(20);
/// The Nodes' interface in the private network.
const PRIVATE: &str = "ens10";
/// From a cut to the next connection: 4 s of probes and 2 s of Hetzner's actions, on a machine that is three times slower.
const FAILOVER: Duration = Duration::from_secs(18);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full: real nodes"]
async fn health_checks_move_the_route_in_seconds_and_never_without_need() {
    let env = TestEnv::start().await;
    for (name, ip) in GATEWAYS.into_iter().zip(IPS) {
        env.label(name, Some(ip)).await;
    }
    let settings = env.installation.settings().unwrap() + "healthCheck: {enabled: true}\n";
    std::fs::write(env.installation.folder().join("natgw.yaml"), settings).unwrap();
    Installation::give_images(&env.cluster).await.unwrap();
    env.installation.apply(&env.cluster).await.unwrap();
    for (name, ip) in GATEWAYS.into_iter().zip(IPS) {
        env.until_gateway(name, ip).await;
    }
    env.until_client(CLIENT).await;
    env.until_elected().await;
    for round in 1..=ROUNDS {
        println!("round {round} of {ROUNDS}");
        slow_network(&env).await;
        cut_leader(&env).await;
        // Every third one: a Node takes minutes to be Ready again.
        if round % 3 == 1 {
            cut_gateway(&env).await;
        }
        rebooting_gateway(&env).await;
    }
    assert_eq!(env.cloud.hetzner.violations(), []);
}

/// The index of the primary, when it is not on the leader's Node: a cordon moves the route if it is.
async fn primary_without_leader(env: &TestEnv) -> usize {
    let (_, place) = env.leader().await;
    let primary = env.primary();
    if GATEWAYS[primary] != place {
        return primary;
    }
    let since = Instant::now();
    env.kubectl(&format!("cordon {place}")).await;
    env.until_seen(IPS[1 - primary], since, "the route leaves the leader's Node").await;
    env.kubectl(&format!("uncordon {place}")).await;
    1 - primary
}

/// Whether the route stayed at this gateway for a while.
async fn stays(env: &TestEnv, primary: usize, what: &str) {
    let until = Instant::now() + OBSERVED;
    while Instant::now() < until {
        assert_eq!(env.cloud.gateway().as_deref(), Some(GATEWAYS[primary]), "{what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// 20 % loss in both directions on the private side of the leader's Node and, where the kernel has netem, a delay of 300 ms.
async fn slow_network(env: &TestEnv) {
    let primary = primary_without_leader(env).await;
    let (_, place) = env.leader().await;
    let leader = env.machine(&place);
    let lost = "numgen random mod 100 < 20 drop";
    let loss = format!(
        "add table ip slow
         add chain ip slow in {{ type filter hook prerouting priority -300; }}
         add rule ip slow in iifname {PRIVATE} {lost}
         add chain ip slow out {{ type filter hook postrouting priority 300; }}
         add rule ip slow out oifname {PRIVATE} {lost}"
    );
    leader.exec(&["nft", &loss]).await.unwrap();
    let netem = ["tc", "qdisc", "add", "dev", PRIVATE, "root", "netem", "delay", "300ms"];
    let delay = leader.exec(&netem).await;
    if let Err(error) = &delay {
        println!("only with loss, not with a delay: {error:#}");
    }
    stays(env, primary, "a slow network").await;
    if delay.is_ok() {
        leader.exec(&["tc", "qdisc", "del", "dev", PRIVATE, "root"]).await.unwrap();
    }
    leader.exec(&["nft", "delete table ip slow"]).await.unwrap();
}

/// The leader's Node loses its cables: it moves nothing, and neither does the replica that takes over.
async fn cut_leader(env: &TestEnv) {
    let primary = primary_without_leader(env).await;
    let (_, place) = env.leader().await;
    env.machine(&place).cut().await.unwrap();
    stays(env, primary, "the leader is cut off").await;
    env.machine(&place).join().await.unwrap();
    env.until_ready(&place, "True").await;
    stays(env, primary, "the former leader is back").await;
    for (name, ip) in GATEWAYS.into_iter().zip(IPS) {
        env.until_gateway(name, ip).await;
    }
}

async fn cut_gateway(env: &TestEnv) {
    let primary = primary_without_leader(env).await;
    let gateway = env.machine(GATEWAYS[primary]);
    let since = Instant::now();
    gateway.cut().await.unwrap();
    let seen =
        env.until_seen(IPS[1 - primary], since, "cables of the gateway pulled, with health checks").await;
    let took = seen.at.duration_since(since);
    assert!(took < FAILOVER, "{took:?}");
    gateway.join().await.unwrap();
    env.until_ready(GATEWAYS[primary], "True").await;
    stays(env, 1 - primary, "the gateway is back").await;
}

async fn rebooting_gateway(env: &TestEnv) {
    let primary = primary_without_leader(env).await;
    let since = Instant::now();
    env.machine(GATEWAYS[primary]).reboot().await.unwrap();
    env.until_seen(IPS[1 - primary], since, "the gateway rebooted, with health checks").await;
    env.until_gateway(GATEWAYS[primary], IPS[primary]).await;
    env.until_ready(GATEWAYS[primary], "True").await;
    stays(env, 1 - primary, "the rebooted gateway is back").await;
}
