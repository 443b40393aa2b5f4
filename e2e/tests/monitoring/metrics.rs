//! Metrics follow Prometheus' conventions, and those of rules and dashboards exist.

use std::collections::BTreeSet;

use serde_json::json;

use super::component::Component;
use super::promql;
use super::scrape::{self, TARGET};
use super::{CONTROLLERS, promtool};
use crate::cgw_roles::story;

/// Every metric and label that the controller's rules and dashboard name is there; and every metric of its own is named. `jobs`: those of
/// its PodMonitors.
fn all_there(controller: &'static str, jobs: &[&str], series: &[scrape::Series]) {
    let mut named = BTreeSet::new();
    for (place, expression) in Component::of(controller).expressions() {
        let names = promql::names(&expression);
        assert!(!names.selected.is_empty(), "{place} asks for nothing: {expression}");
        let mut labels: BTreeSet<&str> = TARGET.into();
        for (metric, selected) in &names.selected {
            let job = selected.get("job").map(String::as_str);
            assert!(job.is_some_and(|job| jobs.contains(&job)), "{place}: {metric} of any job");
            let fits = |one: &&scrape::Series| {
                one.name == *metric
                    && selected.iter().all(|(key, value)| {
                        one.labels.get(key).is_some_and(|v| v == value || value.starts_with('$'))
                    })
            };
            let found: Vec<_> = series.iter().filter(fits).collect();
            assert!(!found.is_empty(), "{place}: {controller} has no {metric} with {selected:?}");
            labels.extend(found.iter().flat_map(|one| one.labels.keys().map(String::as_str)));
            named.insert(metric.clone());
        }
        for label in &names.grouped {
            assert!(
                labels.contains(label.as_str()),
                "{place} groups by {label}, which nothing has: {expression}"
            );
        }
    }
    let prefixes: Vec<String> = jobs.iter().map(|job| format!("{}_", job.replace('-', "_"))).collect();
    let is_own = |name: &&str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let own = series.iter().map(|one| one.name.as_str()).filter(is_own);
    let forgotten: BTreeSet<&str> = own
        .filter(|name| !name.ends_with("_build_info"))
        .filter(|name| {
            let family = name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
            !named.iter().any(|seen| seen.starts_with(family))
        })
        .collect();
    assert!(forgotten.is_empty(), "neither rule nor panel: {forgotten:?}");
    println!("{controller}: {} metrics are named, and all are there", named.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_and_label_of_natgw_s_rules_and_dashboard_is_there() {
    all_there("natgw", &["natgw"], &scrape::natgw().await.series("natgw"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_and_label_of_routegc_s_rules_and_dashboard_is_there() {
    all_there("routegc", &["routegc"], &scrape::routegc().await.series("routegc"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_and_label_of_apinetlet_s_rules_and_dashboard_is_there() {
    all_there("apinetlet", &["apinetlet"], &scrape::apinetlet().await.series("apinetlet"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_and_label_of_cgw_controller_s_rules_and_dashboard_is_there() {
    all_there("cgw-controller", &["cgw-controller", "cgw-keeper", "cgw-agent"], &scrape::cgw().await);
}

/// The table of metrics has each metric of the three roles, and no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_cgw_controller_has_every_metric() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cgw-controller.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## Metrics\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next());
    let described: BTreeSet<&str> = rows.collect();
    let texts = story::recording().await.metrics.values();
    let types = texts.flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("# TYPE "));
    let is_own = |name: &&str| {
        ["cgw_controller_", "cgw_keeper_", "cgw_agent_"].iter().any(|prefix| name.starts_with(prefix))
    };
    let own = types.filter_map(|line| line.split(' ').next()).filter(is_own);
    let own: BTreeSet<&str> = own.filter(|name| !name.ends_with("_build_info")).collect();
    assert_eq!(described, own);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_accepts_the_metrics() {
    for scrape in [scrape::apinetlet().await, scrape::natgw().await, scrape::routegc().await] {
        for text in [&scrape.leader, &scrape.standby] {
            promtool(&["check", "metrics"], text);
        }
    }
    for text in story::recording().await.metrics.values() {
        promtool(&["check", "metrics"], text);
    }
}

#[test]
fn a_dashboard_is_valid_for_grafana() {
    for controller in CONTROLLERS {
        let component = Component::of(controller);
        let (map, board) = component.dashboard();
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        assert_eq!(board["uid"], format!("perimeter-{controller}").as_str());
        let panels = board["panels"].as_array().unwrap();
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "panels share an ID");
        let mut taken = BTreeSet::new();
        for panel in panels {
            let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            assert!(place("x") + place("w") <= 24, "{}: beyond the right edge", panel["title"]);
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(taken.insert((x, y)), "{} covers another panel", panel["title"]);
                }
            }
            if panel["type"] != "row" {
                assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            }
        }
        let mut rules = Vec::new();
        for (place, expression) in component.expressions() {
            // Grafana's variables stand for what Prometheus would see.
            let seen = expression.replace("$__rate_interval", "2m").replace("$namespace", controller);
            assert!(!seen.contains('$'), "{place} uses an undefined variable: {expression}");
            rules.push(json!({ "record": format!("dashboard:{}", rules.len()), "expr": seen }));
        }
        // An expression is valid if it can be a rule.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.json");
        std::fs::write(&file, json!({ "groups": [{ "name": controller, "rules": rules }] }).to_string())
            .unwrap();
        promtool(&["check", "rules", "--lint=none", file.to_str().unwrap()], "");
    }
}
