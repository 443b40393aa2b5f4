//! Tests of natgw's own defects, most of them from 27 on, as far as they concern the plan; see docs/natgw/defects.md.

use std::net::Ipv4Addr;

use common::plan::Reason as _;
use jiff::SignedDuration;

use super::env::{TestEnv, config, config_with, fip, private};
use crate::config::{Mode, OnNoCandidate};
use crate::observe::health::{Health, Limits, Probes};
use crate::observe::snapshot::{Attached, Node, Outcome, Ready, Server};
use crate::plan::Action;
use crate::plan::floating_ip::CONFIRMATIONS;

#[test]
fn defect_24_a_gateway_whose_floating_ip_went_to_another_stays_until_that_one_is_set_up() {
    let mut env =
        TestEnv::new(config_with("floatingIPs: {label: true}")).node(1, Some(fip(1))).node(2, Some(fip(2)));
    env.settle();
    env.assigned.insert(fip(1), Some(2));
    env.assigned.insert(fip(2), None);
    env.snapshot.floating_ip_polls = CONFIRMATIONS;
    while env.get("node-2").setup.as_deref() != Some("198.51.100.1") {
        assert!(env.get("node-1").setup.is_some(), "{:#?}", env.log);
        env.reconcile();
        env.end_jobs(&|_| true);
    }
    env.settle();
    assert_eq!((env.get("node-1").setup.clone(), env.primary()), (None, vec!["node-2"]));
}

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
        env.config.settings.adopt_foreign_route = adopt;
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

/// Gateways that are set up with another environment than the present one; the route is at node-1.
fn outdated(count: u8) -> TestEnv {
    let mut env = TestEnv::new(config());
    for n in 1..=count {
        env = env.node(n, Some(fip(n)));
    }
    env.settle();
    env.config = config_with("jobs: {env: {SNAT_SOURCES: 10.0.0.0/16}}");
    env.log.clear();
    env
}

#[test]
fn defect_31_a_changed_environment_is_rolled_out_one_gateway_at_a_time_and_the_primary_last() {
    let mut env = outdated(3);
    let mut order = Vec::new();
    for _ in 0..100 {
        env.reconcile();
        env.assert_safe();
        let at_work: Vec<&str> = env
            .snapshot
            .nodes
            .iter()
            .filter(|node| node.pending.is_some())
            .map(|node| node.name.as_str())
            .collect();
        assert!(at_work.len() < 2, "{at_work:?}");
        if let [name] = at_work[..] {
            assert_ne!(env.get(name).private_ip(), env.snapshot.network.default_route, "{:#?}", env.log);
            if order.last() != Some(&name.to_owned()) {
                order.push(name.to_owned());
            }
        }
        env.end_jobs(&|_| true);
    }
    assert_eq!(order, ["node-2", "node-3", "node-1"]);
    let moves: Vec<&String> = env.log.iter().filter(|step| step.contains("route")).collect();
    assert_eq!(moves, ["move route 0.0.0.0/0 of network 1 from 10.0.0.2 to 10.0.0.3 (node-2)"]);
    assert!(env.plan().is_empty() && env.problems().is_empty());
}

#[test]
fn defect_31_a_script_that_fails_stops_the_rollout_at_the_first_gateway() {
    let mut env = outdated(3);
    for _ in 0..20 {
        env.settle_with(|_| false);
        env.now += SignedDuration::from_mins(31);
    }
    assert_eq!((env.get("node-2").failures > 3, env.primary()), (true, vec!["node-1"]));
    assert!(env.get("node-3").pending.is_none() && env.get("node-1").pending.is_none());
}

