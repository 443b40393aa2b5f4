//! Tests with a TLS server in this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::config_map;
use super::request::{self, Response};
use crate::cni::{Code, Error};

/// Deadline of a call that has a result, far longer than it takes on a busy machine.
const LONGEST: Duration = Duration::from_secs(300);
const TOKEN: &str = "s3cr3t-t0k3n";
const FOUND: &str = r#"{"kind": "ConfigMap", "metadata": {"name": "addresses"}, "data": {"ip": "{}"}, "binaryData": {"x": "AA=="}}"#;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key, PEM, for `name`.
fn signed(authority: &Authority, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate, key)
}

/// The server's reaction to one connection.
#[derive(Clone)]
enum Reaction {
    /// This status and body.
    Response(u16, &'static str),
    /// Half of it, then the connection is closed.
    CutOff,
    /// Nothing, until the client disconnects.
    NoReply,
    /// Status 401, after the token in this file was renewed.
    Renews(PathBuf),
}

struct Server {
    directory: tempfile::TempDir,
    authority: Authority,
    port: u16,
    host: &'static str,
    requests: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Handles connections with `reactions` in order, and repeats the last one.
    fn start(listen: &str, certified: &str, with_clients: bool, reactions: Vec<Reaction>) -> Self {
        let authority = authority();
        let (certificate, key) = signed(&authority, certified);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if with_clients {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der().clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap());
        let listener = TcpListener::bind((listen.parse::<IpAddr>().unwrap(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let thread = std::thread::spawn(move || {
            let mut reactions = reactions.into_iter().peekable();
            while let Some(reaction) = reactions.peek().cloned() {
                let Ok((socket, _)) = listener.accept() else { return };
                let connection = ServerConnection::new(config.clone()).unwrap();
                let mut stream = BufReader::new(StreamOwned::new(connection, socket));
                let mut request = String::new();
                while stream.read_line(&mut request).is_ok_and(|read| read > 2) {}
                // An empty connection ends the server.
                if request.is_empty() {
                    if Arc::strong_count(&seen) == 1 {
                        return;
                    }
                    continue;
                }
                seen.lock().unwrap().push(request);
                let stream = stream.get_mut();
                if let Reaction::Renews(token) = &reaction {
                    std::fs::write(token, "new").unwrap();
                }
                match reaction {
                    Reaction::Response(..) | Reaction::Renews(_) => {
                        let (status, body) = match reaction {
                            Reaction::Response(status, body) => (status, body),
                            _ => (401, "{}"),
                        };
                        let length = body.len();
                        let _ = write!(
                            stream,
                            "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                        );
                        stream.conn.send_close_notify();
                        let _ = stream.flush();
                        let _ = stream.read(&mut [0; 16]);
                    }
                    Reaction::CutOff => {
                        let half = &FOUND[..FOUND.len() / 2];
                        let _ =
                            write!(stream, "HTTP/1.1 200 X\r\nContent-Length: {}\r\n\r\n{half}", FOUND.len());
                        let _ = stream.flush();
                    }
                    Reaction::NoReply => drop(stream.read(&mut [0])),
                }
                if reactions.len() > 1 {
                    reactions.next();
                }
            }
        });
        let directory = tempfile::tempdir().unwrap();
        let host = if listen.contains(':') { "[::1]" } else { "127.0.0.1" };
        Self { directory, authority, port, host, requests, thread: Some(thread) }
    }

    fn plain(reactions: Vec<Reaction>) -> Self {
        Self::start("127.0.0.1", "127.0.0.1", false, reactions)
    }

    /// A kubeconfig with this server and `more` of cluster and user.
    fn kubeconfig(&self, cluster: Value, user: Value) -> PathBuf {
        let (host, port) = (self.host, self.port);
        let mut cluster = cluster;
        cluster["server"] = format!("https://{host}:{port}").into();
        let text = json!({
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": cluster}],
            "users": [{"name": "a", "user": user}],
        });
        let path = self.directory.path().join("kubeconfig");
        std::fs::write(&path, text.to_string()).unwrap();
        path
    }

    fn trusted(&self) -> Value {
        json!({"certificate-authority-data": STANDARD.encode(self.authority.pem())})
    }

    fn read(&self) -> Result<std::collections::BTreeMap<String, String>, Error> {
        self.read_within(LONGEST)
    }

    fn read_within(&self, deadline: Duration) -> Result<std::collections::BTreeMap<String, String>, Error> {
        let path = self.kubeconfig(self.trusted(), json!({"token": TOKEN}));
        let result = config_map(&path, "web", "addresses", deadline);
        if let Err(error) = &result {
            assert!(!format!("{error} {error:?}").contains(TOKEN));
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.requests = Arc::default();
        let host = self.host.trim_matches(['[', ']']);
        let _ = std::net::TcpStream::connect((host, self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn refused(status: u16, body: &'static str) -> Error {
    Server::plain(vec![Reaction::Response(status, body)]).read().unwrap_err()
}

#[test]
fn with_a_token() {
    let server = Server::plain(vec![Reaction::Response(200, FOUND)]);
    let data = server.read().unwrap();
    assert_eq!(data.into_iter().collect::<Vec<_>>(), [("ip".to_owned(), "{}".to_owned())]);
    let request = server.requests.lock().unwrap()[0].to_ascii_lowercase();
    assert!(request.starts_with("get /api/v1/namespaces/web/configmaps/addresses http/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("authorization: bearer {TOKEN}\r\n")), "{request}");
}

#[test]
fn with_a_client_certificate() {
    let server = Server::start("127.0.0.1", "127.0.0.1", true, vec![Reaction::Response(200, FOUND)]);
    let (certificate, key) = signed(&server.authority, "node");
    std::fs::write(server.directory.path().join("node.pem"), certificate.pem()).unwrap();
    std::fs::write(server.directory.path().join("node.key"), key.serialize_pem()).unwrap();
    let path = server
        .kubeconfig(server.trusted(), json!({"client-certificate": "node.pem", "client-key": "node.key"}));
    assert!(config_map(&path, "web", "addresses", LONGEST).is_ok());
}

#[test]
fn a_missing_client_certificate_is_refused() {
    let server = Server::start("127.0.0.1", "127.0.0.1", true, vec![Reaction::Response(200, FOUND)]);
    let error = server.read_within(Duration::from_secs(2)).unwrap_err();
    assert!(matches!(error.code, Code::Kubernetes | Code::TryAgain), "{error}");
}

#[test]
fn over_ipv6() {
    assert!(Server::start("::1", "::1", false, vec![Reaction::Response(200, FOUND)]).read().is_ok());
}

#[test]
fn a_certificate_with_another_name_is_refused() {
    let server = Server::start("127.0.0.1", "api.test", false, vec![Reaction::Response(200, FOUND)]);
    assert_eq!(server.read().unwrap_err().code, Code::Kubernetes);
    let mut cluster = server.trusted();
    cluster["tls-server-name"] = "api.test".into();
    let path = server.kubeconfig(cluster, json!({"token": "a"}));
    assert!(config_map(&path, "web", "addresses", LONGEST).is_ok());
}

#[test]
fn another_authority_is_not_trusted_unless_configured() {
    let server = Server::plain(vec![Reaction::Response(200, FOUND)]);
    let cluster = json!({"certificate-authority-data": STANDARD.encode(authority().pem())});
    let path = server.kubeconfig(cluster, json!({"token": TOKEN}));
    let error = config_map(&path, "web", "addresses", LONGEST).unwrap_err();
    assert_eq!(error.code, Code::Kubernetes, "{error}");
    assert!(error.message.contains("not trusted"), "{error}");
    assert!(server.requests.lock().unwrap().is_empty(), "the token was sent");
    let path = server.kubeconfig(json!({"insecure-skip-tls-verify": true}), json!({"token": "a"}));
    assert!(config_map(&path, "web", "addresses", LONGEST).is_ok());
}

#[test]
fn a_slow_server_ends_at_the_deadline() {
    let server = Server::plain(vec![Reaction::NoReply]);
    let error = server.read_within(Duration::from_millis(400)).unwrap_err();
    assert_eq!(error.code, Code::TryAgain, "{error}");
}

/// Of several connections to a load balancer, one may lead nowhere.
#[test]
fn a_connection_without_a_reply_does_not_use_the_whole_deadline() {
    let server = Server::plain(vec![Reaction::NoReply, Reaction::Response(200, FOUND)]);
    assert!(server.read_within(LONGEST).is_ok());
    assert_eq!(server.requests.lock().unwrap().len(), 2);
}

/// The installer renews the token; a call may have read the old one.
#[test]
fn after_a_refused_token_the_kubeconfig_is_read_once_more() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "old").unwrap();
    let server = Server::plain(vec![Reaction::Renews(token.clone()), Reaction::Response(200, FOUND)]);
    let path = server.kubeconfig(server.trusted(), json!({"tokenFile": token}));
    assert!(config_map(&path, "web", "addresses", LONGEST).is_ok());
    let requests = server.requests.lock().unwrap();
    for (request, token) in requests.iter().zip(["old", "new"]) {
        assert!(request.to_ascii_lowercase().contains(&format!("bearer {token}\r\n")), "{requests:?}");
    }
    assert_eq!(requests.len(), 2);
}

#[test]
fn a_token_that_stays_refused_has_code_11() {
    let server = Server::plain(vec![Reaction::Response(401, "Unauthorized")]);
    let error = server.read().unwrap_err();
    assert_eq!(error.code, Code::TryAgain, "{error}");
    assert!(error.message.contains("does not accept the token"), "{error}");
    assert_eq!(server.requests.lock().unwrap().len(), 2);
}

#[test]
fn temporary_failures_are_retried() {
    for first in [
        Reaction::Response(503, r#"{"message": "etcd is away"}"#),
        Reaction::Response(429, ""),
        Reaction::Response(500, "<html>"),
        Reaction::CutOff,
        Reaction::Response(200, r#"{"kind": "ConfigMap", "data": {"ip": "#),
    ] {
        let server = Server::plain(vec![first, Reaction::Response(200, FOUND)]);
        assert!(server.read().is_ok());
        assert_eq!(server.requests.lock().unwrap().len(), 2);
    }
}

#[test]
fn a_permanent_temporary_failure_has_code_11_and_the_servers_message() {
    let server = Server::plain(vec![Reaction::Response(503, r#"{"message": "etcd is away"}"#)]);
    let error = server.read_within(Duration::from_secs(2)).unwrap_err();
    assert_eq!((error.code, error.details.as_str()), (Code::TryAgain, "status 503: etcd is away"));
    assert!(server.requests.lock().unwrap().len() > 1);
}

#[test]
fn an_unreachable_server_has_code_11() {
    let server = Server::plain(vec![Reaction::Response(200, FOUND)]);
    let path = server.kubeconfig(server.trusted(), json!({"token": "a"}));
    let text = std::fs::read_to_string(&path).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::fs::write(&path, text.replace(&format!(":{}\"", server.port), &format!(":{free}\""))).unwrap();
    let error = config_map(&path, "web", "addresses", Duration::from_millis(300)).unwrap_err();
    assert_eq!(error.code, Code::TryAgain, "{error}");
}

#[test]
fn refusals_name_what_is_missing() {
    let error = refused(404, r#"{"kind": "Status", "message": "configmaps \"addresses\" not found"}"#);
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::Kubernetes, "ConfigMap web/addresses does not exist")
    );
    assert_eq!(error.details, "configmaps \"addresses\" not found");
    let error = refused(403, "{}");
    assert_eq!(error.code, Code::Kubernetes);
    assert!(error.message.contains("\"get\" on configmaps in the namespace web"), "{error}");
    assert_eq!(refused(302, "").code, Code::Kubernetes);
    assert_eq!(refused(200, r#"{"kind": "Pod"}"#).code, Code::Kubernetes);
    assert_eq!(refused(200, "[]").code, Code::Kubernetes);
}

#[test]
fn a_config_map_without_data_is_empty() {
    assert!(
        Server::plain(vec![Reaction::Response(200, r#"{"kind": "ConfigMap"}"#)]).read().unwrap().is_empty()
    );
}

#[test]
fn an_error_does_not_quote_the_response() {
    for body in [r#"{"kind": "ConfigMap", "data": "s3cr3t"}"#, r#""s3cr3t""#, "s3cr3t"] {
        let Response::Refused { details, .. } = request::read(200, body.as_bytes()) else { panic!("{body}") };
        assert!(details.starts_with("the response is not a ConfigMap: "), "{details}");
        assert!(!details.contains("s3cr3t"), "{details}");
    }
}

#[test]
fn a_name_cannot_change_the_url() {
    for (namespace, name) in
        [("web/..", "a"), ("web", "a/../../secrets/b"), ("", "a"), ("web", ""), ("w%2f", "a")]
    {
        let error =
            config_map(&PathBuf::from("/absent"), namespace, name, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig, "{error}");
    }
}
