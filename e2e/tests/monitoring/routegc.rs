//! routegc's alerts: a healthy one, changed in one respect each time.

use super::cases::{self, Case, Series};

const LEADER: &str = "leader_election_master_status{name=\"routegc\"}";
const FAILED: &str =
    "routegc_failed_operations_total{name=\"a\",router=\"r1\",reason=\"OpenStackUnavailable\"}";
const TIMED_OUT: &str = "routegc_failed_operations_total{name=\"a\",router=\"r1\",reason=\"TimedOut\"}";
const SUCCESS: &str = "routegc_last_success_timestamp_seconds{name=\"a\",router=\"r1\"}";
const THRESHOLD: &str = "routegc_blocked_total{name=\"a\",router=\"r1\",reason=\"threshold\"}";
const PARTIAL: &str = "routegc_blocked_total{name=\"a\",router=\"r1\",reason=\"partial\"}";
const VALID: &str = "routegc_routes{name=\"a\",router=\"r1\",state=\"valid\"}";
const FOREIGN: &str = "routegc_routes{name=\"a\",router=\"r1\",state=\"foreign\"}";
const ORPHAN: &str = "routegc_routes{name=\"a\",router=\"r1\",state=\"orphan\"}";
const DUPLICATE: &str = "routegc_routes{name=\"a\",router=\"r1\",state=\"duplicate\"}";
const RECREATED: &str = "routegc_routes{name=\"a\",router=\"r1\",state=\"recreated\"}";
const LIMIT: &str = "routegc_routes_limit{name=\"a\",router=\"r1\"}";

/// Of another RouteGC with the same router.
const OTHER_S_SUCCESS: &str = "routegc_last_success_timestamp_seconds{name=\"b\",router=\"r1\"}";
const OTHER_S_VALID: &str = "routegc_routes{name=\"b\",router=\"r1\",state=\"valid\"}";

/// A leader with one router, which has 22 routes of 30 and no orphaned one. A reconciliation every five minutes.
const HEALTHY: [Series; 12] = [
    ("up", "1x300"),
    (LEADER, "1x300"),
    (FAILED, "0x300"),
    (
        SUCCESS,
        "0x9 300x10 600x10 900x10 1200x10 1500x10 1800x10 2100x10 2400x10 2700x10 3000x10 3300x10 3600x190",
    ),
    (THRESHOLD, "0x300"),
    (PARTIAL, "0x300"),
    (VALID, "20x300"),
    (FOREIGN, "2x300"),
    (ORPHAN, "0x300"),
    (DUPLICATE, "0x300"),
    (RECREATED, "0x300"),
    (LIMIT, "30x300"),
];

fn cases() -> Vec<Case> {
    vec![
        ("healthy", vec![], vec![("5m", vec![]), ("145m", vec![])]),
        ("gone", vec![("up", "0x300")], vec![("9m", vec![]), ("11m", vec!["RoutegcDown"])]),
        ("no leader", vec![(LEADER, "0x300")], vec![("4m", vec![]), ("6m", vec!["RoutegcNoLeader"])]),
        (
            "OpenStack is unavailable",
            vec![(FAILED, "0+1x300"), (SUCCESS, "0x300")],
            vec![("14m", vec![]), ("40m", vec!["RoutegcReconcileErrors"])],
        ),
        (
            "each reconciliation fails, five minutes apart, as with an interval of hours",
            vec![(FAILED, "0x9 1x9 2x9 3x9 4x9 5x9 6x9 7x9 8x9 9x9 10x9 11x9 12x180"), (SUCCESS, "0x300")],
            vec![("14m", vec![]), ("50m", vec!["RoutegcReconcileErrors"])],
        ),
        (
            "a list does not respond, and each reconciliation takes thirteen minutes with its backoff",
            vec![(FAILED, "0x12 1x12 2x12 3x12 4x12 5x240"), (SUCCESS, "0x300")],
            vec![
                ("14m", vec![]),
                ("40m", vec!["RoutegcReconcileErrors"]),
                ("60m", vec!["RoutegcReconcileErrors"]),
            ],
        ),
        (
            "a few reconciliations fail after a start, and the interval is an hour",
            vec![(FAILED, "0 4x300"), (SUCCESS, "0x2 90x298")],
            vec![("14m", vec![]), ("20m", vec![]), ("30m", vec![])],
        ),
        (
            "OpenStack does not respond",
            vec![(TIMED_OUT, "_x20 1x30 2x30 3x30 4x180"), (SUCCESS, "0x300")],
            vec![("39m", vec![]), ("60m", vec!["RoutegcReconcileErrors"])],
        ),
        (
            "a reconciliation fails now and then",
            vec![(FAILED, "0+1x300")],
            vec![("14m", vec![]), ("60m", vec![])],
        ),
        (
            "OpenStack was unavailable for ten minutes",
            vec![(FAILED, "0x20 0+1x20 20x260"), (SUCCESS, "0x20 1x30 2x250")],
            vec![("21m", vec![]), ("40m", vec![]), ("60m", vec![])],
        ),
        (
            "more routes are orphaned than may be removed",
            vec![(THRESHOLD, "0x9 1x10 2x10 3x10 4x10 5x10 6x240"), (VALID, "10x300"), (ORPHAN, "11x300")],
            vec![("14m", vec![]), ("25m", vec!["RoutegcBlocked"]), ("110m", vec![])],
        ),
        ("an inventory was partial", vec![(PARTIAL, "0+1x300")], vec![("60m", vec![])]),
        (
            "a route is recreated",
            vec![(ORPHAN, "1x300"), (RECREATED, "1x300")],
            vec![
                ("29m", vec![]),
                ("31m", vec!["RoutegcRecreated"]),
                ("121m", vec!["RoutegcRecreated", "RoutegcOrphans"]),
            ],
        ),
        (
            "nearly full",
            vec![(VALID, "26x300"), (DUPLICATE, "4x300")],
            vec![("14m", vec![]), ("16m", vec!["RoutegcRouterFull"])],
        ),
        (
            "duplicates do not count twice",
            vec![(VALID, "24x300"), (DUPLICATE, "8x300")],
            vec![("20m", vec![])],
        ),
        (
            "another RouteGC of the router succeeds",
            vec![(FAILED, "0+1x300"), (SUCCESS, "0x300"), (OTHER_S_SUCCESS, "0+30x300")],
            vec![("14m", vec![]), ("40m", vec!["RoutegcReconcileErrors"])],
        ),
        ("two RouteGCs count the same routes", vec![(OTHER_S_VALID, "22x300")], vec![("20m", vec![])]),
        ("a cloud that reports no limit", vec![(VALID, "200x300"), (LIMIT, "_x300")], vec![("20m", vec![])]),
        ("mode Audit", vec![(ORPHAN, "1x300")], vec![("119m", vec![]), ("121m", vec!["RoutegcOrphans"])]),
        ("an orphaned route that is removed in time", vec![(ORPHAN, "1x60 0x240")], vec![("125m", vec![])]),
    ]
}

#[test]
fn every_alert_of_routegc_fires_in_its_case_and_no_other() {
    cases::hold("routegc", &HEALTHY, cases());
}