#[test]
fn defect_31_a_gateway_without_another_candidate_is_not_set_up_again_and_the_problem_is_reported() {
    let mut env = outdated(1);
    assert!(env.plan().is_empty());
    assert_eq!(env.problems(), ["SetupOutdated"]);
    env.edit("node-1", |node| node.forget = true);
    env.settle();
    assert!(env.problems().is_empty() && env.primary() == ["node-1"]);
    // A standby that cannot be set up does not block the others.
    let stops: [fn(&mut Node); 2] =
        [|node| node.ready = Ready::Unknown, |node| node.server = Server::Cloud { id: 2, private_ip: None }];
    for stop in stops {
        let mut env = outdated(3);
        env.edit("node-2", stop);
        env.settle();
        assert_eq!(env.primary(), ["node-3"]);
        assert!(env.get("node-1").pending.is_none() && env.plan().is_empty());
    }
}

#[test]
fn defect_31_a_gateway_that_gets_the_route_is_not_set_up_again_in_the_same_plan() {
    for route in [None, Some(private(2))] {
        let mut env = outdated(2);
        env.config.settings.on_no_candidate = OnNoCandidate::Remove;
        env.edit("node-1", |node| node.ready = Ready::Unknown);
        env.snapshot.network.default_route = route;
        env.settle();
        assert_eq!(env.snapshot.network.default_route, Some(private(3)), "{:#?}", env.log);
        assert!(env.get("node-2").pending.is_none() && env.plan().is_empty(), "{:#?}", env.log);
        let jobs = env.log.iter().filter(|step| step.starts_with("create Job")).count();
        assert_eq!((jobs, env.problems()), (0, vec!["SetupOutdated"]), "{:#?}", env.log);
        env.edit("node-1", |node| node.ready = Ready::True);
        env.settle();
        assert_eq!((env.primary(), env.problems()), (vec!["node-1"], vec![]), "{:#?}", env.log);
    }
}

#[test]
fn defect_31_the_route_does_not_move_to_a_gateway_whose_health_checks_fail() {
    let mut env = outdated(2);
    let limits = Limits::new(&env.config.health_check);
    let count = |responded: u32, failed: u32| {
        let mut probes = Probes::default();
        (0..responded).for_each(|_| probes.responded(limits));
        (0..failed).for_each(|_| probes.failed(None, limits));
        probes
    };
    // The third reference does not respond, so that the failure of node-2 is not confirmed.
    let nodes = [("node-1".to_owned(), count(3, 0)), ("node-2".to_owned(), count(3, 3))];
    env.snapshot.health = Health { nodes: nodes.into(), reference: count(0, 1) };
    env.settle();
    assert_eq!(env.primary(), ["node-1"], "{:#?}", env.log);
    assert_eq!(env.problems(), ["HealthCheckFailed", "SetupOutdated"]);
    env.snapshot.health.nodes.insert("node-2".into(), count(3, 0));
    env.settle();
    assert_eq!((env.primary(), env.problems()), (vec!["node-2"], vec![]), "{:#?}", env.log);
}

#[test]
fn defect_31_clients_follow_the_gateways() {
    let mut env = TestEnv::new(config_with("clients: {enabled: true}"))
        .node(1, Some(fip(1)))
        .node(2, Some(fip(2)))
        .node(3, None)
        .node(4, None);
    env.settle();
    env.config = config_with("clients: {enabled: true}\njobs: {clientSetupScript: 'exit 0'}");
    env.log.clear();
    env.settle();
    let jobs = env.log.iter().filter(|step| step.starts_with("create Job")).count();
    assert_eq!((jobs, env.primary()), (2, vec!["node-1"]), "{:#?}", env.log);
}

#[test]
fn defect_32_a_client_teardown_removes_the_route_of_its_setup_when_the_network_has_another_first_address() {
    let mut env = TestEnv::new(config_with("clients: {enabled: true}")).node(1, None);
    env.snapshot.network.ip_range = "10.0.128.0/17".parse().unwrap();
    env.settle();
    assert_eq!(env.get("node-1").client.as_deref(), Some("10.0.128.1"));
    env.snapshot.network.ip_range = "10.0.0.0/16".parse().unwrap();
    let mut created = Vec::new();
    for _ in 0..10 {
        let plan = env.plan();
        created.extend(plan.steps.iter().filter_map(|step| match &step.action {
            Action::CreateJob { job, .. } => Some((job.task.to_string(), job.network_gateway.to_string())),
            _ => None,
        }));
        env.reconcile();
        env.end_jobs(&|_| true);
    }
    let jobs = [("client-teardown:10.0.128.1", "10.0.128.1"), ("client-setup:10.0.0.1", "10.0.0.1")];
    assert_eq!(created, jobs.map(|(task, gateway)| (task.to_owned(), gateway.to_owned())));
    assert_eq!(env.get("node-1").client.as_deref(), Some("10.0.0.1"));
}

