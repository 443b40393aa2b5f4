//! The periodic verification of gateways.

use std::net::Ipv4Addr;

use jiff::SignedDuration;

use super::env::{TestEnv, config_with, fip, private};
use crate::config::OnNoCandidate;
use crate::observe::snapshot::{Outcome, Ready};
use crate::task::Kind;

const INTERVAL: SignedDuration = SignedDuration::from_mins(10);

/// Gateways that were just set up, the route at node-1, with verification every ten minutes.
fn verified(gateways: u8) -> TestEnv {
    let config = config_with("verification: {enabled: true}");
    let mut env = (1..=gateways).fold(TestEnv::new(config), |env, n| env.node(n, Some(fip(n))));
    env.settle();
    env.log.clear();
    env
}

/// Verifies every gateway once.
fn verify(env: &mut TestEnv) {
    env.now += INTERVAL;
    env.settle();
}

/// As `iptables -F`, or a restart of a program that replaces all rules.
fn flush(env: &mut TestEnv, name: &str) {
    env.kernel.remove(name);
}

/// The order in which Jobs were created and the route was moved.
fn order(env: &TestEnv) -> Vec<String> {
    let words = env.log.iter().filter_map(|step| {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["create", "Job", _, task, ..] => {
                Some(format!("{} {}", task.trim_matches(['(', ',']), words.last().unwrap()))
            }
            ["move", ..] => Some(format!("route {}", words.last().unwrap())),
            _ => None,
        }
    });
    words.collect()
}

fn route(env: &TestEnv) -> Option<Ipv4Addr> {
    env.snapshot.network.default_route
}

#[test]
fn it_is_off_by_default() {
    let mut env = TestEnv::two_gateways();
    env.now += SignedDuration::from_hours(48);
    assert!(env.plan().is_empty());
}

#[test]
fn each_gateway_is_verified_after_each_interval_and_nothing_else_happens() {
    let mut env = verified(2).node(3, None);
    env.now += INTERVAL - SignedDuration::from_secs(1);
    env.settle();
    assert_eq!(env.log, Vec::<String>::new(), "a finished setup has verified its work");
    env.now += SignedDuration::from_secs(1);
    let both = ["verify:198.51.100.1 node-1", "verify:198.51.100.2 node-2"];
    for _ in 0..3 {
        // A Job that runs changes no standing, and is not replaced.
        while env.reconcile() > 0 {
            assert_eq!((env.primary(), env.problems()), (vec!["node-1"], vec![]));
        }
        assert!(env.plan().is_empty());
        env.settle();
        assert_eq!(order(&env), both);
        assert!(env.log.iter().all(|step| !step.contains("annotate")), "{:#?}", env.log);
        env.log.clear();
        env.now += INTERVAL;
    }
    // The TTL of the Jobs is over, as after a long stop of natgw.
    env.snapshot.jobs.clear();
    env.settle();
    assert_eq!(order(&env), both);
}

#[test]
fn a_flushed_standby_is_set_up_again_and_the_route_stays() {
    let mut env = verified(2);
    flush(&mut env, "node-2");
    verify(&mut env);
    let order = order(&env);
    assert_eq!(
        order,
        ["verify:198.51.100.1 node-1", "verify:198.51.100.2 node-2", "setup:198.51.100.2 node-2"]
    );
    assert_eq!((env.primary(), env.problems()), (vec!["node-1"], vec![]));
    env.assert_settled();
}

#[test]
fn the_route_leaves_a_flushed_primary_before_its_setup() {
    for limit in 1.. {
        let mut env = verified(2);
        flush(&mut env, "node-1");
        verify_until_differs(&mut env);
        assert_eq!(env.problems(), ["SetupDiffers"]);
        // Stopped after any step, the next start finds the rest to do.
        let whole = env.reconcile_up_to(limit) < limit;
        env.settle();
        let order = order(&env);
        assert_eq!(order[2..], ["route (node-2)", "setup:198.51.100.1 node-1"], "{:#?}", env.log);
        assert_eq!((env.primary(), env.problems()), (vec!["node-2"], vec![]));
        env.assert_settled();
        if whole {
            break;
        }
    }
}

/// Reconciles until a verification has found a difference.
fn verify_until_differs(env: &mut TestEnv) {
    env.now += INTERVAL;
    let found = |env: &TestEnv| {
        env.snapshot.jobs.values().flatten().any(|job| matches!(job.outcome, Outcome::Differs { .. }))
    };
    while !found(env) {
        env.reconcile();
        env.end_jobs(&|_| true);
    }
}

