//! All steps on one cluster, because each step starts with the result of the previous one.

use std::time::Instant;

use e2e::cluster::Installation;
use e2e::netns::Snapshot;
use e2e::program::Program;

use crate::cluster::env::{CLIENT, GATEWAYS, IPS, LATER, TestEnv};
use crate::cluster::traces::{number_of, traces};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full: real nodes"]
async fn the_route_follows_the_primary_and_packets_leave_through_it() {
    let env = TestEnv::start().await;
    install(&env).await;
    cordon(&env).await;
    kill_the_leader(&env).await;
    cut(&env).await;
    reboot(&env).await;
    another_floating_ip(&env).await;
    leave(&env).await;
    assert_eq!(env.cloud.hetzner.violations(), []);

    let (number, since) = (number_of(&env.cluster.range()), Instant::now());
    drop(env);
    println!("the cluster was gone after {:.1} s", since.elapsed().as_secs_f64());
    assert_eq!(traces(number), Vec::<String>::new());
}

/// Two labels and one `kubectl apply -k`: the client node and a pod on it leave by a floating IP.
async fn install(env: &TestEnv) {
    for (name, ip) in GATEWAYS.into_iter().zip(IPS) {
        env.label(name, Some(ip)).await;
    }
    assert_eq!(env.prober.last().unwrap().seen, None, "there is a way out before there is a gateway");
    let begun = Instant::now();
    Installation::give_images(&env.cluster).await.unwrap();
    println!("images built and given to the nodes in {:.1} s", begun.elapsed().as_secs_f64());
    let applied = Instant::now();
    env.installation.apply(&env.cluster).await.unwrap();
    println!("two replicas rolled out after {:.1} s", applied.elapsed().as_secs_f64());
    for (name, ip) in GATEWAYS.into_iter().zip(IPS) {
        env.until_gateway(name, ip).await;
    }
    env.until_client(CLIENT).await;
    env.until_elected().await;
    let primary = env.primary();
    env.until_seen(IPS[primary], applied, "kubectl apply -k").await;
    env.until_role(GATEWAYS[primary]).await;
    assert_eq!(env.pod_seen_as().await, IPS[primary].to_string());
    let jobs = env.kubectl("-n natgw get jobs -o jsonpath={.items[*].status.succeeded}").await;
    assert_eq!(jobs, "1 1 1", "two gateways and a client were set up by Jobs on their Nodes");
}

/// The next connection leaves through the other gateway. The route does not move back without need.
async fn cordon(env: &TestEnv) {
    let (primary, since) = (env.primary(), Instant::now());
    env.kubectl(&format!("cordon {}", GATEWAYS[primary])).await;
    env.until_seen(IPS[1 - primary], since, "cordon").await;
    env.until_role(GATEWAYS[1 - primary]).await;
    assert_eq!(env.pod_seen_as().await, IPS[1 - primary].to_string());
    env.kubectl(&format!("uncordon {}", GATEWAYS[primary])).await;
    let since = Instant::now();
    env.kubectl(&format!("cordon {}", GATEWAYS[1 - primary])).await;
    env.until_seen(IPS[primary], since, "cordon of the other").await;
    env.kubectl(&format!("uncordon {}", GATEWAYS[1 - primary])).await;
}

/// Traffic continues without natgw. The replica that takes over moves the route.
async fn kill_the_leader(env: &TestEnv) {
    let (leader, _) = env.leader().await;
    let (primary, since) = (env.primary(), Instant::now());
    env.kubectl(&format!("-n natgw delete pod {leader} --force --grace-period=0")).await;
    let (next, _) = Installation::another_leader(&env.cluster, Some(&leader)).await.unwrap();
    let took = since.elapsed().as_secs_f64();
    let heard = env.prober.probes().into_iter().filter(|probe| probe.at >= since);
    let lost = heard.clone().filter(|probe| probe.seen != Some(IPS[primary])).count();
    println!(
        "{leader} killed: {next} leads after {took:.1} s; {lost} of {} questions lost meanwhile",
        heard.count()
    );
    let since = Instant::now();
    env.kubectl(&format!("cordon {}", GATEWAYS[primary])).await;
    env.until_seen(IPS[1 - primary], since, "cordon, under the new leader").await;
    env.kubectl(&format!("uncordon {}", GATEWAYS[primary])).await;
    env.kubectl("-n natgw rollout status deployment/natgw --timeout=600s").await;
}

