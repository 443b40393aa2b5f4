//! Tests of natgw's own defects from 27 on, as far as they concern the plan; see docs/natgw/defects.md.

use common::plan::Reason as _;
use jiff::SignedDuration;

use super::env::{TestEnv, config, fip, private};
use crate::config::Mode;
use crate::observe::snapshot::{Attached, Outcome};

#[test]
fn defect_27_a_job_that_tells_no_task_is_deleted_when_the_node_needs_another() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
    env.reconcile();
    let job = &mut env.snapshot.jobs.get_mut("node-1").unwrap()[0];
    job.task = None;
    let deleted = format!("delete Job {} of Node node-1, whose labels name no task", job.name);
    assert_eq!(env.steps(), [deleted]);
    env.settle();
    assert_eq!(env.primary(), ["node-1"]);
    // On a Node that needs no Job it is left to its TTL.
    let mut stray = env.snapshot.jobs["node-1"][0].clone();
    (stray.task, stray.outcome) = (None, Outcome::Running);
    env.snapshot.jobs.insert("node-1".into(), vec![stray]);
    assert!(env.plan().is_empty());
}

/// A gateway whose teardown in a cleanup has failed once.
fn failed_cleanup() -> TestEnv {
    let mut env = TestEnv::two_gateways();
    env.config.mode = Mode::Cleanup;
    env.settle_with(|_| false);
    assert_eq!(env.get("node-1").failures, 1);
    env
}

#[test]
fn defect_28_a_cleanup_keeps_failed_jobs_for_thirty_seconds_and_tries_again() {
    let mut env = failed_cleanup();
    env.now += SignedDuration::from_secs(29);
    assert!(env.plan().is_empty(), "{}", env.plan());
    env.now += SignedDuration::from_secs(1);
    env.settle();
    assert!(env.get("node-1").setup.is_none(), "{:#?}", env.log);
    // Also where earlier failures have a longer backoff.
    let mut env = failed_cleanup();
    let later = env.now + SignedDuration::from_mins(30);
    env.edit("node-1", |node| node.retry_after = Some(later));
    env.now += SignedDuration::from_secs(30);
    env.settle();
    assert!(env.get("node-1").setup.is_none());
}

#[test]
fn defect_28_a_cleanup_reports_a_route_to_where_no_gateway_is_left() {
    let cleaned = |next_hop: std::net::Ipv4Addr| {
        let mut env = TestEnv::two_gateways();
        env.snapshot.network.default_route = Some(next_hop);
        env.snapshot.network.servers.insert(private(99), Attached { id: 99, name: "router".into() });
        env.edit("node-1", |node| (node.setup, node.setup_boot_id, node.role) = (None, None, false));
        env.config.mode = Mode::Cleanup;
        env.settle();
        (env.snapshot.network.default_route, env.problems())
    };
    assert_eq!(
        cleaned(private(2)),
        (Some(private(2)), vec!["RouteLeft"]),
        "its annotations were removed by hand"
    );
    assert_eq!(cleaned(private(77)), (Some(private(77)), vec!["RouteLeft"]), "the server is gone");
    assert_eq!(cleaned(private(99)), (Some(private(99)), vec![]), "another program's");
    assert_eq!(cleaned(private(3)), (None, vec![]), "natgw's own");
}

#[test]
fn defect_30_an_alias_ip_of_a_node_is_not_foreign() {
    let mut env = TestEnv::two_gateways();
    env.snapshot.network.servers.insert(private(50), Attached { id: 2, name: "gateway-2".into() });
    env.snapshot.network.default_route = Some(private(50));
    for adopt in [true, false] {
        env.config.adopt_foreign_route = adopt;
        let plan = env.plan();
        assert_eq!(plan.steps[0].because.code(), "GatewayAtAliasIP", "{plan}");
        assert!(
            env.steps()[0].ends_with("from 10.0.0.50 to 10.0.0.3 (node-2)"),
            "the traffic stays there: {plan}"
        );
    }
    env.edit("node-2", |node| node.cordoned = true);
    assert_eq!(env.plan().steps[0].because.code(), "GatewayCordoned");
}
