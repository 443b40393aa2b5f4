//! Tests of the rulings in docs/natgw/defects.md, on points that the first description of natgw leaves open, and of
//! invalid input.

use common::plan::Reason as _;
use jiff::SignedDuration;

use super::env::{TestEnv, config, config_with, fip, private};
use crate::config::Mode;
use crate::observe::snapshot::{Attached, Ready, Server};
use crate::plan::{Action, Reason};

#[test]
fn ruling_candidate_is_eligible_ready_and_not_cordoned() {
    for spoil in [
        (|node| node.ready = Ready::False) as fn(&mut crate::observe::snapshot::Node),
        |node| node.ready = Ready::Unknown,
        |node| node.cordoned = true,
        |node| node.terminating = true,
    ] {
        let mut env = TestEnv::two_gateways();
        env.edit("node-1", spoil);
        assert_eq!(env.steps()[0], "move route 0.0.0.0/0 of network 1 from 10.0.0.2 to 10.0.0.3 (node-2)");
    }
}

#[test]
fn ruling_the_route_holder_stays_primary() {
    let mut env = TestEnv::two_gateways();
    env.edit("node-1", |node| node.cordoned = true);
    env.settle();
    env.edit("node-1", |node| node.cordoned = false);
    assert!(env.plan().is_empty(), "the route does not move back to the older Node");
    // Neither does a misplaced role label move it; the label follows the route.
    env.edit("node-1", |node| node.role = true);
    assert_eq!(env.steps(), ["remove the role label from Node node-1"]);
}

#[test]
fn ruling_tie_break_role_then_age_then_name() {
    let settled = || {
        let mut env =
            TestEnv::new(config()).node(1, Some(fip(1))).node(2, Some(fip(2))).node(3, Some(fip(3)));
        env.settle();
        env.snapshot.network.default_route = None;
        env.edit("node-1", |node| node.role = false);
        env
    };
    let elected = |env: &TestEnv| env.steps()[0].clone();
    assert!(elected(&settled()).ends_with("(node-1)"), "the oldest");
    let mut role = settled();
    role.edit("node-3", |node| node.role = true);
    assert!(elected(&role).ends_with("(node-3)"), "who has the role");
    let mut name = settled();
    let created = name.get("node-3").created;
    for n in 1..=3 {
        name.edit(&format!("node-{n}"), |node| node.created = created);
    }
    assert!(elected(&name).ends_with("(node-1)"), "the first by name");
}

#[test]
fn ruling_without_a_candidate_the_route_stays_at_an_eligible_node() {
    for settings in ["", "onNoCandidate: remove"] {
        let mut env = TestEnv::two_gateways();
        env.config = config_with(settings);
        env.edit("node-1", |node| node.cordoned = true);
        env.edit("node-2", |node| node.cordoned = true);
        env.settle();
        assert_eq!(env.snapshot.network.default_route, Some(private(2)));
        assert_eq!(env.primary(), [""; 0], "its holder is no candidate");
        assert_eq!(env.problems(), ["NoCandidate"]);
    }
}

#[test]
fn ruling_without_a_candidate_the_settings_decide_about_a_route_to_no_gateway() {
    let torn = |settings| {
        let mut env = TestEnv::two_gateways();
        env.config = config_with(settings);
        env.edit("node-2", |node| node.label = None);
        env.settle();
        env.edit("node-1", |node| node.label = None);
        env
    };
    let mut keep = torn("");
    keep.settle();
    assert_eq!(keep.snapshot.network.default_route, Some(private(2)));
    assert_eq!(keep.problems(), ["NoCandidate"]);
    let remove = torn("onNoCandidate: remove");
    assert_eq!(remove.steps()[0], "remove route 0.0.0.0/0 of network 1 to 10.0.0.2 (node-1)");
}

#[test]
fn ruling_route_that_natgw_does_not_recognize_is_never_removed() {
    for ip in [private(99), private(3)] {
        let mut env = TestEnv::new(config_with("onNoCandidate: remove")).node(1, None).node(2, None);
        env.snapshot.network.default_route = Some(ip);
        assert!(env.plan().is_empty());
        env.config.mode = Mode::Cleanup;
        assert!(env.plan().is_empty());
    }
}

