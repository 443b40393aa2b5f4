use std::fs;
use std::path::Path;

use super::{kubeconfig, server, settings};
use crate::kubernetes::kubeconfig::Access;

const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2lnbmF0dXJl-_";

fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem()
}

#[test]
fn the_written_kubeconfig_can_be_read() {
    let text =
        kubeconfig("https://[fd00::1]:443", authority().as_bytes(), format!("{TOKEN}\n").as_bytes()).unwrap();
    let access = Access::parse(text.as_bytes(), Path::new("/")).unwrap();
    assert_eq!(access.token.as_deref(), Some(TOKEN));
    assert_eq!(access.server.to_string(), "https://[fd00::1]:443/");
    assert_eq!(access.authorities.map(|all| all.len()), Some(1));
}

#[test]
fn an_unreadable_kubeconfig_is_not_written_and_the_token_is_not_in_the_message() {
    let pem = authority();
    for (server, authority, token) in [
        ("https://10.0.0.1", pem.as_str(), ""),
        ("https://10.0.0.1", pem.as_str(), "t0k3n evil"),
        ("https://10.0.0.1", "", "t0k3n"),
        ("https://10.0.0.1", "none", "t0k3n"),
        ("http://10.0.0.1", pem.as_str(), "t0k3n"),
        ("https://10.0.0.1\"", pem.as_str(), "t0k3n"),
        ("", pem.as_str(), "t0k3n"),
    ] {
        let error = kubeconfig(server, authority.as_bytes(), token.as_bytes()).unwrap_err();
        assert!(!error.contains("t0k3n"), "{error}");
    }
}

#[test]
fn the_api_server_is_that_of_the_pods_variables() {
    let at = |host: &'static str| {
        server(move |name| match name {
            "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
            _ => Some("443".to_owned()),
        })
    };
    assert_eq!(at("10.96.0.1").unwrap(), "https://10.96.0.1:443");
    assert_eq!(at("fd00::1").unwrap(), "https://[fd00::1]:443");
    assert!(at("").unwrap_err().contains("KUBERNETES_SERVICE_HOST"));
}

#[test]
fn invalid_settings_never_replace_valid_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from.json"), folder.path().join("node/settings.json"));
    fs::write(&from, r#"{"platform": "none"}"#).unwrap();
    assert!(settings(&from, &to).unwrap().is_some());
    assert!(settings(&from, &to).unwrap().is_none());
    fs::write(&from, r#"{"platfrom": "aws"}"#).unwrap();
    assert!(settings(&from, &to).unwrap_err().contains("platfrom"));
    assert_eq!(fs::read_to_string(&to).unwrap(), r#"{"platform": "none"}"#);
    assert!(settings(&folder.path().join("absent"), &to).is_err());
}
