//! Alerts in Prometheus' own evaluation, over series that are written down: those of a healthy controller, changed in one respect
//! each time.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::component::Component;
use super::promtool;

/// A series without the labels of its target, and its values in promtool's notation, every 30 s.
pub type Series = (&'static str, &'static str);
/// A case: its name, the series that change, and the times with exactly the alerts that fire then.
pub type Case = (&'static str, Vec<Series>, Vec<(&'static str, Vec<&'static str>)>);

/// The series of a pod of the controller. A name that begins with labels of a target (`{job="cgw-agent",node="n1"}up`) has that target.
fn series(controller: &str, name: &str, values: &str) -> Value {
    if let Some((target, metric)) = name.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        let target = format!("namespace=\"{controller}\",{target}");
        let name = match metric.split_once('{') {
            Some((metric, labels)) => format!("{metric}{{{target},{labels}"),
            None => format!("{metric}{{{target}}}"),
        };
        return json!({ "series": name, "values": values });
    }
    let target = format!("job=\"{controller}\",namespace=\"{controller}\",pod=\"leader\"");
    let name = match name.split_once('{') {
        Some((name, labels)) => format!("{name}{{{target},{labels}"),
        None => format!("{name}{{{target}}}"),
    };
    json!({ "series": name, "values": values })
}

/// Each alert of the controller fires in one case at least, and in each case those that are named and no other.
pub fn hold(controller: &'static str, healthy: &[Series], cases: Vec<Case>) {
    let component = Component::of(controller);
    let folder = tempfile::tempdir().unwrap();
    let rules = component.rules_file(folder.path());
    let mut fired = BTreeSet::new();
    let many = cases.len();
    let tests: Vec<Value> = cases
        .into_iter()
        .map(|(name, changes, fires)| {
            let mut all: Vec<Series> = healthy.to_vec();
            for (metric, values) in changes {
                all.retain(|(other, _)| *other != metric);
                all.push((metric, values));
            }
            let expected = fires.iter().map(|(time, alerts)| {
                fired.extend(alerts.iter().copied());
                let samples: Vec<Value> = alerts
                    .iter()
                    .map(|alert| json!({ "labels": format!("{{alertname={alert:?}}}"), "value": 1 }))
                    .collect();
                json!({ "expr": "count by (alertname) (ALERTS{alertstate=\"firing\"})", "eval_time": time, "exp_samples": samples })
            });
            let expected: Vec<Value> = expected.collect();
            let input: Vec<Value> =
                all.iter().map(|(name, values)| series(controller, name, values)).collect();
            json!({ "name": name, "interval": "30s", "input_series": input, "promql_expr_test": expected })
        })
        .collect();
    let alerts: BTreeSet<String> = component.alerts().into_iter().map(|alert| alert.name).collect();
    assert_eq!(alerts, fired.iter().map(|name| (*name).to_owned()).collect(), "an alert without a case");
    let file = folder.path().join("tests.json");
    let all = json!({ "rule_files": [rules], "evaluation_interval": "30s", "tests": tests });
    std::fs::write(&file, all.to_string()).unwrap();
    promtool(&["test", "rules", file.to_str().unwrap()], "");
    println!("{controller}: {many} cases, {} alerts", alerts.len());
}
