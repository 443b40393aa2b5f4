//! The rule of the health checks, one by one. The tests of the prober play it with a network in virtual time.

use common::plan::Reason as _;

use super::env::{TestEnv, config_with, fip};
use crate::config::HealthCheck;
use crate::observe::health::{Health, Limits, Probes};

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
pub fn gateways<const N: usize>(reference: Probes, nodes: [Probes; N]) -> TestEnv {
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
