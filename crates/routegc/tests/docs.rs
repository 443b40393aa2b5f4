//! Compares routegc's page with the code: every setting with its flag and default, every reason, metric and command.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory as _;
use common::api::routegc::RouteGC;
use kube::CustomResourceExt as _;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(file: &str) -> String {
    let path = Path::new(ROOT).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page() -> String {
    read("docs/routegc.md")
}

/// The text between backticks.
fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The flags of one router, without their dashes, and their defaults.
fn flags() -> Vec<(String, Option<String>)> {
    let command = routegc::args::Args::command();
    let single = command
        .get_arguments()
        .filter(|one| one.get_help_heading() == Some("One router, without RouteGC objects"));
    single
        .map(|one| {
            let default = one.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
            (one.get_long().unwrap().to_owned(), default)
        })
        .collect()
}

/// The fields of the spec, those of `safety` one by one, and their defaults.
fn fields() -> Vec<(String, Option<String>)> {
    let crd = serde_json::to_value(RouteGC::crd()).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let mut fields = Vec::new();
    for (name, field) in spec.as_object().unwrap() {
        match name.as_str() {
            "safety" => fields.extend(
                field["properties"]
                    .as_object()
                    .unwrap()
                    .iter()
                    .map(|(inner, field)| (format!("safety.{inner}"), text(&field["default"]))),
            ),
            _ => fields.push((name.clone(), text(&field["default"]))),
        }
    }
    fields
}

#[test]
fn the_page_has_every_setting_with_its_flag_and_default() {
    let page = page();
    let table = page.split("| field of the spec |").nth(1).unwrap().split("\n\n").next().unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().skip(2).map(|line| line.trim_matches('|').split(" | ").collect()).collect();
    let (fields, flags) = (fields(), flags());
    let mut named: BTreeSet<String> = BTreeSet::new();
    for row in &rows {
        let [field] = code(row[0])[..] else { panic!("{row:?}") };
        let default = code(row[2]).first().map(|text| (*text).to_owned());
        let found =
            fields.iter().find(|(name, _)| name == field).unwrap_or_else(|| panic!("no field {field}"));
        assert_eq!(found.1, default, "{field}");
        named.insert(field.to_owned());
        for flag in code(row[1]) {
            let flag = flag.strip_prefix("--").unwrap();
            let found =
                flags.iter().find(|(name, _)| name == flag).unwrap_or_else(|| panic!("no flag {flag}"));
            let theirs = found.1.as_ref().map(|text| text.to_lowercase());
            let ours = default.as_ref().map(|text| text.to_lowercase()).filter(|text| text != "false");
            assert_eq!(theirs.filter(|text| text != "false"), ours, "--{flag}");
            named.insert(flag.to_owned());
        }
    }
    let all: BTreeSet<String> = fields.into_iter().chain(flags).map(|(name, _)| name).collect();
    assert_eq!(named, all, "settings of the page, and of the code");
}

/// CamelCase strings in the body of a function.
fn words(file: &str, function: &str) -> Vec<String> {
    let text = read(file);
    let body = text.split(&format!("fn {function}(")).nth(1).unwrap();
    let end = if text.contains(&format!("\nfn {function}(")) { "\n}\n" } else { "\n    }\n" };
    let body = body.split(end).next().unwrap();
    let words = body.split('"').skip(1).step_by(2).filter(|word| word.chars().all(char::is_alphanumeric));
    words.filter(|word| word.starts_with(char::is_uppercase)).map(str::to_owned).collect()
}

#[test]
fn every_reason_is_explained() {
    let mut all = Vec::new();
    for file in [
        "crates/routegc/src/error.rs",
        "crates/routegc/src/plan/reason.rs",
        "crates/routegc/src/router.rs",
        "crates/common/src/routes/apply.rs",
        "crates/common/src/routes/observe/error.rs",
        "crates/common/src/routes/plan/classify.rs",
    ] {
        let codes = words(file, "code");
        assert!(codes.len() > 2, "{file}: {codes:?}");
        all.extend(codes);
    }
    let verdicts = words("crates/routegc/src/status.rs", "verdict");
    assert!(verdicts.contains(&"Confirming".to_owned()), "{verdicts:?}");
    all.extend(verdicts);
    for reason in all {
        assert!(page().contains(&format!("`{reason}`")), "docs/routegc.md does not name {reason}");
    }
}

/// Words of a text that begin with `routegc_` or `cloud_api_`.
fn metrics(text: &str) -> BTreeSet<String> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        // Every program has the one of its build.
        .filter(|word| *word != "routegc_build_info")
        // Only Hetzner's API reports how many requests are left.
        .filter(|word| *word != "cloud_api_rate_limit_remaining")
        .filter(|word| word.starts_with("routegc_") || word.starts_with("cloud_api_"))
        .map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}

#[test]
fn the_page_and_the_dashboard_have_exactly_the_metrics_of_the_code() {
    let all = |files: &[&str]| files.iter().flat_map(|file| metrics(&read(file))).collect::<BTreeSet<_>>();
    let own = all(&["crates/routegc/src/metrics.rs", "crates/common/src/cloud/http/metrics.rs"]);
    assert!(own.len() > 7, "{own:?}");
    let watched = all(&[
        "manifests/components/monitoring/routegc/rules.yaml",
        "manifests/components/monitoring/routegc/dashboard.json",
    ]);
    assert_eq!(own, watched, "metrics of routegc, and those of rules and dashboard");
    let page = page();
    let section = page.split("## Metrics").nth(1).unwrap().split("\n## ").next().unwrap();
    assert_eq!(metrics(section), own, "metrics of routegc, and those of its page");
}

#[test]
fn commands_use_existing_flags_and_files() {
    let page = page();
    let command = routegc::args::Args::command();
    let known: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    let ours = page.lines().filter(|line| line.contains("-p routegc"));
    let mut seen = 0;
    for flag in ours.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix("--")) {
        assert!(flag.is_empty() || known.contains(flag), "routegc has no --{flag}");
        seen += 1;
    }
    assert!(seen > 6, "{seen} flags");
    for path in page.split([' ', '`', '(', ')']).filter(|word| word.starts_with("manifests/")) {
        let path = path.trim_end_matches(['.', ',']).lines().next().unwrap();
        if path != "manifests/examples/mine-routegc" {
            assert!(Path::new(ROOT).join(path).exists(), "there is no {path}");
        }
    }
    for annotation in page.split_whitespace().filter(|word| word.starts_with("routegc.perimeter.dev/")) {
        let name = annotation.split('=').next().unwrap();
        let known = [common::api::routegc::ALLOW_ANNOTATION, "routegc.perimeter.dev/v1alpha1"];
        assert!(known.contains(&name), "{annotation}");
    }
}

#[test]
fn the_examples_are_valid_and_in_mode_audit() {
    let page = page();
    let block = page.split("    apiVersion: routegc").nth(1).unwrap().split("\n\n").next().unwrap();
    let block: String =
        format!("    apiVersion: routegc{block}").lines().map(|line| format!("{}\n", &line[4..])).collect();
    for example in [block, read("manifests/examples/routegc/routegc.yaml")] {
        let example: RouteGC = serde_yaml::from_str(&example).unwrap();
        common::routes::Policy::of(&example.spec).unwrap();
        assert_eq!(example.spec.mode, common::api::routegc::Mode::Audit, "applied by mistake");
    }
}
