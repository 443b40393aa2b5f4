//! apinetlet's alerts: a healthy one, changed in one respect each time.

use super::cases::{self, Case, Series};

const LEADER: &str = "leader_election_master_status{name=\"fa89daf5.apinetlet.apinet.ironcore.dev\"}";
const ERRORS: &str = "controller_runtime_reconcile_total{controller=\"virtualip\",result=\"error\"}";
const SUCCESSES: &str = "controller_runtime_reconcile_total{controller=\"virtualip\",result=\"success\"}";
const GARBAGE_ERRORS: &str =
    "controller_runtime_reconcile_total{controller=\"garbage-collector\",result=\"error\"}";
const FORBIDDEN: &str = "perimeter_watch_errors_total{api=\"api-net\",kind=\"Network\",reason=\"forbidden\"}";
const GONE: &str = "perimeter_watch_errors_total{api=\"main\",kind=\"Network\",reason=\"gone\"}";
const NO_NETWORK: &str = "apinetlet_problems{kind=\"NATGateway\",reason=\"NetworkNotFound\"}";

/// A leader that maps VirtualIPs, and has nothing else to do.
const HEALTHY: [Series; 8] = [
    ("up", "1x300"),
    (LEADER, "1x300"),
    (ERRORS, "0x300"),
    (SUCCESSES, "0+1x300"),
    (GARBAGE_ERRORS, "0x300"),
    (FORBIDDEN, "_x300"),
    (GONE, "_x300"),
    (NO_NETWORK, "0x300"),
];

fn cases() -> Vec<Case> {
    vec![
        ("healthy", vec![], vec![("5m", vec![]), ("145m", vec![])]),
        ("gone", vec![("up", "0x300")], vec![("9m", vec![]), ("11m", vec!["ApinetletDown"])]),
        ("no leader", vec![(LEADER, "0x300")], vec![("4m", vec![]), ("6m", vec!["ApinetletNoLeader"])]),
        (
            "one object fails each minute, and others succeed",
            vec![(ERRORS, "0 0 1 1 2 2 3 3 4 4 5 5 6 6 7 7 8 8 9 9 10 10+0.5x280")],
            vec![("20m", vec![]), ("40m", vec!["ApinetletReconcileErrors"])],
        ),
        (
            "garbage cannot be deleted: an error in five minutes",
            vec![(
                GARBAGE_ERRORS,
                "0x9 1x9 2x9 3x9 4x9 5x9 6x9 7x9 8x9 9x9 10x9 11x9 12x9 13x9 14x9 15x9 16x9 17x130",
            )],
            vec![("20m", vec![]), ("60m", vec!["ApinetletReconcileErrors"]), ("125m", vec![])],
        ),
        (
            "the apinet cluster was unavailable for nine minutes",
            vec![(ERRORS, "0x20 0+1x18 18x260"), (SUCCESSES, "0+1x20 20x18 20+1x260")],
            vec![("20m", vec![]), ("29m", vec![]), ("45m", vec![])],
        ),
        (
            "a reconciliation fails now and then",
            vec![(ERRORS, "0x50 1x50 2x50 3x150")],
            vec![("140m", vec![])],
        ),
        (
            "a permission is missing",
            vec![(FORBIDDEN, "1+1x300")],
            vec![
                ("9m", vec![]),
                ("25m", vec!["ApinetletWatchErrors"]),
                ("140m", vec!["ApinetletWatchErrors"]),
            ],
        ),
        (
            "an API server was restarted",
            vec![(FORBIDDEN, "_x20 1 2 3 3x277")],
            vec![("15m", vec![]), ("25m", vec![]), ("60m", vec![])],
        ),
        ("watches expire", vec![(GONE, "1+1x300")], vec![("60m", vec![])]),
        (
            "a NATGateway without its Network",
            vec![(NO_NETWORK, "1x300")],
            vec![("29m", vec![]), ("31m", vec!["ApinetletProblems"])],
        ),
        (
            "a Network that is created after its NATGateway",
            vec![(NO_NETWORK, "1x20 0x280")],
            vec![("60m", vec![])],
        ),
    ]
}

#[test]
fn every_alert_of_apinetlet_fires_in_its_case_and_no_other() {
    cases::hold("apinetlet", &HEALTHY, cases());
}
