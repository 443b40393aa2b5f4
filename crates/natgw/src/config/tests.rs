//! Settings that cannot be meant are refused, with the field and what is allowed.

use super::*;

fn settings(yaml: &str) -> Result<Config, String> {
    let settings = serde_yaml::from_str::<Settings>(yaml).map_err(|error| error.to_string())?;
    Config::new(settings).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(yaml: &str, words: &[&str]) {
    let error = settings(yaml).unwrap_err();
    for word in words {
        assert!(error.contains(word), "{yaml}: {error:?} does not say {word:?}");
    }
}

#[test]
fn the_seeds_defaults() {
    let config = settings("network: lan").unwrap();
    assert_eq!(config.jobs.image, "busybox:stable");
    assert_eq!(config.jobs.ttl_after_finished, Duration::from_secs(3600));
    assert_eq!(config.role_label, "node-role.kubernetes.io/nat-gateway");
    assert!(config.adopt_foreign_route && !config.clients.enabled && !config.floating_ips.label);
    assert!(!config.health_check.enabled && !config.verification.enabled);
    assert_eq!(config.on_no_candidate, OnNoCandidate::Keep);
    assert!(config.jobs.setup_script.starts_with("#!/bin/bash"));
}

#[test]
fn a_network_is_a_name_or_an_id() {
    assert_eq!(settings("network: lan").unwrap().network, NetworkName::Name("lan".into()));
    assert_eq!(settings("network: 42").unwrap().network, NetworkName::Id(42));
    assert_eq!(settings("network: '42'").unwrap().network, NetworkName::Id(42));
    refused("network: ''", &["network"]);
}

#[test]
fn defect_09_a_ttl_that_removes_jobs_before_they_are_seen_is_refused() {
    for ttl in ["-1h", "0s", "59s"] {
        refused(
            &format!("network: lan\njobs: {{ttlAfterFinished: {ttl}}}"),
            &["jobs.ttlAfterFinished", "60"],
        );
    }
    assert!(settings("network: lan\njobs: {ttlAfterFinished: 1m}").is_ok());
}

#[test]
fn defect_17_there_is_no_running_without_settings() {
    refused("{}", &["network"]);
    refused("netwrok: lan", &["netwrok"]);
}

#[test]
fn the_floating_ip_label_cannot_be_the_role_label() {
    refused("network: lan\nfloatingIPLabel: a.org/x\nroleLabel: a.org/x", &["roleLabel", "floatingIPLabel"]);
}

#[test]
fn keys_selectors_and_names_are_checked() {
    refused("network: lan\nroleLabel: 'a b'", &["roleLabel"]);
    refused("network: lan\nsetupAnnotation: natgw.perimeter.dev/pending", &["setupAnnotation"]);
    refused("network: lan\nnodeSelector: {matchLabel: {a: b}}", &["matchLabel"]);
    refused(
        "network: lan\nnodeSelector: {matchExpressions: [{key: a, operator: In}]}",
        &["nodeSelector", "values"],
    );
    refused("network: lan\njobs: {image: ''}", &["jobs.image"]);
    refused("network: lan\njobs: {setupScript: ' '}", &["jobs.setupScript"]);
    refused("network: lan\njobs: {env: {FLOATING_IP: x}}", &["jobs.env", "FLOATING_IP"]);
    refused("network: lan\njobs: {env: {1A: x}}", &["jobs.env"]);
    for interval in ["1s", "301s", "-30s"] {
        let settings = format!("network: lan\nhetzner: {{pollInterval: {interval}}}");
        refused(&settings, &["hetzner.pollInterval", "3s", "5m"]);
    }
    for (health_check, field) in [
        ("interval: 499ms", "healthCheck.interval"),
        ("interval: 11s", "healthCheck.interval"),
        ("failures: 1", "healthCheck.failures"),
        ("failures: 11", "healthCheck.failures"),
        ("port: 0", "healthCheck.port"),
        ("target: gateway", "target"),
    ] {
        refused(&format!("network: lan\nhealthCheck: {{{health_check}}}"), &[field]);
    }
    for interval in ["59s", "-10m", "61m"] {
        let settings = format!("network: lan\nverification: {{enabled: true, interval: {interval}}}");
        refused(&settings, &["verification.interval"]);
    }
    let own_setup = "network: lan\nverification: {enabled: true}\njobs: {setupScript: 'exit 0'";
    refused(&format!("{own_setup}}}"), &["jobs.verifyScript"]);
    assert!(settings(&format!("{own_setup}, verifyScript: 'exit 0'}}")).is_ok());
    refused("network: lan\nfloatingIPs: {selector: a=b}", &["floatingIPs.selector"]);
    refused("network: lan\nonNoCandidate: drop", &["keep", "remove"]);
}
