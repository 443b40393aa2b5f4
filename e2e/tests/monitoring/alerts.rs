//! Alerts in Prometheus' own evaluation, over the series of two real replicas: healthy, and changed in one respect.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::component::Component;
use super::promtool;
use super::scrape::{self, Series};

/// Between two scrapes, and two evaluations.
const INTERVAL: &str = "30s";
/// Scrapes of two hours and a half.
const SCRAPES: usize = 300;

/// One environment for two hours and a half.
struct Case {
    name: &'static str,
    /// Pod (`*`: both), metric (`*`: all) and values in promtool's notation. The last that fits counts.
    changes: Vec<(&'static str, &'static str, String)>,
    /// At these times exactly these alerts fire.
    fires: Vec<(&'static str, Vec<&'static str>)>,
}

fn constantly(value: u32) -> String {
    format!("{value}x{SCRAPES}")
}

fn case(name: &'static str) -> Case {
    Case { name, changes: Vec::new(), fires: Vec::new() }
}

impl Case {
    fn with(mut self, pod: &'static str, metric: &'static str, values: impl Into<String>) -> Case {
        self.changes.push((pod, metric, values.into()));
        self
    }

    fn at(mut self, time: &'static str, alerts: &[&'static str]) -> Case {
        self.fires.push((time, alerts.to_vec()));
        self
    }

    fn values(&self, series: &Series) -> String {
        let fits = |pod: &str, metric: &str| {
            (pod == "*" || series.labels["pod"] == pod) && (metric == "*" || series.is(metric))
        };
        let change = self.changes.iter().rev().find(|(pod, metric, _)| fits(pod, metric));
        if let Some((_, _, values)) = change {
            values.clone()
        } else if series.name == "controller_runtime_reconcile_total"
            && series.labels["pod"] == "leader"
            && series.labels["result"] == "success"
        {
            // A healthy leader reconciles between two scrapes. All other series of a healthy natgw are constant.
            format!("{}+1x{SCRAPES}", series.value)
        } else {
            format!("{}x{SCRAPES}", series.value)
        }
    }

    fn test(&self, all: &[Series]) -> Value {
        for (pod, metric, _) in &self.changes {
            assert!(
                *metric == "*"
                    || all
                        .iter()
                        .any(|one| one.is(metric) && [one.labels["pod"].as_str(), "*"].contains(pod)),
                "{}: {pod} has no {metric}",
                self.name
            );
        }
        let series: Vec<Value> = all
            .iter()
            .map(|one| {
                let labels: Vec<String> = one.labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
                json!({ "series": format!("{}{{{}}}", one.name, labels.join(",")), "values": self.values(one) })
            })
            .collect();
        let tests: Vec<Value> = self
            .fires
            .iter()
            .map(|(time, alerts)| {
                let samples: Vec<Value> = alerts
                    .iter()
                    .map(|alert| json!({ "labels": format!("{{alertname={alert:?}}}"), "value": 1 }))
                    .collect();
                json!({
                    "expr": "count by (alertname) (ALERTS{alertstate=\"firing\"})",
                    "eval_time": time,
                    "exp_samples": samples,
                })
            })
            .collect();
        json!({ "name": self.name, "interval": INTERVAL, "input_series": series, "promql_expr_test": tests })
    }
}