/// The primary is disconnected: natgw moves the route when Kubernetes reports the Node as not Ready.
async fn cut(env: &TestEnv) {
    let primary = env.primary();
    let gateway = env.machine(GATEWAYS[primary]);
    let (_, place) = env.leader().await;
    let since = Instant::now();
    gateway.cut().await.unwrap();
    env.until_ready(GATEWAYS[primary], "Unknown").await;
    let noticed = since.elapsed().as_secs_f64();
    println!("{} is cut while natgw leads on {place}; NotReady after {noticed:.1} s", gateway.name());
    env.until_seen(IPS[1 - primary], since, "cables of the gateway pulled").await;
    gateway.join().await.unwrap();
    env.until_ready(GATEWAYS[primary], "True").await;
    env.until_role(GATEWAYS[1 - primary]).await;
}

/// A rebooted Node is not a gateway until its setup has run again. Meanwhile packets leave through the other one.
async fn reboot(env: &TestEnv) {
    let primary = env.primary();
    let (_, place) = env.leader().await;
    println!("{} is reset while natgw leads on {place}", GATEWAYS[primary]);
    let since = Instant::now();
    env.machine(GATEWAYS[primary]).reboot().await.unwrap();
    env.until_seen(IPS[1 - primary], since, "the gateway rebooted").await;
    env.until_gateway(GATEWAYS[primary], IPS[primary]).await;
    println!("it is a gateway again {:.1} s after the reset", since.elapsed().as_secs_f64());
    assert_eq!(env.primary(), 1 - primary, "the route came back by itself");
    let since = Instant::now();
    env.kubectl(&format!("cordon {}", GATEWAYS[1 - primary])).await;
    env.until_seen(IPS[primary], since, "cordon: the rebooted gateway is used").await;
    env.kubectl(&format!("uncordon {}", GATEWAYS[1 - primary])).await;
}

/// Another floating IP on the primary: the route moves to the other gateway, then the old setup is removed, then the new one runs.
async fn another_floating_ip(env: &TestEnv) {
    let primary = env.primary();
    env.cloud.floating_ip(LATER, GATEWAYS[primary]).unwrap();
    let since = Instant::now();
    env.label(GATEWAYS[primary], Some(LATER)).await;
    env.until_seen(IPS[1 - primary], since, "the label of the gateway changed").await;
    env.until_gateway(GATEWAYS[primary], LATER).await;
    let addresses =
        env.machine(GATEWAYS[primary]).exec(&["ip", "-4", "-o", "addr", "show", "eth0"]).await.unwrap();
    assert!(addresses.contains(&format!("{LATER}/32")), "{addresses}");
    assert!(!addresses.contains(&format!("{}/32", IPS[primary])), "{addresses}");
    let since = Instant::now();
    env.kubectl(&format!("cordon {}", GATEWAYS[1 - primary])).await;
    env.until_seen(LATER, since, "cordon: the new floating IP is used").await;
    env.kubectl(&format!("uncordon {}", GATEWAYS[1 - primary])).await;
}

/// A gateway without its label becomes a client, and `natgw cleanup` restores each node.
async fn leave(env: &TestEnv) {
    let primary = env.primary();
    let since = Instant::now();
    env.label(GATEWAYS[primary], None).await;
    env.until_seen(IPS[1 - primary], since, "the gateway lost its label").await;
    env.until_client(GATEWAYS[primary]).await;
    let changes = env.changes(GATEWAYS[primary]).await;
    let only_the_route =
        changes.iter().all(|line| line.starts_with("+ route: default via ") && line.contains("metric 30000"));
    assert!(only_the_route, "{changes:#?}");

    env.kubectl("-n natgw scale deployment/natgw --replicas=0").await;
    env.kubectl("-n natgw wait --for=delete pod -l app.kubernetes.io/component=controller --timeout=600s")
        .await;
    let cleanup = Program::binary("natgw")
        .unwrap()
        .env("KUBECONFIG", env.cluster.kubeconfig())
        .env("HCLOUD_TOKEN", env.cloud.hetzner.token())
        .args(["--namespace", "natgw", "--admin-address", "127.0.0.1:0", "--config"])
        .arg(env.installation.folder().join("natgw.yaml"))
        .arg("cleanup")
        .start()
        .unwrap();
    let since = Instant::now();
    assert!(cleanup.wait_exit().await.unwrap().success());
    println!("natgw cleanup took {:.1} s", since.elapsed().as_secs_f64());
    assert_eq!(env.cloud.gateway(), None);
    env.prober.wait(None, Instant::now()).await.unwrap();
    for node in env.cluster.nodes() {
        assert_eq!(
            env.changes(node.name()).await,
            Vec::<String>::new(),
            "{} is not what it was",
            node.name()
        );
        // That it was looked at, and at what matters.
        let now: Snapshot = node.snapshot().await.unwrap();
        for section in ["address", "route", "rule", "sysctl"] {
            assert!(now.section(section).next().is_some(), "nothing of {section} on {}", node.name());
        }
    }
}
