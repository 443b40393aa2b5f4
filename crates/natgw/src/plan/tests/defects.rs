//! Tests of the defects in docs/natgw/defects.md that concern the plan. The others are tested in the modules that they
//! concern.

use common::plan::Reason as _;
use jiff::SignedDuration;

use super::env::{TestEnv, config, config_with, fip, private};
use crate::observe::snapshot::{Outcome, Ready, Server};
use crate::plan::action::Failures;
use crate::plan::floating_ip::CONFIRMATIONS;

#[test]
fn defect_01_a_primary_is_elected_routed_to_and_labelled() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1))).node(2, None);
    assert_eq!(
        env.steps(),
        ["annotate Node node-1 as pending setup:198.51.100.1".to_owned(), env.steps().pop().unwrap()],
        "nothing is routed before the setup is done"
    );
    env.settle();
    assert_eq!(env.snapshot.network.default_route, Some(private(2)));
    assert_eq!(env.primary(), ["node-1"]);
    assert_eq!(env.get("node-1").setup, Some("198.51.100.1".into()));
    let tail: Vec<&str> = env.log.iter().rev().take(2).rev().map(String::as_str).collect();
    assert_eq!(
        tail,
        ["add route 0.0.0.0/0 of network 1 to 10.0.0.2 (node-1)", "add the role label to Node node-1"],
        "the route first, then the label"
    );
}

#[test]
fn defect_02_a_new_job_waits_until_the_old_one_is_gone() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
    env.reconcile();
    assert_eq!(env.jobs("node-1"), ["setup:198.51.100.1"]);
    env.edit("node-1", |node| node.label = None);
    env.reconcile();
    assert!(env.snapshot.jobs_of("node-1")[0].terminating);
    assert_eq!(env.steps(), [""; 0], "while the Job is terminating, nothing else is started");
    env.snapshot.jobs.clear();
    env.reconcile();
    assert_eq!(env.jobs("node-1"), ["teardown:198.51.100.1"]);
}

#[test]
fn defect_03_success_of_a_terminating_job_is_ignored() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
    env.reconcile();
    let job = &mut env.snapshot.jobs.get_mut("node-1").unwrap()[0];
    job.outcome = Outcome::Succeeded { at: jiff::Timestamp::UNIX_EPOCH };
    job.terminating = true;
    assert_eq!(env.steps(), [""; 0]);
}

#[test]
fn defect_04_jobs_of_another_ip_are_deleted_whatever_their_state() {
    for outcome in [
        Outcome::Running,
        Outcome::Succeeded { at: jiff::Timestamp::UNIX_EPOCH },
        Outcome::Failed { at: jiff::Timestamp::UNIX_EPOCH, message: String::new() },
    ] {
        let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
        env.reconcile();
        env.snapshot.jobs.get_mut("node-1").unwrap()[0].outcome = outcome.clone();
        env.edit("node-1", |node| node.label = Some(fip(2).to_string()));
        let steps = env.steps();
        assert!(
            steps.len() == 2 && steps[1].starts_with("delete Job natgw-setup-"),
            "{outcome:?}: {steps:?}"
        );
    }
}

#[test]
fn defect_05_a_label_that_changes_during_setup_leaves_nothing_behind() {
    for new in [None, Some(fip(2))] {
        let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
        env.reconcile();
        env.edit("node-1", |node| node.label = new.map(|ip| ip.to_string()));
        env.end_jobs(&|_| true);
        env.settle();
        assert!(
            env.log.iter().any(|step| step.contains("teardown:198.51.100.1, attempt 1")),
            "{:#?}",
            env.log
        );
        env.assert_settled();
    }
}

#[test]
fn defect_06_a_label_that_returns_during_teardown_is_set_up_again() {
    let mut env = TestEnv::two_gateways();
    let label = env.get("node-2").label.clone();
    env.edit("node-2", |node| node.label = None);
    env.reconcile();
    assert_eq!(env.get("node-2").pending.as_deref(), Some("teardown:198.51.100.2"));
    env.edit("node-2", |node| node.label = label);
    // Annotation and label agree, but the state of the kernel is unknown, so the Node is no candidate.
    env.edit("node-1", |node| node.cordoned = true);
    assert!(!env.steps().iter().any(|step| step.contains("route")), "{:?}", env.steps());
    env.settle();
    assert!(env.log.iter().any(|step| step.contains("(setup:198.51.100.2, attempt 1)")));
    env.assert_safe();
    assert_eq!(env.primary(), ["node-2"]);
}

