//! Compares the plugin's page with the code: every key, setting and code is on it, and every example is valid.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use egress_router_cni::cni::{Call, Error};
use egress_router_cni::config::ip_config::IpConfig;
use egress_router_cni::config::network::{Network, Source};
use egress_router_cni::config::settings::Settings;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/egress-router-cni.md");
const ERRORS: &str = include_str!("../src/cni/error.rs");

/// A call for a pod `web-0`.
fn call() -> Call {
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c0ffee"),
        ("CNI_NETNS", "/run/netns/pod"),
        ("CNI_IFNAME", "net1"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"),
    ];
    let get = |name: &str| Some(OsString::from(variables.iter().find(|(key, _)| *key == name)?.1));
    Call::from_env(get).unwrap().unwrap()
}

fn parse(config: &Value) -> Result<Network, Error> {
    Network::parse(config.to_string().as_bytes(), &call())
}

/// The keys that an error about an unknown one lists.
fn allowed(error: &Error) -> Vec<String> {
    let (_, list) = error.message.rsplit_once("allowed are ").unwrap_or_else(|| panic!("{error}"));
    list.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and").map(str::to_owned).collect()
}

fn rows(keys: &[String], prefix: &str) {
    assert!(keys.len() > 2, "{keys:?}");
    for key in keys {
        let key = format!("{prefix}{key}");
        assert!(
            PAGE.lines()
                .any(|line| line.starts_with('|')
                    && line.split('|').nth(1).unwrap().contains(&format!("`{key}`"))),
            "docs/egress-router-cni.md has no row for {key}"
        );
    }
}

#[test]
fn every_key_of_a_network_is_explained() {
    let base = json!({"cniVersion": "1.0.0", "name": "x", "type": "egress-router"});
    let with = |key: &str, value: Value| {
        let mut config = base.clone();
        config[key] = value;
        parse(&config).unwrap_err()
    };
    rows(&allowed(&with("ip", json!({"none_such": 1}))), "");
    rows(&allowed(&with("ipConfig", json!({"none_such": 1}))), "");
    let mut args = base.clone();
    args["ip"] = json!({"addresses": ["192.0.2.7/24"]});
    args["interfaceArgs"] = json!({"none_such": 1});
    rows(&allowed(&parse(&args).unwrap_err()), "interfaceArgs.");
    let top = [
        "cniVersion",
        "name",
        "type",
        "interfaceType",
        "ip",
        "podIP",
        "ipConfig",
        "clusterNetworks",
        "serviceNetworks",
    ];
    let more = ["log_file", "log_level", "prevResult", "runtimeConfig.mac", "runtimeConfig.ips", "dns"];
    rows(&top.iter().chain(&more).map(|key| (*key).to_owned()).collect::<Vec<_>>(), "");
}