#[test]
fn defect_33_a_client_with_a_label_that_is_no_ipv4_address_keeps_its_route() {
    let mut env = TestEnv::new(config_with("clients: {enabled: true}")).node(1, Some(fip(1))).node(2, None);
    env.settle();
    for name in ["node-1", "node-2"] {
        env.edit(name, |node| node.label = Some("2001-db8--1".into()));
    }
    env.settle();
    assert!(!env.log.iter().any(|step| step.contains("client-teardown")), "{:#?}", env.log);
    // A gateway becomes a client, as without the label.
    for name in ["node-1", "node-2"] {
        assert_eq!((&env.get(name).setup, env.get(name).client.as_deref()), (&None, Some("10.0.0.1")));
    }
    assert_eq!(env.problems(), ["InvalidFloatingIP", "InvalidFloatingIP", "NoCandidate"]);
}

#[test]
fn defect_34_the_gateways_are_set_up_again_when_the_range_of_the_network_is_extended() {
    let mut env =
        TestEnv::new(config_with("clients: {enabled: true}")).node(1, Some(fip(1))).node(2, Some(fip(2)));
    env = env.node(3, None);
    env.settle();
    env.log.clear();
    env.snapshot.network.ip_range = "10.0.0.0/8".parse().unwrap();
    env.settle();
    let created = env.log.iter().filter(|step| step.starts_with("create Job"));
    let nodes: Vec<&str> = created.filter_map(|step| step.rsplit(' ').next()).collect();
    assert_eq!(nodes, ["node-2", "node-1"], "not the client: {:#?}", env.log);
    assert_eq!((env.primary(), env.problems()), (vec!["node-2"], vec![]));
    assert!(env.plan().is_empty());
    // Without another candidate it is reported.
    let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
    env.settle();
    env.snapshot.network.ip_range = "10.0.0.0/8".parse().unwrap();
    assert_eq!((env.steps(), env.problems()), (vec![], vec!["SetupOutdated"]));
}

#[test]
fn defect_36_a_job_controller_whose_clock_is_ahead_does_not_prolong_the_backoff() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
    env.reconcile();
    for (ahead, wait) in [(SignedDuration::from_hours(2), 60), (SignedDuration::from_secs(-5), 55)] {
        let at = env.now + ahead;
        let mut env = env.clone();
        env.snapshot.jobs.get_mut("node-1").unwrap()[0].outcome =
            Outcome::Failed { at, message: String::new() };
        env.reconcile();
        let retry_after = env.now + SignedDuration::from_secs(wait);
        assert_eq!((env.get("node-1").failures, env.get("node-1").retry_after), (1, Some(retry_after)));
    }
}

/// A cleanup of a gateway, node-1, and a client, node-2, after its first reconciliation.
fn cleanup_of_a_client(change: impl FnOnce(&mut Node)) -> TestEnv {
    let mut env = TestEnv::new(config_with("clients: {enabled: true}")).node(1, Some(fip(1))).node(2, None);
    env.settle();
    env.log.clear();
    env.config.mode = Mode::Cleanup;
    env.edit("node-2", change);
    env.reconcile();
    env
}