#[test]
fn defect_07_a_reboot_ends_eligibility_until_the_setup_has_run_again() {
    let mut env = TestEnv::two_gateways();
    env.reboot("node-1");
    let steps = env.steps();
    assert_eq!(steps[0], "move route 0.0.0.0/0 of network 1 from 10.0.0.2 to 10.0.0.3 (node-2)");
    assert!(
        steps.iter().any(|step| step.contains("(setup:198.51.100.1, attempt 1) on Node node-1")),
        "{steps:?}"
    );
    assert_eq!(env.plan().steps[0].because.code(), "GatewayNotEligible");
    env.settle();
    env.assert_safe();
    assert_eq!(env.primary(), ["node-2"], "the route does not move back");
}

#[test]
fn defect_08_failed_job_is_recorded_and_retried_after_its_backoff() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
    env.settle_with(|_| false);
    let node = env.get("node-1");
    assert_eq!((node.failures, node.retry_after), (1, Some(env.now + SignedDuration::from_mins(1))));
    assert!(env.log.iter().any(|step| step.starts_with("record failure 1 of setup:198.51.100.1")));
    env.settle_with(|_| false);
    assert_eq!(env.get("node-1").failures, 1, "not before its time");
    env.now += SignedDuration::from_secs(61);
    env.settle_with(|_| false);
    let node = env.get("node-1");
    assert_eq!((node.failures, node.retry_after), (2, Some(env.now + SignedDuration::from_mins(2))));
    env.now += SignedDuration::from_mins(2);
    env.settle();
    assert_eq!((env.get("node-1").failures, env.primary()), (0, vec!["node-1"]));
    // After a success, the count of failures starts at zero.
    env.reboot("node-1");
    env.settle_with(|_| false);
    assert_eq!(env.get("node-1").failures, 1);
}

#[test]
fn defect_12_jobs_of_a_deleted_node_are_ignored() {
    let mut env = TestEnv::two_gateways();
    env.edit("node-2", |node| node.label = None);
    env.reconcile();
    env.snapshot.nodes.retain(|node| node.name != "node-2");
    assert!(env.plan().is_empty());
}

#[test]
fn defect_16_a_node_that_leaves_the_selector_is_torn_down() {
    let mut env = TestEnv::two_gateways();
    env.edit("node-1", |node| node.selected = false);
    env.settle();
    assert_eq!(env.get("node-1").setup, None);
    assert!(env.kernel["node-1"].is_empty());
    assert_eq!(env.primary(), ["node-2"]);
}

#[test]
fn defect_18_stale_label_is_compared_with_the_cloud_before_the_election() {
    let mut env = TestEnv::two_gateways();
    env.assigned.insert(fip(2), Some(77));
    env.edit("node-1", |node| node.cordoned = true);
    let problems = env.problems();
    assert!(problems.contains(&"FloatingIPNotAssigned") && problems.contains(&"NoCandidate"), "{problems:?}");
    assert!(!env.steps().iter().any(|step| step.contains("route")), "{:?}", env.steps());
}

#[test]
fn defect_19_a_gateway_that_is_not_ready_loses_the_route() {
    for ready in [Ready::False, Ready::Unknown] {
        let mut env = TestEnv::two_gateways();
        env.edit("node-1", |node| node.ready = ready);
        env.settle();
        assert_eq!(env.snapshot.network.default_route, Some(private(3)));
        assert_eq!(env.primary(), ["node-2"]);
    }
}

#[test]
fn job_of_a_process_that_had_lost_its_lease_counts_as_a_marker() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1))).node(2, Some(fip(2)));
    env.settle();
    let mut stray = env.snapshot.jobs["node-2"][0].clone();
    env.edit("node-2", |node| node.label = None);
    env.settle();
    stray.name = "natgw-setup-late".into();
    env.kernel.get_mut("node-2").unwrap().insert(stray.task.unwrap().part());
    env.snapshot.jobs.insert("node-2".into(), vec![stray]);
    env.settle();
    env.assert_settled();
}