#[test]
fn every_setting_is_explained() {
    let keys = allowed(&Settings::parse(br#"{"none_such": 1}"#).unwrap_err());
    rows(&keys.into_iter().filter(|key| key != "aws").collect::<Vec<_>>(), "");
    rows(&allowed(&Settings::parse(br#"{"aws": {"none_such": 1}}"#).unwrap_err()), "aws.");
    let default = Settings::default();
    for path in [&default.kubeconfig, &default.state_directory, &default.run_directory] {
        assert!(PAGE.contains(&format!("| `{}` |", path.display())), "{}", path.display());
    }
}

#[test]
fn every_code_is_explained() {
    let codes = ERRORS.split("pub enum Code {").nth(1).unwrap().split("\n}\n").next().unwrap();
    let numbers: Vec<u32> = codes
        .lines()
        .filter_map(|line| line.split_once(" = ")?.1.trim_end_matches(',').parse().ok())
        .collect();
    assert!(numbers.len() > 12, "{numbers:?}");
    for number in &numbers {
        let explained = |line: &str| {
            let mut cells = line.split('|').skip(1).map(str::trim);
            cells.next().is_some_and(|cell| cell.split(", ").any(|code| code == number.to_string()))
        };
        assert!(PAGE.lines().any(explained), "docs/egress-router-cni.md does not explain code {number}");
    }
    let first_cell = |line: &str| line.strip_prefix("| ")?.split_once(" |")?.0.parse::<u32>().ok();
    let unused: Vec<u32> =
        PAGE.lines().filter_map(first_cell).filter(|code| !numbers.contains(code)).collect();
    assert_eq!(
        unused,
        Vec::<u32>::new(),
        "docs/egress-router-cni.md explains codes that the plugin does not use"
    );
}

/// A message that the page explains must be the one that the program prints.
#[test]
fn every_explained_message_exists() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut source_text = String::new();
    let mut folders = vec![sources];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                // Joins strings that continue on the next line.
                let text = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
                source_text.push_str(&text.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
    let table = PAGE
        .split("The most common messages of code 7:")
        .nth(1)
        .unwrap()
        .split("To try a configuration")
        .next()
        .unwrap();
    let mut messages = 0;
    for cell in table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next()) {
        // Other words in the same cell stand in further backquotes; those in parentheses are examples.
        let cell = cell.split(" (").next().unwrap().trim_end_matches('`');
        for words in cell.split("` … `") {
            for part in words.split("none is given").flat_map(|part| part.split("\"eth1\"")) {
                let parts = part.split(": no interface").flat_map(|part| part.split(": several interfaces"));
                for part in parts.map(str::trim).filter(|part| part.len() > 12) {
                    assert!(source_text.contains(part.trim_end_matches(',')), "no message contains {part:?}");
                    messages += 1;
                }
            }
        }
    }
    assert!(messages > 9, "{messages}");
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/examples/egress-router-cni")
}

#[test]
fn every_network_of_the_examples_is_valid() {
    let mut sources = Vec::new();
    for file in std::fs::read_dir(examples().join("networks")).unwrap() {
        let file = file.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let objects: Vec<Value> = serde_yaml::from_multiple(&text).unwrap();
        let network: Value = serde_json::from_str(objects[0]["spec"]["config"].as_str().unwrap()).unwrap();
        assert_eq!(network["name"], objects[0]["metadata"]["name"], "{}", file.display());
        let network = parse(&network).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if let Source::IpConfig(config) = &network.source {
            resolve(config, &objects[1]);
        }
        sources.push(std::mem::discriminant(&network.source));
    }
    assert!(sources.len() >= 5, "{sources:?}");
}

/// Resolves the example with its ConfigMap.
fn resolve(config: &IpConfig, map: &Value) {
    assert_eq!(map["metadata"]["name"], config.name);
    let data = serde_json::from_value(map["data"].clone()).unwrap();
    let ip = config.resolve(&data, Some("web-0")).unwrap();
    assert_eq!(ip.destinations.allowed, Some(vec!["203.0.113.9/32".parse().unwrap()]), "intersected");
    assert!(ip.gateways.v4.is_some(), "the overrides' gateway");
}

#[test]
fn a_list_of_the_examples_and_settings_are_valid() {
    let list = std::fs::read_to_string(examples().join("containerd/10-egress.conflist")).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let mut network = list["plugins"][1].clone();
    for key in ["cniVersion", "name"] {
        network[key] = list[key].clone();
    }
    parse(&network).unwrap();
    let base = examples().join("../../egress-router-cni/settings.json");
    for file in [examples().join("settings.json"), base] {
        Settings::parse(&std::fs::read(file).unwrap()).unwrap();
    }
}

/// The page's indented JSON, as far as it is a part of a network.
#[test]
fn every_json_of_the_page_is_valid() {
    let mut blocks: Vec<String> = Vec::new();
    let mut open = false;
    for line in PAGE.lines() {
        match line.strip_prefix("    ") {
            Some(text) if open => blocks.last_mut().unwrap().push_str(&format!("{text}\n")),
            Some(text) => blocks.push(format!("{text}\n")),
            None => {}
        }
        open = line.starts_with("    ");
    }
    let (mut parts, mut settings) = (0, 0);
    for block in &blocks {
        if block.starts_with('"') {
            let mut network: Value = serde_json::from_str(&format!("{{{block}}}")).unwrap();
            network["cniVersion"] = json!("1.0.0");
            network["name"] = json!("x");
            network["type"] = json!("egress-router");
            parse(&network).unwrap_or_else(|error| panic!("{error}: {block}"));
            parts += 1;
        } else if block.starts_with('{') {
            Settings::parse(block.as_bytes()).unwrap_or_else(|error| panic!("{error}: {block}"));
            settings += 1;
        }
    }
    assert!(parts >= 2 && settings >= 1, "{parts} parts of networks, {settings} settings");
}