#[rustfmt::skip]
fn natgw() -> Vec<Case> {
    let success = "controller_runtime_reconcile_total";
    vec![
        case("healthy").at("5m", &[]).at("40m", &[]).at("150m", &[]),
        case("a new leader after fifteen seconds, before its first reconciliation")
            .with("leader", "leader_election_master_status", "1x60 0x240")
            .with("leader", "natgw_primary", "1x60 0x240").with("leader", "natgw_route_in_place", "1x60 0x240")
            .with("leader", "natgw_nodes{state=\"candidate\"}", "2x60 0x240").with("leader", success, "7+1x60 67x240")
            .with("standby", "leader_election_master_status", "0x61 1x240")
            .with("standby", "natgw_primary", "0x62 1x240").with("standby", "natgw_route_in_place", "0x62 1x240")
            .with("standby", "natgw_nodes{state=\"candidate\"}", "0x62 2x240").with("standby", success, "0x61 1+1x240")
            .at("33m", &[]).at("60m", &[]).at("150m", &[]),

        case("no gateway is left")
            .with("leader", "natgw_primary", constantly(0)).with("leader", "natgw_route_in_place", constantly(0))
            .with("leader", "natgw_nodes{state=\"candidate\"}", constantly(0)).with("leader", "natgw_problems", constantly(1))
            .at("4m", &[]).at("6m", &["NatgwNoPrimary"]).at("60m", &["NatgwNoPrimary"]),
        case("the gateway was rebooted, and is back after three minutes")
            .with("leader", "natgw_primary", "1x60 0x5 1x235").with("leader", "natgw_route_in_place", "1x60 0x5 1x235")
            .at("33m", &[]).at("36m", &[]).at("60m", &[]),

        case("the route is foreign")
            .with("leader", "natgw_route_in_place", constantly(0)).with("leader", "natgw_problems", constantly(1))
            .at("4m", &[]).at("6m", &["NatgwRouteNotInPlace"]).at("40m", &["NatgwProblems", "NatgwRouteNotInPlace"]),

        case("no replica answers")
            .with("*", "*", "_x300").with("*", "up", constantly(0))
            .at("9m", &[]).at("11m", &["NatgwDown"]),
        case("no replica is there any more")
            .with("*", "*", "1x60 stale _x240").with("leader", success, "0+1x60 stale _x240")
            .at("39m", &[]).at("42m", &["NatgwDown"]),
        case("one of two replicas is gone").with("standby", "*", "1x60 stale _x240").at("150m", &[]),

        case("no replica acquires the lease")
            .with("leader", "leader_election_master_status", constantly(0)).with("leader", success, constantly(7))
            .with("leader", "natgw_primary", constantly(0)).with("leader", "natgw_route_in_place", constantly(0))
            .with("leader", "natgw_nodes{state=\"candidate\"}", constantly(0))
            .at("4m", &[]).at("6m", &["NatgwNoLeader"]).at("60m", &["NatgwNoLeader"]),

        case("the token was revoked")
            .with("leader", success, constantly(7))
            .at("4m", &[]).at("16m", &["NatgwReconcileErrors"]),
        case("natgw was started with a revoked token")
            .with("leader", "natgw_primary", constantly(0)).with("leader", "natgw_route_in_place", constantly(0))
            .with("leader", "natgw_nodes{state=\"candidate\"}", constantly(0))
            .with("leader", "natgw_nodes{state=\"selected\"}", constantly(0)).with("leader", success, constantly(0))
            .at("4m", &[]).at("16m", &["NatgwReconcileErrors"]).at("60m", &["NatgwReconcileErrors"]),
        case("the node selector matches no Node")
            .with("leader", "natgw_primary", constantly(0)).with("leader", "natgw_route_in_place", constantly(0))
            .with("leader", "natgw_nodes{state=\"candidate\"}", constantly(0))
            .with("leader", "natgw_nodes{state=\"selected\"}", constantly(0)).with("leader", "natgw_problems", constantly(1))
            .at("4m", &[]).at("6m", &["NatgwNoPrimary"]),
        case("the replicas cannot reach Hetzner and lead by turns, with a scrape in between")
            .with("leader", "leader_election_master_status", "1 1 0 0 0 0 ".repeat(SCRAPES / 6).trim_end())
            .with("standby", "leader_election_master_status", "0 0 0 1 1 0 ".repeat(SCRAPES / 6).trim_end())
            .with("leader", success, constantly(7))
            .at("4m", &[]).at("16m", &["NatgwReconcileErrors"]).at("149m", &["NatgwReconcileErrors"]),
        case("Hetzner was away for nine minutes")
            .with("leader", success, "0+1x60 60x18 61+1x222")
            .at("39m", &[]).at("45m", &[]).at("60m", &[]),

        case("one of two gateways is gone")
            .with("leader", "natgw_nodes{state=\"candidate\"}", constantly(1))
            .at("29m", &[]).at("31m", &["NatgwNoStandbyGateway"]),
        case("a Job fails for an hour")
            .with("leader", "natgw_nodes{state=\"failing\"}", "0x20 1x120 0x160")
            .at("24m", &[]).at("26m", &["NatgwJobsFailing"]).at("90m", &[]),
        case("a Node cannot be patched for an hour")
            .with("leader", "natgw_write_failures{scope=\"nodes\"}", "0x20 1x120 0x160")
            .at("24m", &[]).at("26m", &["NatgwNodeWritesFailing"]).at("90m", &[]),
        case("Hetzner refuses each change of the route")
            .with("leader", "natgw_write_failures{scope=\"route\"}", "0x20 1x120 0x160")
            .at("14m", &[]).at("16m", &["NatgwRouteWritesFailing"]).at("90m", &[]),
        case("a gateway comes and goes every ten minutes")
            .with("leader", "natgw_route_switches_total", "1+0x19 2x20 3x20 4x20 5x20 6x20 7x20 8x20 8x140")
            .at("20m", &[]).at("65m", &["NatgwRouteFlapping"]).at("149m", &[]),
        case("the gateways are rebooted, one after the other")
            .with("leader", "natgw_route_switches_total", "1x60 2x60 3x180").at("61m", &[]).at("75m", &[]).at("100m", &[]),
        case("another program uses up the project's requests")
            .with("leader", "cloud_api_rate_limit_remaining", constantly(120))
            .at("9m", &[]).at("11m", &["NatgwRateLimitLow"]),
        case("the leader has stepped down, and its last response was about few requests that are left")
            .with("standby", "leader_election_master_status", constantly(1)).with("standby", success, "1+1x300")
            .with("standby", "natgw_primary", constantly(1)).with("standby", "natgw_route_in_place", constantly(1))
            .with("standby", "natgw_nodes{state=\"candidate\"}", constantly(2))
            .with("leader", "leader_election_master_status", constantly(0)).with("leader", success, constantly(7))
            .with("leader", "natgw_primary", constantly(0)).with("leader", "natgw_route_in_place", constantly(0))
            .with("leader", "natgw_nodes{state=\"candidate\"}", constantly(0))
            .with("leader", "cloud_api_rate_limit_remaining", constantly(120))
            .at("11m", &[]).at("60m", &[]),
        case("a label that fits no server")
            .with("leader", "natgw_problems", constantly(1))
            .at("29m", &[]).at("31m", &["NatgwProblems"]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_alert_fires_in_its_case_and_no_other_does() {
    let component = Component::of("natgw");
    let mut series = scrape::natgw().await.series("natgw");
    // promtool evaluates hundreds of scrapes in each case, and no rule reads the others.
    series.retain(|one| component.yaml.contains(&one.name));
    let folder = tempfile::tempdir().unwrap();
    let cases = natgw();
    let file = folder.path().join("test.json");
    let test = json!({
        "rule_files": [component.rules_file(folder.path())],
        "evaluation_interval": INTERVAL,
        "tests": cases.iter().map(|case| case.test(&series)).collect::<Vec<_>>(),
    });
    std::fs::write(&file, test.to_string()).unwrap();
    promtool(&["test", "rules", file.to_str().unwrap()], "");

    let fired: BTreeSet<&str> =
        cases.iter().flat_map(|case| &case.fires).flat_map(|(_, alerts)| alerts.clone()).collect();
    let alerts = component.alerts();
    let all: BTreeSet<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(fired, all, "every alert fires in one case at least");
    println!("{} cases, {} alerts", cases.len(), all.len());
}
