//! Health checks: the rule one by one, and the prober, the plan and a network together in virtual time.
//!
//! A wrong move is one away from a gateway whose machine and network work.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;

use common::plan::Reason as _;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::env::{TestEnv, config_with, fip, private};
use crate::config::HealthCheck;
use crate::observe::health::{Health, Limits, Probes};
use crate::observe::prober::Prober;
use crate::observe::prober::tests::{FakeNetwork, prober};

/// Runs of each scenario.
const RUNS: u64 = 1_000;

fn limits() -> Limits {
    Limits::new(&HealthCheck::default())
}

/// Probes after so many rounds with a response, so many without, and so many with one again.
fn probes(responded: u32, failed: u32, recovered: u32) -> Probes {
    let mut probes = Probes::default();
    (0..responded).for_each(|_| probes.responded(limits()));
    (0..failed).for_each(|_| probes.failed(None, limits()));
    (0..recovered).for_each(|_| probes.responded(limits()));
    probes
}

/// Gateways with these probes, from node-1 on; the route is at node-1.
fn gateways<const N: usize>(reference: Probes, nodes: [Probes; N]) -> TestEnv {
    let mut env = TestEnv::new(config_with("healthCheck: {enabled: true}"));
    for n in (1..).take(N) {
        env = env.node(n, Some(fip(n)));
    }
    env.settle();
    env.log.clear();
    env.snapshot.health.reference = reference;
    let names = (1..).map(|n| format!("node-{n}"));
    env.snapshot.health.nodes = names.zip(nodes).collect();
    env
}

fn good() -> Probes {
    probes(3, 0, 0)
}

fn silent() -> Probes {
    probes(3, 3, 0)
}

#[test]
fn health_the_route_leaves_a_primary_that_fails_three_times_while_the_others_respond() {
    let env = gateways(good(), [silent(), good()]);
    assert_eq!(
        env.steps(),
        [
            "move route 0.0.0.0/0 of network 1 from 10.0.0.2 to 10.0.0.3 (node-2)",
            "add the role label to Node node-2",
            "remove the role label from Node node-1",
        ]
    );
    assert_eq!(env.plan().steps[0].because.code(), "GatewayUnreachable");
    assert_eq!(env.problems(), ["HealthCheckFailed"]);
    assert!(gateways(good(), [probes(3, 2, 0), good()]).plan().is_empty(), "two failures are not three");
}

#[test]
fn health_a_leader_that_may_be_cut_off_moves_nothing() {
    for (reference, second) in [
        (silent(), good()),
        (good(), silent()),
        (good(), probes(3, 1, 0)),
        (silent(), silent()),
        (Probes::default(), good()),
        // It has responded again, but not for as long as the primary has been silent.
        (good(), probes(3, 1, 2)),
        (probes(3, 1, 2), good()),
        // It was unavailable itself.
        (good(), probes(3, 3, 29)),
    ] {
        let env = gateways(reference, [silent(), second]);
        assert!(env.plan().is_empty(), "{:?}: {}", env.snapshot.health, env.plan());
        assert!(env.plan().problems[0].because.to_string().contains("may be cut off"));
    }
}

#[test]
fn health_without_checks_nothing_is_judged() {
    let mut env = gateways(good(), [silent(), good()]);
    env.snapshot.health = Health::default();
    assert!(env.plan().is_empty() && env.problems().is_empty());
}

#[test]
fn health_only_eligible_and_schedulable_nodes_become_primary() {
    let mut env = gateways(good(), [silent(), good(), good()]);
    env.edit("node-2", |node| node.cordoned = true);
    assert!(env.steps()[0].ends_with("(node-3)"));
    env.edit("node-3", |node| node.label = None);
    let steps = env.steps();
    assert!(!steps.iter().any(|step| step.contains("route")), "a cordoned Node proves nothing: {steps:?}");
}

#[test]
fn health_a_node_that_responds_is_elected_before_one_with_the_role_label() {
    let mut env = gateways(good(), [silent(), Probes::default(), good()]);
    env.edit("node-2", |node| node.role = true);
    assert!(env.steps()[0].ends_with("(node-3)"));
}

#[test]
fn health_an_unavailable_gateway_is_elected_after_it_has_recovered_and_nothing_moves_back() {
    let mut env = gateways(good(), [silent(), good(), good()]);
    env.settle();
    assert_eq!(env.primary(), ["node-2"]);
    env.snapshot.health.nodes.insert("node-2".into(), silent());
    env.snapshot.health.nodes.insert("node-1".into(), probes(3, 3, 29));
    assert!(env.steps()[0].ends_with("(node-3)"), "not back to node-1, although it is older");
    env.snapshot.health.nodes.insert("node-1".into(), probes(3, 3, 30));
    assert!(env.steps()[0].ends_with("(node-1)"));
    env.snapshot.health.nodes.insert("node-2".into(), good());
    assert!(env.plan().is_empty());
    // The primary responds again, although not for long: it is not left.
    env.snapshot.health.nodes.insert("node-2".into(), probes(3, 3, 1));
    assert!(env.plan().is_empty());
}