#[test]
fn ruling_foreign_route_is_adopted_as_configured() {
    let mut env = TestEnv::two_gateways();
    let server = Attached { id: 99, name: "old-gateway".into() };
    env.snapshot.network.servers.insert(private(99), server);
    env.snapshot.network.default_route = Some(private(99));
    let plan = env.plan();
    assert_eq!(plan.steps[0].because.code(), "ForeignRoute");
    assert!(plan.steps[0].because.to_string().contains("old-gateway"));
    env.config.settings.adopt_foreign_route = false;
    assert_eq!(
        env.steps(),
        ["remove the role label from Node node-1"],
        "a primary without the route is none"
    );
    assert_eq!(env.problems(), ["ForeignRouteKept"]);
    // A next hop without a server, such as a deleted gateway's address, is not foreign: its route is moved all the
    // same.
    env.snapshot.network.servers.remove(&private(99));
    assert_eq!(env.plan().steps[0].because.code(), "GatewayGone");
}

#[test]
fn ruling_order_of_a_change_route_then_new_label_then_old() {
    let mut env = TestEnv::two_gateways();
    env.edit("node-1", |node| node.cordoned = true);
    assert_eq!(
        env.steps(),
        [
            "move route 0.0.0.0/0 of network 1 from 10.0.0.2 to 10.0.0.3 (node-2)",
            "add the role label to Node node-2",
            "remove the role label from Node node-1",
        ]
    );
}

#[test]
fn ruling_route_leaves_a_primary_without_label_before_its_teardown() {
    let mut env = TestEnv::two_gateways();
    env.edit("node-1", |node| node.label = None);
    let steps = env.steps();
    let position =
        |text: &str| steps.iter().position(|step| step.contains(text)).unwrap_or_else(|| panic!("{steps:?}"));
    assert!(position("move route") < position("annotate Node node-1 as pending teardown:198.51.100.1"));
    let mut alone = TestEnv::new(config()).node(1, Some(fip(1)));
    alone.settle();
    alone.edit("node-1", |node| node.label = None);
    alone.settle();
    assert_eq!(alone.get("node-1").setup, None, "without another candidate it is torn down all the same");
}

#[test]
fn ruling_of_nodes_with_the_same_ip_the_clouds_choice_is_elected() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1))).node(2, Some(fip(1)));
    env.assigned.insert(fip(1), Some(2));
    env.settle();
    assert_eq!(env.primary(), ["node-2"]);
    assert!(env.problems().contains(&"DuplicateFloatingIP"));
    // The floating IP is assigned to the other Node, and the route follows it.
    env.assigned.insert(fip(1), Some(1));
    env.settle();
    assert_eq!(env.primary(), ["node-1"]);
}

#[test]
fn ruling_of_nodes_with_the_same_ip_no_other_one_is_elected_without_a_list() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1))).node(2, Some(fip(1)));
    env.can_list = false;
    env.settle();
    assert_eq!((env.snapshot.network.default_route, env.primary().len()), (None, 0));
    env.snapshot.network.default_route = Some(private(3));
    env.settle();
    assert_eq!(env.primary(), ["node-2"], "the current one stays");
}

#[test]
fn ruling_a_label_that_is_no_ipv4_address_counts_as_none() {
    for label in ["yes", "2001-db8--1", "300.1.1.1", "", "0.0.0.0", "127.0.0.1", "224.0.0.1", "198.51.100.07"]
    {
        let mut env = TestEnv::two_gateways();
        env.edit("node-2", |node| node.label = Some(label.into()));
        assert!(env.problems().contains(&"InvalidFloatingIP"), "{label}");
        env.settle();
        assert_eq!(env.get("node-2").setup, None, "{label}: as if the label had been removed");
        assert!(env.kernel["node-2"].is_empty());
    }
}

