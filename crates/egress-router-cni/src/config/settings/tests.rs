use std::ffi::OsString;

use proptest::prelude::*;

use super::{Kind, Platform, Settings};
use crate::cni::{Code, Error};
use crate::config::interface::{IpvlanMode, MacvlanMode};

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Settings, Error> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.json");
    std::fs::write(&file, text).unwrap();
    Settings::load(|name| match name {
        "EGRESS_ROUTER_SETTINGS" => Some(file.clone().into_os_string()),
        name => variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)),
    })
}

#[test]
fn without_a_file_there_are_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent").into_os_string();
    let settings = Settings::load(|name| (name == "EGRESS_ROUTER_SETTINGS").then(|| absent.clone())).unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(Settings::parse(b"{}").unwrap(), Settings::default());
}

#[test]
fn every_key_is_read() {
    let settings = load(
        r#"{"kubeconfig": "/k", "configMapNamespaces": ["infra"], "allowRequestedIPs": true, "allowedMasters": ["lan0"],
            "allowedModes": ["bridge", "l2"], "clusterNetworks": ["10.128.3.0/14"],
            "serviceNetworks": ["fd02::/112"], "platform": "aws", "stateDirectory": "/s", "runDirectory": "/r",
            "aws": {"ec2Endpoint": "https://ec2.test", "metadataEndpoint": "http://imds.test", "allowReassociation": false}}"#,
        &[("AWS_ENDPOINT_URL_EC2", "http://other"), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://other")],
    )
    .unwrap();
    assert_eq!(settings.kubeconfig.to_str(), Some("/k"));
    assert_eq!(settings.config_map_namespaces, ["infra"]);
    assert!(settings.allow_requested_ips);
    assert_eq!(settings.allowed_masters, Some(vec!["lan0".into()]));
    let modes = vec![Kind::Macvlan(MacvlanMode::Bridge), Kind::Ipvlan(IpvlanMode::L2)];
    assert_eq!(settings.allowed_modes, Some(modes));
    assert_eq!(settings.cluster_networks, ["10.128.0.0/14".parse().unwrap(), "fd02::/112".parse().unwrap()]);
    assert_eq!(settings.platform, Platform::Aws);
    assert_eq!(
        (settings.state_directory.to_str(), settings.run_directory.to_str()),
        (Some("/s"), Some("/r"))
    );
    assert_eq!(settings.aws.ec2_endpoint.as_deref(), Some("https://ec2.test"));
    assert_eq!(settings.aws.metadata_endpoint.as_deref(), Some("http://imds.test"));
    assert_eq!(settings.aws.allow_reassociation, Some(false));
}

#[test]
fn endpoints_of_the_environment_are_used_if_the_file_has_none() {
    let both = [("AWS_ENDPOINT_URL", "http://all"), ("AWS_ENDPOINT_URL_EC2", "http://ec2")];
    assert_eq!(load("{}", &both).unwrap().aws.ec2_endpoint.as_deref(), Some("http://ec2"));
    assert_eq!(load("{}", &both[..1]).unwrap().aws.ec2_endpoint.as_deref(), Some("http://all"));
}

#[test]
fn an_error_names_the_field_and_the_file() {
    for (text, code, word) in [
        ("{", Code::Decode, "not JSON"),
        ("[]", Code::Decode, "dictionary"),
        (r#"{"platfrom": "aws"}"#, Code::UnsupportedField, "platfrom"),
        (r#"{"platform": "gcp"}"#, Code::InvalidConfig, "auto, aws or none"),
        (r#"{"aws": {"endpoint": ""}}"#, Code::UnsupportedField, "aws.endpoint"),
        (r#"{"aws": {"ec2Endpoint": "ec2"}}"#, Code::InvalidConfig, "aws.ec2Endpoint"),
        (r#"{"kubeconfig": "k"}"#, Code::InvalidConfig, "absolute"),
        (r#"{"allowRequestedIPs": "yes"}"#, Code::Decode, "allowRequestedIPs"),
        (r#"{"allowedModes": ["l2", "tap"]}"#, Code::InvalidConfig, "allowedModes[1]"),
        (r#"{"clusterNetworks": ["0.0.0.0/0"]}"#, Code::InvalidConfig, "clusterNetworks[0]"),
    ] {
        let error = load(text, &[]).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains("settings.json") && error.message.contains(word), "{error}");
    }
}

fn for_teardown(file: &std::path::Path) -> (Settings, Option<Error>) {
    Settings::for_teardown(|name| match name {
        "EGRESS_ROUTER_SETTINGS" => Some(file.as_os_str().to_owned()),
        "AWS_ENDPOINT_URL_EC2" => Some("http://other".into()),
        _ => None,
    })
}

#[test]
fn del_and_gc_use_the_readable_values_of_an_invalid_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.json");
    let (settings, wrong) = for_teardown(&file);
    assert_eq!((settings.run_directory.to_str(), wrong), (Some("/run/egress-router"), None));
    let aws = r#""aws": {"ec2Endpoint": "https://ec2.test", "metadataEndpoint": 7, "other": 7}"#;
    for (text, run, state, ec2) in [
        ("{", "/run/egress-router", "/var/lib/cni/egress-router", "http://other"),
        ("[]", "/run/egress-router", "/var/lib/cni/egress-router", "http://other"),
        (r#"{"platfrom": 1, "runDirectory": "/r", "stateDirectory": "/s"}"#, "/r", "/s", "http://other"),
        (
            &format!(r#"{{"runDirectory": "r", "stateDirectory": "/s", {aws}}}"#),
            "/run/egress-router",
            "/s",
            "https://ec2.test",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let (settings, wrong) = for_teardown(&file);
        let wrong = wrong.unwrap();
        assert!(wrong.message.contains("settings.json"), "{wrong}");
        assert_eq!(settings.run_directory.to_str(), Some(run), "{text}");
        assert_eq!(settings.state_directory.to_str(), Some(state), "{text}");
        assert_eq!(settings.aws.ec2_endpoint.as_deref(), Some(ec2), "{text}");
        assert_eq!(settings.aws.metadata_endpoint, None, "{text}");
    }
    // A valid file is read completely, as by other operations.
    std::fs::write(&file, r#"{"runDirectory": "/r", "allowRequestedIPs": true}"#).unwrap();
    let (settings, wrong) = for_teardown(&file);
    assert!(wrong.is_none() && settings.allow_requested_ips);
    // A folder cannot be read.
    let (settings, wrong) = for_teardown(directory.path());
    assert_eq!(wrong.map(|wrong| wrong.code), Some(Code::Io));
    assert_eq!(settings.run_directory.to_str(), Some("/run/egress-router"));
}

proptest! {
    #[test]
    fn never_a_panic(text in any::<Vec<u8>>()) {
        let _ = Settings::parse(&text);
    }
}
