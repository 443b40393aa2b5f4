//! The whole story on one cluster, since each of its steps begins where the one before ended.

use std::time::{Duration, Instant};

use e2e::cluster::Installation;
use e2e::netns::Snapshot;
use e2e::program::Program;

use crate::traces::{number_of, traces};
use crate::world::{CLIENT, GATEWAYS, IPS, LATER, PATIENCE, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_route_follows_the_gateways_and_packets_prove_it() {
    let world = World::start().await;
    install(&world).await;
    cordon(&world).await;
    kill_the_leader(&world).await;
    cut(&world).await;
    reboot(&world).await;
    another_floating_ip(&world).await;
    leave(&world).await;
    assert_eq!(world.cloud.hetzner.violations(), []);

    let (number, since) = (number_of(&world.cluster.range()), Instant::now());
    drop(world);
    println!("the cluster was gone after {:.1} s", since.elapsed().as_secs_f64());
    assert_eq!(traces(number), Vec::<String>::new());
}

/// Two labels and one `kubectl apply -k`: the client node and a pod on it leave by a floating IP.
async fn install(world: &World) {
    for (name, ip) in GATEWAYS.into_iter().zip(IPS) {
        world.label(name, Some(ip)).await;
    }
    assert_eq!(world.prober.last().unwrap().seen, None, "there is a way out before there is a gateway");
    let begun = Instant::now();
    Installation::give_images(&world.cluster).await.unwrap();
    println!("images built and given to the nodes in {:.1} s", begun.elapsed().as_secs_f64());
    let applied = Instant::now();
    world.installation.apply(&world.cluster).await.unwrap();
    println!("two replicas rolled out after {:.1} s", applied.elapsed().as_secs_f64());
    for (name, ip) in GATEWAYS.into_iter().zip(IPS) {
        world.until_gateway(name, ip).await;
    }
    world.until_client(CLIENT).await;
    world.until_elected().await;
    let primary = world.primary();
    world.until_seen(IPS[primary], applied, "kubectl apply -k").await;
    world.until_role(GATEWAYS[primary]).await;
    assert_eq!(world.pod_seen_as().await, IPS[primary].to_string());
    let jobs = world.kubectl("-n natgw get jobs -o jsonpath={.items[*].status.succeeded}").await;
    assert_eq!(jobs, "1 1 1", "two gateways and a client were set up by Jobs on their Nodes");
}

/// The next connection leaves by the other gateway, and comes back to the first one for no other reason than need.
async fn cordon(world: &World) {
    let (primary, since) = (world.primary(), Instant::now());
    world.kubectl(&format!("cordon {}", GATEWAYS[primary])).await;
    world.until_seen(IPS[1 - primary], since, "cordon").await;
    world.until_role(GATEWAYS[1 - primary]).await;
    assert_eq!(world.pod_seen_as().await, IPS[1 - primary].to_string());
    world.kubectl(&format!("uncordon {}", GATEWAYS[primary])).await;
    let since = Instant::now();
    world.kubectl(&format!("cordon {}", GATEWAYS[1 - primary])).await;
    world.until_seen(IPS[primary], since, "cordon of the other").await;
    world.kubectl(&format!("uncordon {}", GATEWAYS[1 - primary])).await;
}

/// Traffic does not need natgw; the replica that takes over moves the route as the first one did.
async fn kill_the_leader(world: &World) {
    let (leader, _) = world.leader().await;
    let (primary, since) = (world.primary(), Instant::now());
    world.kubectl(&format!("-n natgw delete pod {leader} --force --grace-period=0")).await;
    let next = loop {
        let next = Installation::leader(&world.cluster).await.unwrap();
        if let Some(next) = next.filter(|next| *next != leader) {
            break next;
        }
        assert!(since.elapsed() < PATIENCE, "{leader} was killed, and nobody took over");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let took = since.elapsed().as_secs_f64();
    let heard = world.prober.probes().into_iter().filter(|probe| probe.at >= since);
    let lost = heard.clone().filter(|probe| probe.seen != Some(IPS[primary])).count();
    println!(
        "{leader} killed: {next} leads after {took:.1} s; {lost} of {} questions lost meanwhile",
        heard.count()
    );
    let since = Instant::now();
    world.kubectl(&format!("cordon {}", GATEWAYS[primary])).await;
    world.until_seen(IPS[1 - primary], since, "cordon, under the new leader").await;
    world.kubectl(&format!("uncordon {}", GATEWAYS[primary])).await;
    world.kubectl("-n natgw rollout status deployment/natgw --timeout=120s").await;
}

/// The cables of the primary are pulled: natgw waits for Kubernetes' word, and no longer.
async fn cut(world: &World) {
    let primary = world.primary();
    let gateway = world.machine(GATEWAYS[primary]);
    let (_, place) = world.leader().await;
    let since = Instant::now();
    gateway.cut().await.unwrap();
    world.until_ready(GATEWAYS[primary], "Unknown").await;
    let noticed = since.elapsed().as_secs_f64();
    println!("{} is cut while natgw leads on {place}; NotReady after {noticed:.1} s", gateway.name());
    world.until_seen(IPS[1 - primary], since, "cables of the gateway pulled").await;
    gateway.join().await.unwrap();
    world.until_ready(GATEWAYS[primary], "True").await;
    world.until_role(GATEWAYS[1 - primary]).await;
}

/// A new boot has forgotten everything: it is no gateway until it is set up anew, and packets go by the other one.
async fn reboot(world: &World) {
    let primary = world.primary();
    let (_, place) = world.leader().await;
    println!("{} is reset while natgw leads on {place}", GATEWAYS[primary]);
    let since = Instant::now();
    world.machine(GATEWAYS[primary]).reboot().await.unwrap();
    world.until_seen(IPS[1 - primary], since, "the gateway rebooted").await;
    world.until_gateway(GATEWAYS[primary], IPS[primary]).await;
    println!("it is a gateway again {:.1} s after the reset", since.elapsed().as_secs_f64());
    assert_eq!(world.primary(), 1 - primary, "the route came back by itself");
    let since = Instant::now();
    world.kubectl(&format!("cordon {}", GATEWAYS[1 - primary])).await;
    world.until_seen(IPS[primary], since, "cordon: the rebooted gateway is used").await;
    world.kubectl(&format!("uncordon {}", GATEWAYS[1 - primary])).await;
}

/// Another floating IP on the primary: the traffic leaves it first, then its setup is taken back, then made anew.
async fn another_floating_ip(world: &World) {
    let primary = world.primary();
    world.cloud.floating_ip(LATER, GATEWAYS[primary]).unwrap();
    let since = Instant::now();
    world.label(GATEWAYS[primary], Some(LATER)).await;
    world.until_seen(IPS[1 - primary], since, "the label of the gateway changed").await;
    world.until_gateway(GATEWAYS[primary], LATER).await;
    let addresses =
        world.machine(GATEWAYS[primary]).exec(&["ip", "-4", "-o", "addr", "show", "eth0"]).await.unwrap();
    assert!(addresses.contains(&format!("{LATER}/32")), "{addresses}");
    assert!(!addresses.contains(&format!("{}/32", IPS[primary])), "{addresses}");
    let since = Instant::now();
    world.kubectl(&format!("cordon {}", GATEWAYS[1 - primary])).await;
    world.until_seen(LATER, since, "cordon: the new floating IP is used").await;
    world.kubectl(&format!("uncordon {}", GATEWAYS[1 - primary])).await;
}

/// A gateway without its label is a client like the others, and after `natgw cleanup` each node is what it was.
async fn leave(world: &World) {
    let primary = world.primary();
    let since = Instant::now();
    world.label(GATEWAYS[primary], None).await;
    world.until_seen(IPS[1 - primary], since, "the gateway lost its label").await;
    world.until_client(GATEWAYS[primary]).await;
    let changes = world.changes(GATEWAYS[primary]).await;
    let only_the_route =
        changes.iter().all(|line| line.starts_with("+ route: default via ") && line.contains("metric 30000"));
    assert!(only_the_route, "{changes:#?}");

    world.kubectl("-n natgw scale deployment/natgw --replicas=0").await;
    world
        .kubectl("-n natgw wait --for=delete pod -l app.kubernetes.io/component=controller --timeout=120s")
        .await;
    let cleanup = Program::binary("natgw")
        .unwrap()
        .env("KUBECONFIG", world.cluster.kubeconfig())
        .env("HCLOUD_TOKEN", world.cloud.hetzner.token())
        .args(["--namespace", "natgw", "--admin-address", "127.0.0.1:0", "--config"])
        .arg(world.installation.folder().join("natgw.yaml"))
        .arg("cleanup")
        .start()
        .unwrap();
    let since = Instant::now();
    assert!(cleanup.wait_exit(PATIENCE).await.unwrap().success());
    println!("natgw cleanup took {:.1} s", since.elapsed().as_secs_f64());
    assert_eq!(world.cloud.gateway(), None);
    world.prober.wait(None, Instant::now(), PATIENCE).await.unwrap();
    for node in world.cluster.nodes() {
        assert_eq!(
            world.changes(node.name()).await,
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