#[test]
fn a_node_unknown_to_the_cloud_is_left_alone() {
    let mut env = TestEnv::two_gateways();
    env.edit("node-2", |node| node.server = Server::Unknown);
    assert!(env.plan().is_empty(), "a token of another project must not tear anything down");
    assert_eq!(env.problems(), ["ServerNotFound"]);
}

/// The environment with each state of a floating IP that makes its Node no candidate: assigned to another server, to
/// none, not listed.
fn not_assigned(env: &mut TestEnv, ip: std::net::Ipv4Addr) -> [TestEnv; 3] {
    [Some(Some(77)), Some(None), None].map(|holder| {
        let mut env = env.clone();
        env.assigned.remove(&ip);
        env.assigned.extend(holder.map(|holder| (ip, holder)));
        env
    })
}

#[test]
fn defect_23_a_primary_whose_floating_ip_is_not_assigned_to_it_loses_the_route() {
    for settings in ["", "floatingIPs: {label: true}"] {
        for unrelated_duplicate in [false, true] {
            let mut settled = TestEnv::two_gateways();
            settled.config = config_with(settings);
            if unrelated_duplicate {
                settled = settled.node(3, Some(fip(3))).node(4, Some(fip(3)));
                settled.config.settings.floating_ips.label = false;
            }
            for env in not_assigned(&mut settled, fip(1)) {
                let steps = env.steps();
                assert!(
                    steps.contains(
                        &"move route 0.0.0.0/0 of network 1 from 10.0.0.2 to 10.0.0.3 (node-2)".to_owned()
                    ),
                    "{settings} {unrelated_duplicate} {:?}: {steps:?}",
                    env.assigned
                );
                let problem = ["FloatingIPNotAssigned", "FloatingIPUnassigned"];
                let reported = env.plan();
                let lost = "the floating IP of the gateway node-1 is not assigned to its server";
                let mut reasons = reported.steps.iter().map(|step| step.because.to_string());
                assert!(!settings.is_empty() || reasons.any(|reason| reason == lost), "{reported}");
                let mut codes = reported.problems.iter().map(|problem| problem.because.code());
                let mut acts = reported.steps.iter().map(|step| step.because.code());
                assert!(
                    codes.any(|code| problem.contains(&code)) || acts.any(|code| problem.contains(&code))
                );
            }
        }
    }
}

#[test]
fn defect_23_without_another_candidate_the_route_stays_and_the_problem_is_reported() {
    let mut settled = TestEnv::new(config()).node(1, Some(fip(1)));
    settled.settle();
    for env in not_assigned(&mut settled, fip(1)) {
        assert_eq!(env.steps(), ["remove the role label from Node node-1"]);
        assert_eq!(env.problems(), ["FloatingIPNotAssigned", "NoCandidate"]);
    }
}

/// Gateways on Nodes 1 to `count`, with label management.
fn managed_gateways(count: u8) -> TestEnv {
    let mut env = TestEnv::new(config_with("floatingIPs: {label: true}"));
    for n in 1..=count {
        env = env.node(n, Some(fip(n)));
    }
    env.settle();
    env.log.clear();
    env
}

fn labelled(env: &TestEnv) -> Vec<&str> {
    let nodes = env.snapshot.nodes.iter().filter(|node| node.label.is_some());
    nodes.map(|node| node.name.as_str()).collect()
}

#[test]
fn defect_24_an_empty_list_of_floating_ips_tears_no_gateway_down() {
    let mut env = managed_gateways(2);
    env.assigned.clear();
    env.settle();
    for name in ["node-1", "node-2"] {
        assert!(env.get(name).setup.is_some() && env.get(name).label.is_some(), "{name}: {:#?}", env.log);
    }
    assert_eq!(env.snapshot.network.default_route, Some(private(2)));
    assert_eq!(
        env.problems(),
        ["LabelRemovalHeld", "FloatingIPNotAssigned", "FloatingIPNotAssigned", "NoCandidate"]
    );
}

