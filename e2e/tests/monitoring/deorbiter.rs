//! deorbiter's alerts: a healthy one, changed in one respect each time.

use super::cases::{self, Case, Series};

const ERRORS: &str = "controller_runtime_reconcile_total{controller=\"deorbit\",result=\"error\"}";
const SUCCESSES: &str = "controller_runtime_reconcile_total{controller=\"deorbit\",result=\"success\"}";
const BINDING_ERRORS: &str =
    "controller_runtime_reconcile_total{controller=\"deorbitbinding\",result=\"error\"}";
const BINDING_SUCCESSES: &str =
    "controller_runtime_reconcile_total{controller=\"deorbitbinding\",result=\"success\"}";
const LEADER: &str = "leader_election_master_status{name=\"deorbiter\"}";
const REMAINING: &str = "deorbiter_remaining{exported_namespace=\"team\",name=\"prod\",kind=\"Volume\"}";
const OVERDUE: &str = "deorbiter_overdue{exported_namespace=\"team\",name=\"prod\"}";
const UNAVAILABLE: &str =
    "deorbiter_unavailable{exported_namespace=\"team\",name=\"prod\",server=\"target\"}";
const DELETING: &str = "deorbiter_phase{exported_namespace=\"team\",name=\"prod\",phase=\"Deleting\"}";
const PLANNED: &str = "deorbiter_phase{exported_namespace=\"team\",name=\"prod\",phase=\"Planned\"}";
const FAILED: &str = "deorbiter_phase{exported_namespace=\"team\",name=\"prod\",phase=\"Failed\"}";
const DEBRIS: &str = "deorbiter_debris{exported_namespace=\"team\",name=\"prod\",kind=\"Volume\"}";
const REFUSED_ACCESS: &str =
    "deorbiter_access_refused{exported_namespace=\"team\",name=\"prod\",server=\"target\"}";
const HELD: &str = "deorbiter_binding_held{binding=\"klusters\"}";
const READY: &str = "deorbiter_binding_ready{binding=\"klusters\"}";
const REFUSED: &str = "deorbiter_hook_responses_total{response=\"refused\"}";

/// A leader with a Deorbit that gets on and a binding in force.
const HEALTHY: [Series; 12] = [
    ("up", "1x300"),
    (LEADER, "1x300"),
    (ERRORS, "0x300"),
    (SUCCESSES, "0+1x300"),
    (BINDING_ERRORS, "0x300"),
    (BINDING_SUCCESSES, "0+1x300"),
    (REMAINING, "300-1x300"),
    (DELETING, "1x300"),
    (FAILED, "0x300"),
    (HELD, "0x300"),
    (READY, "1x300"),
    (REFUSED, "0x300"),
];

fn cases() -> Vec<Case> {
    vec![
        ("healthy", vec![], vec![("5m", vec![]), ("145m", vec![])]),
        ("gone", vec![("up", "0x300")], vec![("9m", vec![]), ("11m", vec!["DeorbiterDown"])]),
        (
            "no replica leads",
            vec![(LEADER, "0x300")],
            vec![("4m", vec![]), ("6m", vec!["DeorbiterNoLeader"])],
        ),
        (
            "the management cluster refuses",
            vec![(ERRORS, "0+1x300"), (SUCCESSES, "5x300")],
            vec![("14m", vec![]), ("40m", vec!["DeorbiterReconcileErrors"])],
        ),
        (
            "the bindings fail and the runs do not",
            vec![(BINDING_ERRORS, "0+1x300"), (BINDING_SUCCESSES, "5x300")],
            vec![("14m", vec![]), ("40m", vec!["DeorbiterReconcileErrors"])],
        ),
        ("a reconciliation fails now and then", vec![(ERRORS, "0+1x300")], vec![("140m", vec![])]),
        (
            "a run failed",
            vec![(FAILED, "1x300"), (DELETING, "0x300"), (REMAINING, "3x300")],
            vec![("2m", vec!["DeorbiterRunFailed"])],
        ),
        (
            "no resource is deleted any more",
            vec![(REMAINING, "3x300")],
            vec![("14m", vec![]), ("30m", vec!["DeorbiterRunStuck"])],
        ),
        (
            "a dry run has listed what a run would delete",
            vec![(PLANNED, "1x300"), (DELETING, "0x300"), (REMAINING, "3x300")],
            vec![("60m", vec![])],
        ),
        (
            "the target does not respond: long before the default of apiUnavailable is over",
            vec![(UNAVAILABLE, "1x300")],
            vec![("2m", vec![]), ("4m", vec!["DeorbiterServerUnavailable"])],
        ),
        ("a resource takes too long", vec![(OVERDUE, "1x300")], vec![("1m", vec!["DeorbiterOverdue"])]),
        ("nothing is left to go", vec![(REMAINING, "0x300")], vec![("145m", vec![])]),
        (
            "the target cluster refuses access",
            vec![(REFUSED_ACCESS, "1x300")],
            vec![("9m", vec![]), ("11m", vec!["DeorbiterAccessRefused"])],
        ),
        ("debris", vec![(DEBRIS, "2x300")], vec![("1m", vec!["DeorbiterDebris"])]),
        ("held", vec![(HELD, "1x300")], vec![("29m", vec![]), ("31m", vec!["DeorbiterTargetHeld"])]),
        ("held for a moment", vec![(HELD, "1x20 0x280")], vec![("31m", vec![])]),
        (
            "a binding that cannot be used",
            vec![(READY, "0x300")],
            vec![("14m", vec![]), ("16m", vec!["DeorbiterBindingNotReady"])],
        ),
        (
            "Cluster API is refused again and again",
            vec![(REFUSED, "0+1x300")],
            vec![("20m", vec![]), ("35m", vec!["DeorbiterHookRefuses"])],
        ),
        ("Cluster API was refused once", vec![(REFUSED, "0x10 1x290")], vec![("60m", vec![])]),
    ]
}

#[test]
fn every_alert_of_deorbiter_fires_in_its_case_and_no_other() {
    cases::hold("deorbiter", &HEALTHY, cases());
}