#[test]
fn ruling_a_dedicated_server_can_be_no_gateway() {
    let mut env = TestEnv::two_gateways().node(3, Some(fip(3)));
    env.edit("node-3", |node| node.server = Server::Robot);
    assert!(env.plan().is_empty());
    assert_eq!(env.problems(), ["UnsupportedServer"]);
}

#[test]
fn ruling_a_node_outside_the_network_is_no_candidate() {
    let mut env = TestEnv::two_gateways().node(3, Some(fip(3)));
    env.edit("node-3", |node| node.server = Server::Cloud { id: 3, private_ip: None });
    assert!(env.plan().is_empty(), "nor is it set up: the script could only guess its private side");
    assert_eq!(env.problems(), ["ServerNotInNetwork"]);
    // A gateway whose server leaves the network loses the route, and nothing else.
    env.edit("node-1", |node| node.server = Server::Cloud { id: 1, private_ip: None });
    env.snapshot.network.servers.remove(&private(2));
    assert_eq!(env.plan().steps[0].because.code(), "GatewayGone");
    env.settle();
    assert_eq!((env.primary(), env.get("node-1").setup.is_some()), (vec!["node-2"], true));
}

#[test]
fn invalid_annotation_stops_its_node_until_forget() {
    for mangle in [
        (|node| node.setup = Some("garbage".into())) as fn(&mut crate::observe::snapshot::Node),
        |node| node.pending = Some("garbage".into()),
        |node| node.client = Some("garbage".into()),
    ] {
        let mut env = TestEnv::two_gateways();
        env.edit("node-2", mangle);
        assert!(env.plan().is_empty());
        assert_eq!(env.problems(), ["InvalidAnnotation"]);
        env.edit("node-2", |node| node.forget = true);
        env.settle();
        env.assert_settled();
        assert_eq!(env.get("node-2").setup, Some("198.51.100.2".into()));
    }
}

#[test]
fn forget_ends_a_teardown_that_can_never_succeed() {
    let mut env = TestEnv::two_gateways();
    env.edit("node-2", |node| node.label = Some(fip(3).to_string()));
    env.settle_with(|task| task.kind.is_setup());
    assert_eq!(env.get("node-2").pending.as_deref(), Some("teardown:198.51.100.2"));
    env.edit("node-2", |node| node.forget = true);
    env.settle();
    assert_eq!(env.get("node-2").setup, Some("198.51.100.3".into()));
}

#[test]
fn no_job_is_created_while_the_kubelet_does_not_report() {
    let mut env = TestEnv::new(config()).node(1, Some(fip(1)));
    env.edit("node-1", |node| node.ready = Ready::Unknown);
    assert!(env.plan().is_empty());
    // A Node that is not Ready gets its Job: the CNI plugin of a Node without a public address may wait for this Job.
    env.edit("node-1", |node| node.ready = Ready::False);
    assert_eq!(env.steps().len(), 2);
}

#[test]
fn clients_are_set_up_if_enabled_and_torn_down_before_a_gateway_setup() {
    let mut env = TestEnv::new(config_with("clients: {enabled: true}")).node(1, Some(fip(1))).node(2, None);
    env.settle();
    assert_eq!(env.get("node-2").client, Some("10.0.0.1".into()));
    assert_eq!(env.get("node-1").client, None);
    env.edit("node-2", |node| node.label = Some(fip(2).to_string()));
    env.settle();
    assert_eq!(
        (env.get("node-2").client.clone(), env.get("node-2").setup.clone()),
        (None, Some("198.51.100.2".into()))
    );
    let order: Vec<bool> = ["(client-teardown:10.0.0.1", "(setup:198.51.100.2"]
        .iter()
        .map(|job| env.log.iter().any(|step| step.contains(job)))
        .collect();
    assert_eq!(order, [true, true]);
    env.edit("node-2", |node| node.label = None);
    env.settle();
    env.config.settings.clients.enabled = false;
    env.settle();
    assert_eq!(env.get("node-2").client, None);
    assert!(env.kernel["node-2"].is_empty());
}