#[test]
fn a_flushed_gateway_without_another_candidate_is_set_up_in_place() {
    for on_no_candidate in [OnNoCandidate::Keep, OnNoCandidate::Remove] {
        let mut env = verified(1);
        env.config.settings.on_no_candidate = on_no_candidate;
        flush(&mut env, "node-1");
        verify_until_differs(&mut env);
        assert_eq!(env.problems(), ["NoCandidate"]);
        env.settle();
        assert_eq!((env.primary(), route(&env), env.problems()), (vec!["node-1"], Some(private(2)), vec![]));
        env.assert_settled();
    }
}

#[test]
fn a_standby_whose_setup_fails_does_not_delay_the_setup_of_a_flushed_primary() {
    let mut env = verified(2);
    flush(&mut env, "node-2");
    env.now += INTERVAL;
    env.settle_with(|task| !(task.kind == Kind::Setup && task.ip == fip(2)));
    assert!(env.get("node-2").failures > 0);
    flush(&mut env, "node-1");
    env.now += INTERVAL;
    env.settle_with(|task| !(task.kind == Kind::Setup && task.ip == fip(2)));
    assert_eq!((env.primary(), env.problems()), (vec!["node-1"], vec![]), "{:#?}", env.log);
    assert_eq!(env.kernel["node-1"].len(), 1);
}

#[test]
fn a_flushed_primary_whose_setup_fails_does_not_delay_the_setup_of_a_flushed_standby() {
    let mut env = verified(2);
    env.kernel.clear();
    env.now += INTERVAL;
    env.settle_with(|task| !(task.kind == Kind::Setup && task.ip == fip(1)));
    assert!(env.get("node-1").failures > 0);
    assert_eq!((env.primary(), env.kernel["node-2"].len()), (vec!["node-2"], 1), "{:#?}", env.log);
}

#[test]
fn defect_35_a_flushed_standby_is_set_up_although_the_node_with_the_traffic_was_lost_in_its_setup() {
    let mut env = verified(2);
    env.kernel.clear();
    verify_until_differs(&mut env);
    while env.get("node-1").pending.is_none() {
        env.reconcile();
    }
    env.edit("node-1", |node| node.ready = Ready::Unknown);
    env.settle();
    assert_eq!((env.primary(), env.kernel["node-2"].len()), (vec!["node-2"], 1), "{:#?}", env.log);
}

#[test]
fn flushed_gateways_are_set_up_one_at_a_time() {
    let mut env = verified(3);
    env.kernel.clear();
    env.now += INTERVAL;
    for _ in 0..40 {
        env.reconcile();
        let at_work = env.snapshot.nodes.iter().filter(|node| node.pending.is_some()).count();
        assert!(at_work < 2, "{:#?}", env.log);
        env.end_jobs(&|_| true);
    }
    let setups: Vec<String> = order(&env).into_iter().filter(|step| step.starts_with("setup")).collect();
    // The one with the traffic first: nothing forwards it.
    assert_eq!(setups, [1, 2, 3].map(|n| format!("setup:198.51.100.{n} node-{n}")));
    assert_eq!((env.primary(), env.problems()), (vec!["node-1"], vec![]));
    env.assert_settled();
}

#[test]
fn a_verification_that_cannot_be_finished_is_reported_and_changes_nothing() {
    let mut env = verified(2);
    env.now += INTERVAL;
    env.settle_with(|task| task.kind != Kind::Verify);
    assert_eq!((env.primary(), env.problems()), (vec!["node-1"], vec!["VerificationFailed"; 2]));
    assert!(env.plan().is_empty(), "it is not tried again before its time");
    env.now += INTERVAL;
    env.settle();
    assert_eq!((order(&env).len(), env.problems()), (4, vec![]));
}

#[test]
fn a_node_without_a_kubelet_or_with_another_setup_to_come_is_not_verified() {
    let mut env = verified(2);
    env.edit("node-2", |node| node.ready = Ready::Unknown);
    verify(&mut env);
    assert_eq!(order(&env), ["verify:198.51.100.1 node-1"]);
    // The result of an earlier script says nothing about the present one.
    let mut env = verified(1);
    flush(&mut env, "node-1");
    verify_until_differs(&mut env);
    env.config = config_with("verification: {enabled: true}\njobs: {env: {PERSIST_NETPLAN: '0'}}");
    assert_eq!(env.problems(), ["SetupOutdated"]);
}

#[test]
fn a_label_that_is_removed_and_a_reboot_supersede_a_verification() {
    let mut env = verified(2);
    env.now += INTERVAL;
    env.reconcile();
    env.reconcile();
    env.end_jobs(&|_| false);
    env.reconcile();
    env.edit("node-2", |node| node.label = None);
    env.reboot("node-1");
    env.settle();
    env.assert_settled();
    assert_eq!(env.primary(), ["node-1"]);
}
