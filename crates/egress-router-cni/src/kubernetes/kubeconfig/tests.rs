use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Access;
use crate::cni::{Code, Error};

const SECRET: &str = "s3cr3t-t0k3n";

fn certificate() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// A kubeconfig with the server of [`SERVER`], if `cluster` has none.
fn file(cluster: &Value, user: &Value) -> String {
    let mut with_server = json!({"server": SERVER});
    with_server.as_object_mut().unwrap().extend(cluster.as_object().unwrap().clone());
    let file = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "node", "preferences": {},
        "contexts": [{"name": "node", "context": {"cluster": "here", "user": "plugin", "namespace": "kube-system"}}],
        "clusters": [{"name": "here", "cluster": with_server}],
        "users": [{"name": "plugin", "user": user}],
    });
    file.to_string()
}

fn parse(cluster: Value, user: Value) -> Result<Access, Error> {
    Access::parse(file(&cluster, &user).as_bytes(), Path::new("/nowhere/kubeconfig"))
}

const SERVER: &str = "https://10.0.0.1:6443";

#[test]
fn data_precede_files_and_a_token_file_precedes_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let (pem, key) = certificate();
    std::fs::write(directory.path().join("ca.pem"), &pem).unwrap();
    std::fs::write(directory.path().join("token"), format!("{SECRET}\n")).unwrap();
    let path = directory.path().join("kubeconfig");
    let user = json!({
        "token": "other", "tokenFile": "token", "client-key": "absent",
        "client-certificate-data": STANDARD.encode(&pem), "client-key-data": STANDARD.encode(&key),
    });
    std::fs::write(&path, file(&json!({"certificate-authority": "ca.pem"}), &user)).unwrap();
    let access = Access::read(&path).unwrap();
    assert_eq!(access.token.as_deref(), Some(SECRET));
    assert_eq!(access.authorities.as_ref().map(Vec::len), Some(1));
    assert!(access.identity.is_some());
    assert_eq!(access.base(), "https://10.0.0.1:6443");
}

#[test]
fn urls_of_all_sorts() {
    for (server, base) in [
        ("https://api.test", "https://api.test"),
        ("https://[fd00::1]:6443/", "https://[fd00::1]:6443"),
        ("https://rancher.test/k8s/clusters/c-1/", "https://rancher.test/k8s/clusters/c-1"),
    ] {
        assert_eq!(parse(json!({"server": server}), json!({"token": "a"})).unwrap().base(), base);
    }
    let named = json!({"server": "https://10.0.0.1:6443/p", "tls-server-name": "api.test"});
    assert_eq!(parse(named, json!({})).unwrap().base(), "https://api.test:6443/p");
    for server in
        ["http://10.0.0.1", "10.0.0.1:6443", "", "https://", "https://u:p@10.0.0.1", "/x", "https://a/?q"]
    {
        let error = parse(json!({"server": server}), json!({})).err().unwrap();
        assert_eq!(error.code, Code::InvalidConfig, "{server}");
    }
}

#[test]
fn unsupported_options_are_named() {
    for (cluster, user, word) in [
        (json!({"proxy-url": "http://p"}), json!({}), "proxy-url"),
        (
            json!({"insecure-skip-tls-verify": true, "certificate-authority": "a"}),
            json!({}),
            "insecure-skip-tls-verify",
        ),
        (json!({"certificate-authority-data": "***"}), json!({}), "certificate-authority-data"),
        (json!({"certificate-authority-data": "aGFsbG8="}), json!({}), "certificate-authority"),
        (json!({}), json!({"exec": {"command": "aws", "apiVersion": "v1"}}), "exec"),
        (json!({}), json!({"auth-provider": {"name": "gcp"}}), "auth-provider"),
        (json!({}), json!({"username": "a", "password": "b"}), "username"),
        (json!({}), json!({"as": "system:admin"}), "as"),
        (json!({}), json!({"client-key-data": "aGFsbG8="}), "client-certificate"),
        (json!({}), json!({"token": "a b"}), "token"),
    ] {
        let error = parse(cluster, user).err().unwrap();
        assert_eq!(error.code, Code::InvalidConfig, "{error}");
        assert!(error.message.contains(word) && error.message.contains("/nowhere/kubeconfig"), "{error}");
    }
}

#[test]
fn an_empty_value_is_not_set() {
    let cluster = json!({
        "insecure-skip-tls-verify": true, "certificate-authority": "", "certificate-authority-data": "",
        "proxy-url": "", "tls-server-name": "",
    });
    let user = json!({
        "token": SECRET, "tokenFile": "", "client-certificate": "", "client-key-data": "", "username": "", "as": "",
    });
    let access = parse(cluster, user).unwrap();
    assert!(access.skip_verification && access.authorities.is_none() && access.identity.is_none());
    assert_eq!((access.token.as_deref(), access.server_name), (Some(SECRET), None));
}

#[test]
fn missing_values_are_named() {
    for (text, code, word) in [
        ("", Code::Decode, "not a kubeconfig"),
        ("{\n[", Code::Decode, "line 2, column 1"),
        ("current-context: x", Code::Decode, "kubectl config view --raw"),
        (r#"{"clusters": 7}"#, Code::Decode, "not a kubeconfig"),
        ("{}", Code::InvalidConfig, "current-context"),
        (r#"{"current-context": "x"}"#, Code::InvalidConfig, "\"x\""),
        (
            r#"{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "y"}}]}"#,
            Code::InvalidConfig,
            "cluster \"y\"",
        ),
    ] {
        let error = Access::parse(text.as_bytes(), Path::new("/k")).err().unwrap();
        assert!(error.message.contains(word), "{text}: {error}");
        assert_eq!(error.code, code, "{text}: {error}");
    }
    let error = parse(json!({"certificate-authority": "absent.pem"}), json!({})).err().unwrap();
    assert_eq!(error.code, Code::Io);
    assert!(error.message.contains("/nowhere/absent.pem"), "{error}");
    assert_eq!(Access::read(Path::new("/nowhere/kubeconfig")).err().unwrap().code, Code::Io);
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let ((pem, _), (_, key)) = (certificate(), certificate());
    let user = json!({
        "client-certificate-data": STANDARD.encode(pem), "client-key-data": STANDARD.encode(key),
    });
    assert!(parse(json!({}), user).err().unwrap().message.contains("is not the key of"));
}

#[test]
fn no_error_contains_the_token() {
    for user in [
        json!({"token": [SECRET]}),
        json!({"token": format!("{SECRET} {SECRET}")}),
        json!({"token": SECRET, "client-key-data": format!("{SECRET}!")}),
        json!({"token": SECRET, "tokenFile": 7}),
        json!(SECRET),
    ] {
        let error = parse(json!({}), user).err().unwrap();
        assert!(!error.to_string().contains(SECRET), "{error}");
    }
}

proptest! {
    #[test]
    fn never_a_panic(text in any::<Vec<u8>>(), token in "[ -~]{0,60}", server in "[ -~]{0,60}") {
        let _ = Access::parse(&text, Path::new("/k"));
        let _ = parse(json!({"server": server}), json!({"token": token}));
    }
}
