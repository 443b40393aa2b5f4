//! The prober, the plan and a network together in virtual time.
//!
//! A wrong move is one away from a gateway whose machine and network work.

use std::ops::Range;

use super::*;
use crate::plan::health::targets;
use crate::plan::tests::env::{TestEnv, private};
use crate::plan::tests::health::gateways;

/// Runs of each scenario.
const RUNS: u64 = 1_000;

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
        let before = self.env.snapshot.network.default_route;
        // The Job of a setup ends between two reconciliations.
        while {
            self.env.snapshot.health = self.prober.health();
            self.prober.watch(targets(&self.env.snapshot));
            self.env.reconcile() > 0 || self.env.end_jobs(&|_| true)
        } {}
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
async fn health_a_gateway_has_to_respond_for_thirty_seconds_also_if_it_is_set_up_meanwhile() {
    play(async |run| {
        run.wait(run.random(5_000..15_000)).await;
        run.is_stopped(true);
        run.wait(run.random(5_000..20_000)).await;
        run.is_stopped(false);
        let back = Instant::now();
        run.env.reboot("node-1");
        run.wait(run.random(500..10_000)).await;
        run.network.state().stopped.insert("node-2".into());
        run.wait(Duration::from_secs(60)).await;
        let [_, (to, at)] = run.moves[..] else { panic!("{:#?}", run.env.log) };
        assert_eq!(to, private(2));
        assert!(at - back >= Duration::from_secs(29), "{:?}", at - back);
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
