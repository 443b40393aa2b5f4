//! deorbiter's page matches deorbiter: it names every reason, metric, field of a binding and response of the hook. The
//! alert rules and the dashboard use exactly the metrics that deorbiter has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::path::Path;

use deorbiter::trigger::hook::protocol::{DELETE_PATH, RETRY_SECONDS};
use kube::CustomResourceExt as _;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(file: &str) -> String {
    let path = Path::new(ROOT).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page() -> String {
    read("docs/deorbiter.md")
}

/// Words of a text that begin with `deorbiter_`.
fn metrics(text: &str) -> BTreeSet<String> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        // Every program has the one of its build.
        .filter(|word| word.starts_with("deorbiter_") && *word != "deorbiter_build_info")
        .map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}

#[test]
fn every_reason_is_explained() {
    for file in ["crates/deorbiter/src/trigger/reason.rs", "crates/deorbiter/src/plan/reason.rs"] {
        let reasons = read(file);
        let codes = reasons.split("fn code(").nth(1).unwrap().split("\n    }\n").next().unwrap();
        let codes: Vec<&str> = codes.split('"').skip(1).step_by(2).collect();
        assert!(codes.len() > 12, "{codes:?}");
        for code in codes {
            assert!(page().contains(&format!("`{code}`")), "docs/deorbiter.md does not name {code}");
        }
    }
}

#[test]
fn every_metric_is_explained_and_watched_and_no_other() {
    let all = |files: &[&str]| files.iter().flat_map(|file| metrics(&read(file))).collect::<BTreeSet<_>>();
    let own = all(&[
        "crates/deorbiter/src/metrics.rs",
        "crates/deorbiter/src/trigger/metrics.rs",
        "crates/deorbiter/src/trigger/hook/handler.rs",
    ]);
    assert!(own.len() > 10, "{own:?}");
    let watched = all(&[
        "manifests/components/monitoring/deorbiter/rules.yaml",
        "manifests/components/monitoring/deorbiter/dashboard.json",
    ]);
    assert_eq!(own, watched, "metrics of deorbiter, and those of rules and dashboard");
    for name in own {
        assert!(page().contains(&format!("`{name}")), "docs/deorbiter.md does not name {name}");
    }
}

#[test]
fn every_field_and_every_state_of_a_binding_is_explained() {
    let binding = serde_json::to_value(common::api::deorbit_binding::DeorbitBinding::crd()).unwrap();
    let spec =
        &binding["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    for field in spec.as_object().unwrap().keys() {
        assert!(page().contains(&format!("| `{field}` |")), "docs/deorbiter.md has no row for {field}");
    }
    let standing = read("crates/deorbiter/src/trigger/plan/standing.rs");
    let reasons = standing.split("fn condition").nth(1).unwrap();
    let reasons: Vec<&str> = reasons
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|word| !word.contains(' ') && *word != "Ready")
        .collect();
    assert_eq!(reasons.len(), 6, "{reasons:?}");
    for reason in reasons {
        assert!(page().contains(&format!("| `{reason}` |")), "docs/deorbiter.md has no row for {reason}");
    }
}

#[test]
fn the_page_has_the_table_of_the_phases() {
    let page = page();
    for row in deorbiter::plan::machine::TABLE {
        let cells = [row.entry, row.work, row.exit, row.on_timeout].join(" | ");
        let line = format!("| `{}` | {cells} |", row.phase);
        assert!(page.contains(&line), "docs/deorbiter.md does not have the row: {line}");
    }
}

#[test]
fn every_condition_is_on_the_page() {
    let conditions = read("crates/deorbiter/src/plan/conditions.rs");
    let words = conditions.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '"');
    let named: BTreeSet<&str> = words
        .filter_map(|word| word.strip_prefix('"')?.strip_suffix('"'))
        .filter(|word| word.len() > 1)
        .collect();
    assert!(named.len() > 20, "{named:?}");
    for word in named {
        assert!(page().contains(word), "docs/deorbiter.md does not name {word}");
    }
}

#[test]
fn what_cluster_api_is_told_is_on_the_page() {
    // Without line breaks: a sentence is found wherever its lines end.
    let page = page().split_whitespace().collect::<Vec<_>>().join(" ");
    let messages = read("crates/deorbiter/src/trigger/hook/decision.rs");
    for words in [
        "is not being deleted: nothing is deorbited",
        "deorbiter has nothing to do",
        "failed and keeps the cluster: see its status.debris; delete the Deorbit to retry",
        "completed with debris",
        "cleans up",
    ] {
        assert!(messages.contains(words), "the hook does not say: {words}");
        assert!(page.contains(words), "docs/deorbiter.md does not say: {words}");
    }
    assert!(page.contains(&format!("again in {RETRY_SECONDS} s")));
    assert!(DELETE_PATH.ends_with("/beforeclusterdelete/deorbit"));
}

#[test]
fn the_examples_are_valid() {
    let binding = read("manifests/examples/deorbiter/kluster-binding.yaml");
    let binding: common::api::deorbit_binding::DeorbitBinding = serde_yaml::from_str(&binding).unwrap();
    deorbiter::trigger::rules::rules(&binding.spec, Some(true)).unwrap();
    assert_eq!(binding.spec.finalizer, "deorbiter");
    let binding = read("manifests/examples/deorbiter/cluster-binding.yaml");
    let binding: common::api::deorbit_binding::DeorbitBinding = serde_yaml::from_str(&binding).unwrap();
    deorbiter::trigger::rules::rules(&binding.spec, Some(true)).unwrap();
    for (name, dry_run) in [("deorbit", false), ("deorbit-dry-run", true), ("deorbit-any-provider", false)] {
        let text = read(&format!("manifests/examples/deorbiter/{name}.yaml"));
        let deorbit: common::api::deorbit::Deorbit = serde_yaml::from_str(&text).unwrap();
        assert_eq!(deorbit.spec.dry_run, dry_run, "{name}");
        assert_eq!(text.contains("condition=Complete"), !dry_run, "a dry run is never Complete: {name}");
    }
    let gone: common::api::deorbit::Deorbit =
        serde_yaml::from_str(&read("manifests/examples/deorbiter/deorbit-cluster-gone.yaml")).unwrap();
    assert!(gone.spec.cluster_gone.is_some() && gone.spec.dry_run);
}
