use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Value;

use super::Access;
use super::yaml;
use crate::cni::{Code, Error};

const SECRET: &str = "s3cr3t-t0k3n";

fn certificate() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn file(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: node\npreferences: {{}}\n\
         contexts:\n- name: node\n  context: {{cluster: here, user: plugin, namespace: kube-system}}\n\
         clusters:\n- name: here\n  cluster: {{{cluster}}}\n\
         users:\n- name: plugin\n  user: {{{user}}}\n"
    )
}

fn parse(cluster: &str, user: &str) -> Result<Access, Error> {
    Access::parse(file(cluster, user).as_bytes(), Path::new("/nowhere/kubeconfig"))
}

const SERVER: &str = "server: 'https://10.0.0.1:6443'";

#[test]
fn data_precede_files_and_a_token_file_precedes_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let (pem, key) = certificate();
    std::fs::write(directory.path().join("ca.pem"), &pem).unwrap();
    std::fs::write(directory.path().join("token"), format!("{SECRET}\n")).unwrap();
    let path = directory.path().join("kubeconfig");
    let cluster = format!("{SERVER}, certificate-authority: ca.pem");
    let user = format!(
        "token: other, tokenFile: token, client-certificate-data: {}, client-key-data: {}, client-key: absent",
        STANDARD.encode(&pem),
        STANDARD.encode(&key),
    );
    std::fs::write(&path, file(&cluster, &user)).unwrap();
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
        assert_eq!(parse(&format!("server: '{server}'"), "token: a").unwrap().base(), base);
    }
    let access = parse("server: 'https://10.0.0.1:6443/p', tls-server-name: api.test", "").unwrap();
    assert_eq!(access.base(), "https://api.test:6443/p");
    for server in
        ["http://10.0.0.1", "10.0.0.1:6443", "", "https://", "https://u:p@10.0.0.1", "/x", "https://a/?q"]
    {
        assert_eq!(
            parse(&format!("server: '{server}'"), "").err().unwrap().code,
            Code::InvalidConfig,
            "{server}"
        );
    }
}

#[test]
fn unsupported_options_are_named() {
    for (cluster, user, word) in [
        ("proxy-url: 'http://p'", "", "proxy-url"),
        ("insecure-skip-tls-verify: true, certificate-authority: a", "", "insecure-skip-tls-verify"),
        ("certificate-authority-data: '***'", "", "certificate-authority-data"),
        ("certificate-authority-data: aGFsbG8=", "", "certificate-authority"),
        ("", "exec: {command: aws, apiVersion: v1}", "exec"),
        ("", "auth-provider: {name: gcp}", "auth-provider"),
        ("", "username: a, password: b", "username"),
        ("", "as: system:admin", "as"),
        ("", "client-key-data: aGFsbG8=", "client-certificate"),
        ("", "token: 'a b'", "token"),
    ] {
        let error = parse(&format!("{SERVER}, {cluster}"), user).err().unwrap();
        assert_eq!(error.code, Code::InvalidConfig, "{error}");
        assert!(error.message.contains(word) && error.message.contains("/nowhere/kubeconfig"), "{error}");
    }
}

#[test]
fn missing_values_are_named() {
    for (text, code, word) in [
        ("", Code::Decode, "not a kubeconfig"),
        ("a: [", Code::Decode, "(line 1)"),
        ("clusters: 7", Code::Decode, "not a kubeconfig"),
        ("{}", Code::InvalidConfig, "current-context"),
        ("current-context: x", Code::InvalidConfig, "\"x\""),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: y}}]}",
            Code::InvalidConfig,
            "cluster \"y\"",
        ),
    ] {
        let error = Access::parse(text.as_bytes(), Path::new("/k")).err().unwrap();
        assert!(error.message.contains(word), "{text}: {error}");
        assert_eq!(error.code, code, "{text}: {error}");
    }
    let error = parse(&format!("{SERVER}, certificate-authority: absent.pem"), "").err().unwrap();
    assert_eq!(error.code, Code::Io);
    assert!(error.message.contains("/nowhere/absent.pem"), "{error}");
    assert_eq!(Access::read(Path::new("/nowhere/kubeconfig")).err().unwrap().code, Code::Io);
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (pem, _) = certificate();
    let (_, key) = certificate();
    let user = format!(
        "client-certificate-data: {}, client-key-data: {}",
        STANDARD.encode(pem),
        STANDARD.encode(key)
    );
    assert!(parse(SERVER, &user).err().unwrap().message.contains("is not the key of"));
}

