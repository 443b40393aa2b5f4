//! cgw-controller's alerts: a healthy cluster with two gateway nodes, changed in one respect each time.

use super::cases::{self, Case, Series};

const CONTROLLER: &str = "{job=\"cgw-controller\",pod=\"c\"}up";
const NO_MASTER: &str = "{job=\"cgw-controller\",pod=\"c\"}cgw_controller_problems{reason=\"NoMaster\"}";
const MISSING: &str = "{job=\"cgw-controller\",pod=\"c\"}cgw_controller_problems{reason=\"ServiceMissing\"}";
const KEEPER_1: &str =
    "{job=\"cgw-keeper\",node=\"g1\",cgw_controller_perimeter_dev_virtual_router=\"51\"}up";
const MASTER_1: &str =
    "{job=\"cgw-keeper\",node=\"g1\",cgw_controller_perimeter_dev_virtual_router=\"51\"}cgw_keeper_master";
const MASTER_2: &str =
    "{job=\"cgw-keeper\",node=\"g2\",cgw_controller_perimeter_dev_virtual_router=\"51\"}cgw_keeper_master";
const FAILURES: &str = "{job=\"cgw-keeper\",node=\"g1\"}cgw_keeper_notification_failures_total";
const OUTDATED: &str = "{job=\"cgw-keeper\",node=\"g1\",cgw_controller_perimeter_dev_virtual_router=\"51\"}cgw_keeper_configuration_outdated";
const STRIPPED: &str = "{job=\"cgw-keeper\",node=\"g1\"}cgw_keeper_stripped_vips_total";
const TRANSITIONS: &str = "{job=\"cgw-keeper\",node=\"g1\",cgw_controller_perimeter_dev_virtual_router=\"51\"}cgw_keeper_transitions_total{state=\"MASTER\"}";
const AGENT: &str = "{job=\"cgw-agent\",node=\"n1\"}up";
const APPLY: &str = "{job=\"cgw-agent\",node=\"n1\"}cgw_agent_apply_errors_total";
const REPAIRS: &str = "{job=\"cgw-agent\",node=\"n1\"}cgw_agent_repairs_total{object=\"route\"}";
const CONFLICT: &str = "{job=\"cgw-agent\",node=\"n1\"}cgw_agent_problems{reason=\"PodConflict\"}";

const HEALTHY: [Series; 15] = [
    (CONTROLLER, "1x300"),
    (NO_MASTER, "0x300"),
    (MISSING, "0x300"),
    (KEEPER_1, "1x300"),
    (MASTER_1, "1x300"),
    (MASTER_2, "0x300"),
    (FAILURES, "0x300"),
    (OUTDATED, "0x300"),
    (STRIPPED, "0x300"),
    (TRANSITIONS, "1x300"),
    (AGENT, "1x300"),
    (APPLY, "0x300"),
    (REPAIRS, "0x300"),
    (CONFLICT, "0x300"),
    ("{job=\"cgw-agent\",node=\"n1\"}cgw_agent_vips{gateway=\"none\"}", "0x300"),
];

fn cases() -> Vec<Case> {
    vec![
        ("healthy", vec![], vec![("5m", vec![]), ("145m", vec![])]),
        (
            "no controller",
            vec![(CONTROLLER, "0x300")],
            vec![("4m", vec![]), ("6m", vec!["CgwControllerDown"])],
        ),
        ("no gateway", vec![(NO_MASTER, "2x300")], vec![("1m", vec![]), ("3m", vec!["CgwNoMaster"])]),
        ("two masters", vec![(MASTER_2, "1x300")], vec![("30s", vec![]), ("2m", vec!["CgwTwoMasters"])]),
        (
            "the controller does not confirm",
            vec![(FAILURES, "0+1x300")],
            vec![("4m", vec![]), ("10m", vec!["CgwNotificationsFailing"])],
        ),
        (
            "one notification was retried once",
            vec![(FAILURES, "0x9 1x290")],
            vec![("6m", vec![]), ("20m", vec![])],
        ),
        ("a keeper is gone", vec![(KEEPER_1, "0x300")], vec![("1m", vec![]), ("3m", vec!["CgwKeeperDown"])]),
        (
            "a changed configuration is refused",
            vec![(OUTDATED, "0x9 1x290")],
            vec![("9m", vec![]), ("12m", vec!["CgwConfigurationNotUsed"])],
        ),
        (
            "a changed configuration is refused for a minute",
            vec![(OUTDATED, "0x9 1x1 0x290")],
            vec![("7m", vec![]), ("12m", vec![])],
        ),
        (
            "keepalived was killed",
            vec![(STRIPPED, "0x9 3x290")],
            vec![("4m", vec![]), ("10m", vec!["CgwVipsStripped"]), ("30m", vec![])],
        ),
        (
            "VIPs move each minute",
            vec![(TRANSITIONS, "0+0.5x300")],
            vec![("10m", vec![]), ("40m", vec!["CgwGatewayFlapping"])],
        ),
        ("an agent is gone", vec![(AGENT, "0x300")], vec![("2m", vec![]), ("4m", vec!["CgwAgentDown"])]),
        (
            "the kernel refuses",
            vec![(APPLY, "0+1x300")],
            vec![("4m", vec![]), ("10m", vec!["CgwAgentApplyErrors"])],
        ),
        (
            "a firewall manager flushes",
            vec![(REPAIRS, "0+1x300")],
            vec![("1m", vec![]), ("60m", vec!["CgwDatapathRepaired"])],
        ),
        ("a conflict", vec![(CONFLICT, "1x300")], vec![("14m", vec![]), ("16m", vec!["CgwProblems"])]),
        (
            "a Service is missing",
            vec![(MISSING, "1x300")],
            vec![("14m", vec![]), ("16m", vec!["CgwProblems"])],
        ),
    ]
}

#[test]
fn alerts_fire_in_their_case_and_no_other() {
    cases::hold("cgw-controller", &HEALTHY, cases());
}