#[test]
fn defect_38_a_cleanup_tears_the_clients_down_before_the_gateway_that_they_leave_by() {
    let mut env = cleanup_of_a_client(|_| ());
    // The image cannot be pulled at first.
    for _ in 0..2 {
        env.end_jobs(&|_| false);
        env.now += SignedDuration::from_secs(30);
        env.reconcile();
        assert_eq!((env.get("node-1").pending.clone(), env.primary()), (None, vec!["node-1"]));
        assert_eq!(env.snapshot.network.default_route, Some(private(2)));
    }
    env.settle();
    let at = |text: &str| env.log.iter().position(|step| step.starts_with(text)).unwrap();
    let order = [
        "remove the annotation from Node node-2: client-teardown:10.0.0.1 done",
        "remove route 0.0.0.0/0 of network 1 to 10.0.0.2 (node-1)",
        "remove the role label from Node node-1",
        "annotate Node node-1 as pending teardown:198.51.100.1",
    ];
    assert!(order.map(at).is_sorted(), "{:#?}", env.log);
    let left = env.snapshot.nodes.iter().any(|node| node.has_records() || node.client.is_some());
    assert!(!left, "{:#?}", env.snapshot.nodes);
}

#[test]
fn defect_38_a_node_whose_teardown_cannot_run_does_not_keep_the_gateway() {
    let changes: [fn(&mut Node); 4] = [
        |node| node.ready = Ready::Unknown,
        |node| node.terminating = true,
        |node| node.forget = true,
        |node| node.client = Some("yes".into()),
    ];
    for change in changes {
        let env = cleanup_of_a_client(change);
        assert_eq!(env.snapshot.network.default_route, None, "{:#?}", env.log);
        assert_eq!(env.get("node-1").pending.as_deref(), Some("teardown:198.51.100.1"));
    }
}

/// The server of node-n is detached from the network, and attached again with another address.
fn attach_elsewhere(env: &mut TestEnv, n: u8, address: Ipv4Addr) {
    let servers = &mut env.snapshot.network.servers;
    let server = servers.remove(&private(n + 1)).unwrap();
    servers.insert(address, server);
    env.edit(&format!("node-{n}"), |node| {
        node.server = Server::Cloud { id: n.into(), private_ip: Some(address) };
    });
}

#[test]
fn defect_41_a_node_with_another_private_address_is_set_up_again_before_it_is_a_candidate() {
    // With the Job of the first setup, and an hour later.
    for jobs_are_left in [true, false] {
        let mut env = TestEnv::new(config_with("clients: {enabled: true}"))
            .node(1, Some(fip(1)))
            .node(2, None)
            .node(3, None);
        env.settle();
        env.log.clear();
        if !jobs_are_left {
            env.snapshot.jobs.clear();
        }
        attach_elsewhere(&mut env, 1, private(101));
        attach_elsewhere(&mut env, 2, private(102));
        let plan = env.plan();
        assert_eq!(env.problems(), ["NoCandidate"], "{plan}");
        let marked = plan.steps.iter().filter(|step| matches!(step.action, Action::RecordPending { .. }));
        let marked: Vec<_> =
            marked.map(|step| (step.action.node().name.as_str(), step.because.code())).collect();
        assert_eq!(marked, [("node-1", "PrivateIPChanged"), ("node-2", "PrivateIPChanged")], "{plan}");
        env.settle();
        let created = env.log.iter().filter(|step| step.starts_with("create Job"));
        let nodes: Vec<&str> = created.filter_map(|step| step.rsplit(' ').next()).collect();
        assert_eq!(nodes, ["node-1", "node-2"], "{:#?}", env.log);
        assert_eq!((env.primary(), env.snapshot.network.default_route), (vec!["node-1"], Some(private(101))));
        assert!(env.plan().is_empty(), "{}", env.plan());
    }
}

#[test]
fn defect_41_a_node_whose_server_is_unknown_or_detached_for_a_moment_is_not_set_up_again() {
    let mut env = TestEnv::two_gateways();
    let attached = env.get("node-2").server;
    for server in [Server::Unknown, Server::Cloud { id: 2, private_ip: None }, attached] {
        env.edit("node-2", |node| node.server = server);
        assert_eq!(env.steps(), Vec::<String>::new(), "{server:?}");
    }
}