#[test]
fn no_error_contains_the_token() {
    for user in [
        format!("token: [{SECRET}]"),
        format!("token: '{SECRET} {SECRET}'"),
        format!("token: '{SECRET}', client-key-data: '{SECRET}!'"),
        format!("token: '{SECRET}', tokenFile: 7: 8"),
        format!("token: {SECRET}: {SECRET}"),
    ] {
        let error = parse(SERVER, &user).err().unwrap();
        assert!(!error.to_string().contains(SECRET), "{error}");
    }
}

/// Parts of kubeconfigs, and special characters of YAML.
const PIECES: [&str; 48] = [
    "\n",
    "\n",
    "\n  ",
    "\n  ",
    "\n    ",
    "\n- ",
    "\n  - ",
    " ",
    "  ",
    "\t",
    ": ",
    ":",
    "- ",
    "#",
    " # x",
    "'",
    "\"",
    "''",
    "\\n",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "~",
    "null",
    "true",
    "false",
    "&a ",
    "*a",
    "!x ",
    "|",
    ">",
    "---",
    "...",
    "? ",
    "1",
    "token",
    "name: a",
    "user:",
    "cluster:",
    "server: https://a:1",
    "current-context: a",
    "contexts:",
    "clusters:",
    "users:",
    "é",
    "context:",
];

/// If the small parser accepts a text, a complete parser has the same result, except for scalars that it does not read as strings.
fn compare(text: &str) {
    let Ok(ours) = yaml::parse(text) else { return };
    match serde_yaml::from_str::<Value>(text) {
        Ok(theirs) => assert!(same(&ours, &theirs), "{text:?}: {ours} {theirs}"),
        Err(error) => panic!("taken, but not YAML: {text:?}: {error}"),
    }
}

fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| same(ours, theirs))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().all(|(key, ours)| theirs.get(key).is_some_and(|theirs| same(ours, theirs)))
        }
        (Value::String(ours), Value::Number(_)) => {
            ours.bytes().all(|byte| byte.is_ascii_digit() || b"+-._eE".contains(&byte))
        }
        // YAML 1.1's words for true, false and null.
        (Value::String(ours), Value::Bool(_) | Value::Null) => ours.len() <= 5,
        (ours, theirs) => ours == theirs,
    }
}

#[test]
fn kubeconfigs_of_kubectl_kubeadm_and_others_are_read() {
    for text in [
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: LS0t\n    server: https://10.0.0.1:6443\n  name: kubernetes\n\
         contexts:\n- context:\n    cluster: kubernetes\n    user: node\n  name: node@kubernetes\ncurrent-context: node@kubernetes\n\
         kind: Config\npreferences: {}\nusers:\n- name: node\n  user:\n    client-certificate: /var/lib/a.pem\n    client-key: /var/lib/a.pem\n",
        "---\n# Kubeconfig file for Multus CNI plugin.\napiVersion: v1\nkind: Config\nclusters:\n- name: local\n  cluster:\n    \
         server: https://[10.96.0.1]:443\n    certificate-authority-data: LS0t\nusers:\n- name: multus\n  user:\n    token: \"ey.J\"\ncontexts:\n\
         - name: multus-context\n  context:\n    cluster: local\n    user: multus\ncurrent-context: multus-context\n",
        "users:\n  -\n    name: 'it''s'   # a comment\n    user: {token: a, tokenFile: \"b\\\\c\"}\n\nclusters: [{name: a, cluster: {server: https://a}}]\n",
    ] {
        super::Kubeconfig::parse(text).unwrap();
        compare(text);
    }
    let json = r#"{"current-context": "a",
        "users": [{"name": "a", "user": {"token": "b"}}]}"#;
    assert_eq!(super::Kubeconfig::parse(json).unwrap().users.len(), 1);
}

proptest! {
    #[test]
    fn no_document_is_misread(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..24)) {
        compare(&pieces.concat());
    }

    #[test]
    fn no_changed_kubeconfig_is_misread(at in any::<proptest::sample::Index>(), length in 0usize..6, piece in proptest::sample::select(&PIECES[..])) {
        let text = file(SERVER, "token: abc, client-key-data: aGFsbG8=") + "extra:\n- a: 'b'\n  c: \"d\"\n- e\n";
        let at = at.index(text.len());
        let end = (at + length).min(text.len());
        compare(&format!("{}{piece}{}", &text[..at], &text[end..]));
    }

    #[test]
    fn never_a_panic(text in any::<Vec<u8>>(), cluster in "[ -~]{0,60}", user in "[ -~]{0,60}") {
        let _ = Access::parse(&text, Path::new("/k"));
        let _ = parse(&cluster, &user);
        let _ = parse(SERVER, &user);
    }
}