#[test]
fn health_without_a_candidate_that_responds_there_still_is_a_primary() {
    let mut env = gateways(silent(), [silent(), silent()]);
    env.snapshot.network.default_route = None;
    assert!(env.steps()[0].starts_with("add route 0.0.0.0/0"));
}

/// One run: two gateways, the prober, and natgw, which reconciles whenever the prober notifies it.
struct Run<'a> {
    env: TestEnv,
    network: &'a FakeNetwork,
    prober: &'a Prober,
    changed: &'a Notify,
    /// The moves so far: the next hop, and the time.
    moves: Vec<(Ipv4Addr, Instant)>,
}

impl Run<'_> {
    fn random(&self, milliseconds: Range<u64>) -> Duration {
        Duration::from_millis(self.network.state().random.u64(milliseconds))
    }

    async fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while tokio::time::timeout_at(end, self.changed.notified()).await.is_ok() {
            self.reconcile();
        }
        self.reconcile();
    }

    fn reconcile(&mut self) {
        self.env.snapshot.health = self.prober.health();
        let before = self.env.snapshot.network.default_route;
        self.env.settle();
        let after = self.env.snapshot.network.default_route;
        if after != before {
            self.moves.push((after.unwrap(), Instant::now()));
        }
    }

    fn is_stopped(&self, stopped: bool) {
        let machines = &mut self.network.state().stopped;
        if stopped {
            machines.insert("node-1".into())
        } else {
            machines.remove("node-1")
        };
    }
}

/// Plays a scenario so many times, each with another seed.
async fn play(scenario: impl AsyncFn(&mut Run<'_>)) {
    for seed in 0..RUNS {
        let (network, (prober, changed)) = (FakeNetwork::new(seed), prober());
        let env = gateways(Probes::default(), [Probes::default(), Probes::default()]);
        let mut run = Run { env, network: &network, prober: &prober, changed: &changed, moves: Vec::new() };
        tokio::select! {
            biased;
            () = scenario(&mut run) => {}
            never = prober.run(&network) => match never {},
        }
    }
}

#[tokio::test(start_paused = true)]
async fn health_a_cut_leader_moves_nothing_in_a_thousand_runs() {
    play(async |run| {
        run.wait(run.random(0..20_000)).await;
        let both = run.network.state().random.bool();
        (run.network.state().is_cut, run.network.state().api_is_cut) = (true, both);
        run.wait(run.random(500..60_000)).await;
        // The links come back one after the other.
        run.network.state().is_cut = false;
        run.wait(run.random(0..3_000)).await;
        run.network.state().api_is_cut = false;
        run.wait(Duration::from_secs(60)).await;
        assert_eq!(run.moves, [], "{:#?}", run.env.log);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn health_a_slow_network_moves_nothing_in_a_thousand_runs() {
    play(async |run| {
        (run.network.state().loss, run.network.state().delay) = (0.2, Duration::from_millis(300));
        run.wait(Duration::from_secs(60)).await;
        assert_eq!(run.moves, [], "{:#?}", run.env.log);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn health_a_filtered_port_moves_nothing_if_the_lease_is_renewed_in_the_failed_rounds() {
    play(async |run| {
        run.wait(run.random(7_100..7_900)).await;
        run.network.state().filtered.insert("node-1".into());
        run.wait(Duration::from_secs(120)).await;
        assert_eq!(run.moves, [], "{:#?}", run.env.log);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn health_a_rebooting_gateway_loses_the_route_within_five_seconds_and_does_not_get_it_back() {
    play(async |run| {
        let slow = run.network.state().random.bool();
        if slow {
            (run.network.state().loss, run.network.state().delay) = (0.02, Duration::from_millis(100));
        }
        run.wait(run.random(5_000..15_000)).await;
        let (stopped, down) = (Instant::now(), run.random(8_000..90_000));
        run.is_stopped(true);
        run.wait(down).await;
        run.is_stopped(false);
        // It responds before its kubelet reports the new boot, and flaps once more.
        run.wait(run.random(100..8_000)).await;
        run.env.reboot("node-1");
        run.wait(run.random(100..20_000)).await;
        run.is_stopped(true);
        run.wait(run.random(100..2_000)).await;
        run.is_stopped(false);
        run.wait(Duration::from_secs(60)).await;
        let [(to, at)] = run.moves[..] else { panic!("{:#?}", run.env.log) };
        assert_eq!(to, private(3));
        let took = at - stopped;
        assert!(took < Duration::from_secs(if slow { 12 } else { 5 }), "{took:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn health_two_gateways_that_stop_in_turn_move_the_route_at_most_every_thirty_seconds() {
    play(async |run| {
        run.wait(Duration::from_secs(5)).await;
        for _ in 0..10 {
            let name = format!("node-{}", run.network.state().random.u8(1..=2));
            run.network.state().stopped.insert(name.clone());
            run.wait(run.random(100..10_000)).await;
            run.network.state().stopped.remove(&name);
            run.wait(run.random(100..10_000)).await;
        }
        let gaps = run.moves.windows(2).map(|pair| pair[1].1 - pair[0].1);
        assert!(gaps.min().is_none_or(|gap| gap >= Duration::from_secs(30)), "{:#?}", run.env.log);
    })
    .await;
}
