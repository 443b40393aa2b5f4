//! Compares natgw's page with the code: every setting, reason and metric is on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use natgw::config::{Config, Settings};

const PAGE: &str = include_str!("../../../docs/natgw.md");
const EXAMPLE: &str = include_str!("../../../docs/natgw.example.yaml");

#[test]
fn the_example_settings_are_the_defaults() {
    let example = Config::new(serde_yaml::from_str::<Settings>(EXAMPLE).unwrap()).unwrap();
    let default = Config::new(serde_yaml::from_str::<Settings>("network: cluster").unwrap()).unwrap();
    assert_eq!(format!("{example:?}"), format!("{default:?}"));
}

/// Names of fields, from the error that an unknown one gives.
fn fields(yaml: &str) -> Vec<String> {
    let error = serde_yaml::from_str::<Settings>(yaml).unwrap_err().to_string();
    let expected = error
        .split("expected one of ")
        .nth(1)
        .or_else(|| error.split("expected ").nth(1))
        .unwrap_or_else(|| panic!("{error}"));
    let names: Vec<String> = expected
        .lines()
        .next()
        .unwrap()
        .split([',', ' ', '`', '\'', '"'])
        .filter(|name| name.starts_with(char::is_alphabetic))
        .map(str::to_owned)
        .collect();
    let known = |name: &String| name != "or" && name != "at";
    names.into_iter().filter(known).take_while(|name| name != "line").collect()
}

#[test]
fn every_setting_is_explained() {
    let mut paths = fields("none_such: 1");
    assert!(paths.contains(&"adoptForeignRoute".to_owned()), "{paths:?}");
    for group in ["floatingIPs", "clients", "healthCheck", "verification", "jobs", "hetzner"] {
        paths.retain(|path| path != group);
        let inner = fields(&format!("network: x\n{group}: {{none_such: 1}}"));
        paths.extend(inner.into_iter().map(|field| format!("{group}.{field}")));
    }
    assert!(paths.len() > 15, "{paths:?}");
    for path in paths {
        assert!(PAGE.contains(&format!("| `{path}` |")), "docs/natgw.md has no row for {path}");
    }
}

#[test]
fn every_metric_of_natgw_is_explained() {
    let common = common::metrics::Metrics::new("natgw").unwrap();
    natgw::metrics::Metrics::new(common.clone()).unwrap();
    let own: Vec<String> = common
        .registry()
        .gather()
        .iter()
        .map(|family| family.name().to_owned())
        .filter(|name| name.starts_with("natgw_") && name != "natgw_build_info")
        .collect();
    assert!(own.len() > 6, "{own:?}");
    for name in own {
        assert!(PAGE.contains(&format!("`{name}")), "docs/natgw.md does not name {name}");
    }
}

const REASONS: &str = include_str!("../src/plan/reason.rs");

#[test]
fn every_reason_is_explained() {
    let codes = REASONS.split("fn code(").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let codes: Vec<&str> = codes.split('"').skip(1).step_by(2).collect();
    assert!(codes.len() > 30, "{codes:?}");
    for code in codes {
        assert!(PAGE.contains(&format!("`{code}`")), "docs/natgw.md does not name {code}");
    }
}

#[test]
fn every_warning_is_explained() {
    let problems = REASONS.split("// Problems.").nth(1).unwrap().split("\n}\n").next().unwrap();
    let names: Vec<&str> = problems
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| line.split(|c: char| !c.is_alphanumeric()).next().unwrap())
        .collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        assert!(PAGE.contains(&format!("| `{name}` |")), "docs/natgw.md has no row for {name}");
    }
}
