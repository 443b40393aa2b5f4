//! Pods that start and end, and VIPs without a gateway.

use std::time::Instant;

use e2e::cgw::{GATEWAY_LABEL, GATEWAYS};
use e2e::cluster::{HOST, Prober, Target};
use e2e::wait::until;
use serde_json::json;

use super::env::{A, BUSYBOX_IMAGE, FIRST, SECOND, TestEnv};
use super::metrics;

/// Pods that send from their first moment on, each to a port of its own from this one on.
const SENDERS: u16 = 8;
const FIRST_PORT: u16 = 9000;
/// The ports are closed, so each connection is over at once. (Debian's static `busybox wget` crashes where there is no libc.)
const SEND: &str = "trap '' TERM; while :; do \
    /bin/busybox nc -w 1 203.0.113.9 $((9000 + JOB_COMPLETION_INDEX)) </dev/null; \
    /bin/busybox usleep 20000; done";

/// A pod is bound from its first packet on, although it never becomes ready, and until it is gone. It ignores SIGTERM, and the grace
/// period is long enough for all of them to be observed while they terminate.
pub async fn starting_and_terminating_pods(env: &TestEnv) {
    assert_eq!(HOST.to_string(), "203.0.113.9");
    env.capture.reset().unwrap();
    env.apply(&[json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "senders", "namespace": "shop"},
        "spec": {
            "completionMode": "Indexed", "completions": SENDERS, "parallelism": SENDERS, "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"app": "a", "role": "sender"}},
                "spec": {
                    "restartPolicy": "Never", "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 60,
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"role": "sender"}},
                    }],
                    "containers": [{
                        "name": "sender", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never",
                        "command": ["/bin/sh", "-c", SEND],
                        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
                    }],
                },
            },
        },
    })])
    .await;
    let seen = |port: u16| {
        let packets = env.capture.packets().unwrap();
        packets.iter().filter(|packets| packets.port == Some(port)).map(|packets| packets.count).sum::<u64>()
    };
    until("packets of all starting pods", async || {
        Ok((FIRST_PORT..FIRST_PORT + SENDERS).all(|port| seen(port) >= 10).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(env.wrong_sources(&[A]), [], "a starting pod");

    env.kubectl("-n shop delete job senders --wait=false").await;
    let terminating = "-n shop get pods -l role=sender -o jsonpath={.items[*].metadata.deletionTimestamp}";
    until("all of them terminate", async || {
        let stamps = env.kubectl(terminating).await;
        Ok((stamps.split_whitespace().count() == usize::from(SENDERS)).then_some(()))
    })
    .await
    .unwrap();
    let before = seen(FIRST_PORT);
    until("packets of a terminating pod", async || Ok((seen(FIRST_PORT) > before).then_some(())))
        .await
        .unwrap();
    env.kubectl("-n shop wait --for=delete pod -l role=sender --timeout=600s").await;
    assert_eq!(env.wrong_sources(&[A]), [], "a terminating pod");
    println!("{SENDERS} pods started and ended, each packet with their VIP");
}

/// Without a gateway nothing of a bound pod leaves, also if a gateway node is its own. Others are not concerned.
pub async fn no_gateway(env: &TestEnv) {
    for node in GATEWAYS {
        env.kubectl(&format!("label node {node} {GATEWAY_LABEL}-")).await;
    }
    for node in env.cluster.nodes() {
        let without = "cgw_agent_vips{gateway=\"none\"} 3";
        until(&format!("no gateway on {}", node.name()), async || {
            Ok(metrics::agent(env, node.name()).await?.contains(without).then_some(()))
        })
        .await
        .unwrap();
    }
    env.capture.reset().unwrap();
    let since = Instant::now();
    let names = ["a1", "a3", "b1", "c1"];
    let bound = names.map(|name| Prober::start_in(&env.pods[name].network).unwrap());
    let unbound = Prober::start_in(&env.pods["u1"].network).unwrap();
    let node = env.node_source("node-3");
    until("requests of all pods", async || {
        let is_done = bound.iter().all(|prober| prober.since(since).len() >= 50);
        Ok((is_done && unbound.streak(node, since) >= 50).then_some(()))
    })
    .await
    .unwrap();
    for (name, prober) in names.iter().zip(&bound) {
        assert!(prober.probes().iter().all(|probe| probe.seen.is_none()), "{name} gets responses");
    }
    drop((bound, unbound));
    let packets = env.capture.packets().unwrap();
    let others: Vec<_> = packets.iter().filter(|packets| packets.source != node).collect();
    assert!(others.is_empty(), "without a gateway: {others:?}");
    println!("no packet without a gateway; the pods that are not bound sent {packets:?}");

    for node in GATEWAYS {
        env.kubectl(&format!("label node {node} {GATEWAY_LABEL}=")).await;
    }
    for router in [FIRST, SECOND] {
        env.settled(&router).await;
    }
    env.installation.rolled_out(&env.cluster).await.unwrap();
    for name in env.bound() {
        env.until_source(name, Target::ECHO, &env.vip(name).to_string()).await;
    }
}