#[test]
fn with_label_management_labels_follow_the_assignments() {
    let mut env = TestEnv::new(config_with("floatingIPs: {label: true}")).node(1, None).node(2, None);
    env.assigned.insert(fip(1), Some(1));
    env.settle();
    assert_eq!(
        (env.get("node-1").label.clone(), env.primary()),
        (Some("198.51.100.1".into()), vec!["node-1"])
    );
    env.assigned.insert(fip(1), Some(2));
    let labels = |env: &TestEnv| -> Vec<String> {
        env.steps().into_iter().filter(|step| step.contains("floating")).collect()
    };
    assert_eq!(labels(&env), ["label Node node-2 with floating IP 198.51.100.1"]);
    let problems = env.problems();
    assert!(
        problems.contains(&"FloatingIPNotAssigned") && problems.contains(&"LabelRemovalHeld"),
        "{problems:?}"
    );
    while env.get("node-2").setup.is_none() {
        env.reconcile();
        env.end_jobs(&|_| true);
    }
    assert_eq!(
        labels(&env),
        ["remove the floating-IP label from Node node-1"],
        "the old gateway is torn down once the new one is eligible"
    );
    env.settle();
    assert_eq!((env.get("node-1").label.clone(), env.primary()), (None, vec!["node-2"]));
    env.assigned.insert(fip(2), Some(2));
    env.settle();
    assert_eq!(env.get("node-2").label, Some("198.51.100.1".into()), "a true label stays");
    assert_eq!(env.problems(), ["MultipleFloatingIPs"]);
}

#[test]
fn label_removed_by_mistake_is_written_again_before_a_teardown() {
    let mut env = TestEnv::new(config_with("floatingIPs: {label: true}")).node(1, None).node(2, None);
    env.assigned.insert(fip(1), Some(1));
    env.assigned.insert(fip(2), Some(2));
    env.settle();
    assert_eq!(env.primary(), ["node-1"]);
    env.edit("node-1", |node| node.label = None);
    assert_eq!(env.steps(), ["label Node node-1 with floating IP 198.51.100.1"]);
    // The cloud reports another assignment: the label changes, and the Node is set up for the new floating IP.
    env.assigned.insert(fip(1), None);
    env.assigned.insert(fip(3), Some(1));
    env.settle();
    assert_eq!(env.get("node-1").label, Some("198.51.100.3".into()));
}

#[test]
fn cleanup_removes_everything_of_natgw_and_nothing_else() {
    let mut env = TestEnv::two_gateways().node(3, None);
    env.config = config_with("clients: {enabled: true}");
    env.settle();
    env.config.mode = Mode::Cleanup;
    env.log.clear();
    let plan = env.plan();
    let teardowns = plan.steps.iter().filter(|step| matches!(step.action, Action::RecordPending { .. }));
    assert!(teardowns.map(|step| &step.because).eq([&Reason::CleanupRequested; 2]), "{plan}");
    env.settle();
    let at = |text: &str| env.log.iter().position(|step| step.starts_with(text)).unwrap();
    let removed = at("remove route 0.0.0.0/0 of network 1 to 10.0.0.2 (node-1)");
    assert!(removed < at("annotate Node node-1 as pending teardown:198.51.100.1"), "{:#?}", env.log);
    assert_eq!((env.snapshot.network.default_route, env.primary().len()), (None, 0));
    for node in &env.snapshot.nodes {
        assert!(!node.has_records() && node.client.is_none() && node.setup_boot_id.is_none(), "{node:?}");
        assert!(env.kernel.get(&node.name).is_none_or(std::collections::BTreeSet::is_empty));
    }
    assert_eq!(env.get("node-1").label, Some("198.51.100.1".into()), "the label is not natgw's");
}

#[test]
fn settled_state_has_an_empty_plan() {
    let mut env = TestEnv::two_gateways();
    env.now += SignedDuration::from_hours(24);
    env.snapshot.jobs.clear();
    assert!(env.plan().is_empty() && env.problems().is_empty());
}