#[test]
fn defect_24_the_last_eligible_gateway_stays_although_the_empty_list_is_confirmed() {
    let mut env = managed_gateways(3);
    env.assigned.clear();
    env.snapshot.floating_ip_polls = CONFIRMATIONS;
    env.settle();
    assert_eq!(labelled(&env), ["node-1"], "the route is there");
    assert!(env.get("node-1").setup.is_some());
    assert_eq!(env.snapshot.network.default_route, Some(private(2)));
    assert!(env.problems().contains(&"LabelRemovalHeld"));
    // Another gateway becomes eligible: now node-1 loses its label.
    env.assigned.insert(fip(2), Some(2));
    env.settle();
    assert_eq!((labelled(&env), env.primary()), (vec!["node-2"], vec!["node-2"]));
}

#[test]
fn defect_24_a_list_that_takes_more_than_half_of_the_gateways_waits_for_confirmation() {
    let mut env = managed_gateways(5);
    for n in 3..=5 {
        env.assigned.insert(fip(n), None);
    }
    env.settle();
    assert_eq!(labelled(&env).len(), 5);
    assert!(env.problems().contains(&"LabelRemovalHeld"));
    env.snapshot.floating_ip_polls = CONFIRMATIONS - 1;
    env.settle();
    assert_eq!(labelled(&env).len(), 5);
    env.snapshot.floating_ip_polls = CONFIRMATIONS;
    env.settle();
    assert_eq!(labelled(&env), ["node-1", "node-2"]);
    assert_eq!(env.problems(), [""; 0]);
}

#[test]
fn defect_24_half_of_the_gateways_are_removed_without_confirmation() {
    let mut env = managed_gateways(4);
    env.assigned.insert(fip(1), None);
    env.assigned.insert(fip(2), Some(77));
    env.settle();
    assert_eq!((labelled(&env), env.primary()), (vec!["node-3", "node-4"], vec!["node-3"]));
}

#[test]
fn defect_24_another_floating_ip_on_the_only_gateway_is_used_once_it_is_confirmed() {
    let mut env = managed_gateways(1);
    env.assigned.insert(fip(1), None);
    env.assigned.insert(fip(3), Some(1));
    env.settle();
    assert_eq!(env.get("node-1").setup.as_deref(), Some("198.51.100.1"));
    env.snapshot.floating_ip_polls = CONFIRMATIONS;
    env.settle();
    assert_eq!((env.get("node-1").setup.as_deref(), env.primary()), (Some("198.51.100.3"), vec!["node-1"]));
}

/// The actions that are run if the one with this text fails.
fn run_despite(env: &TestEnv, fails: &str) -> Vec<String> {
    let plan = env.plan();
    let mut failures = Failures::default();
    let mut run = Vec::new();
    for step in &plan.steps {
        let text = step.action.to_string();
        if failures.prevent(&step.action) {
            continue;
        }
        if text.contains(fails) {
            failures.record(&step.action, false);
        } else {
            run.push(text);
        }
    }
    run
}

#[test]
fn defect_25_a_refused_write_stops_only_what_relies_on_it() {
    let mut env = TestEnv::two_gateways().node(3, Some(fip(3)));
    env.edit("node-1", |node| node.label = None);
    let setup = |run: &[String]| run.iter().any(|action| action.contains("(setup:198.51.100.3, attempt 1)"));
    let teardown =
        |run: &[String]| run.iter().any(|action| action.contains("(teardown:198.51.100.1, attempt 1)"));
    let role = |run: &[String]| run.iter().any(|action| action.contains("role label"));
    let route = run_despite(&env, "move route");
    assert!(setup(&route) && !teardown(&route) && !role(&route), "the traffic is still at node-1: {route:?}");
    let add = run_despite(&env, "add the role label");
    assert!(setup(&add) && teardown(&add) && !role(&add), "node-1 keeps the role label: {add:?}");
    let remove = run_despite(&env, "remove the role label");
    assert!(setup(&remove) && teardown(&remove), "{remove:?}");
    let pending = run_despite(&env, "annotate Node node-1");
    assert!(
        setup(&pending) && !teardown(&pending) && role(&pending),
        "no Job without its annotation: {pending:?}"
    );
}

#[test]
fn defect_25_a_rebooted_gateway_is_set_up_again_although_the_route_cannot_be_moved() {
    let mut env = TestEnv::two_gateways();
    env.reboot("node-1");
    let run = run_despite(&env, "move route");
    assert!(run.iter().any(|action| action.contains("(setup:198.51.100.1, attempt 1)")), "{run:?}");
}
