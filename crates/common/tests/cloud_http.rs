//! `cloud::http` over real connections: broken connections, requests, secrets in logs, TLS trust.
#![cfg(feature = "cloud")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use common::cloud::http::{Budget, Error, Http, Response, Retry, Secret};
use prometheus::Registry;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const TOKEN: &str = "t0k3n-that-must-not-leak";

/// A server on a thread: each connection gets the next script; a script answers its requests with these bytes in order and
/// then closes.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(connections: Vec<Vec<&'static [u8]>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        thread::spawn(move || {
            for responses in connections {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                for response in responses {
                    let Some(request) = read_request(&mut reader) else { break };
                    seen.lock().unwrap().push(request);
                    (&stream).write_all(response).unwrap();
                }
                // Not half open until the next test: the peer sees the end now.
                drop(stream.shutdown(std::net::Shutdown::Both));
            }
        });
        Server { address, requests }
    }

    fn client(&self) -> Http {
        client(&format!("http://{}/v1", self.address), Secret::new(TOKEN).unwrap()).unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// One request with its body; None if the connection ends instead.
fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let mut text = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        text.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(text + &String::from_utf8(body).unwrap())
}

fn retry_policy(response: &Response) -> Retry {
    if response.status.is_server_error() { Retry::Soon } else { Retry::Never }
}

fn client(endpoint: &str, secret: Secret) -> Result<Http, Error> {
    Http::new("test", endpoint, secret, "perimeter-test/1", &Registry::new(), retry_policy)
}

async fn get(http: &Http) -> Result<Response, Error> {
    http.get("/things?name=what%20was%20typed", &mut Budget::default()).await
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CUT: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"half\":";
const CUT_CHUNKS: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\n{\"half\":\r\n";
const HALF_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-le";

#[tokio::test]
async fn a_request_has_user_agent_and_credential() {
    let server = Server::start(vec![vec![OK, OK]]);
    let http = server.client();
    assert_eq!(get(&http).await.unwrap().body, "ok");
    http.post("/things/1/actions/turn", &serde_json::json!({"to": "left"})).await.unwrap();
    let requests = server.requests();
    assert!(
        requests[0].starts_with("GET /v1/things?name=what%20was%20typed HTTP/1.1\r\n"),
        "{}",
        requests[0]
    );
    for request in &requests {
        for line in [
            format!("authorization: Bearer {TOKEN}"),
            "user-agent: perimeter-test/1".to_owned(),
            "accept: application/json".to_owned(),
        ] {
            assert!(request.lines().any(|l| l == line), "{line} is missing in {request}");
        }
    }
    assert!(requests[1].starts_with("POST /v1/things/1/actions/turn HTTP/1.1\r\n"));
    assert!(
        requests[1].contains("content-type: application/json\r\n")
            && requests[1].ends_with("{\"to\":\"left\"}")
    );
}

#[tokio::test]
async fn a_truncated_response_is_retried() {
    let server = Server::start(vec![vec![CUT], vec![], vec![OK]]);
    assert_eq!(get(&server.client()).await.unwrap().body, "ok");
    assert_eq!(server.requests().len(), 2, "the connection that was closed at once saw none");
}

#[tokio::test]
async fn a_truncated_response_is_an_error() {
    for cut in [CUT, CUT_CHUNKS, HALF_HEAD] {
        let server = Server::start(vec![vec![cut]]);
        let error = server.client().post("/things", &serde_json::json!({})).await.unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{error:?}");
        assert_eq!(error.retry(), Retry::Soon);
    }
}

/// Many clients send again if the server closes a pooled connection after it has read the request.
#[tokio::test]
async fn a_post_is_sent_once_even_on_a_reused_connection() {
    let server = Server::start(vec![vec![OK, b""], vec![OK]]);
    let http = server.client();
    get(&http).await.unwrap();
    let error = http.post("/things", &serde_json::json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Broken(_)), "{error:?}");
    assert_eq!(server.requests().len(), 2);
    get(&http).await.unwrap();
    assert_eq!(server.requests().iter().filter(|request| request.starts_with("POST")).count(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_a_connect_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let http = client(&format!("http://{address}"), Secret::new(TOKEN).unwrap()).unwrap();
    let error = http.post("/things", &serde_json::json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn an_endless_body_is_an_error() {
    let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
    let endless: &'static [u8] = Box::leak([head, vec![b' '; 9 << 20]].concat().into_boxed_slice());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        read_request(&mut BufReader::new(stream.try_clone().unwrap()));
        // Fails when the client hangs up, which is what is wanted.
        let _ = (&stream).write_all(endless);
    });
    let http = client(&format!("http://{address}"), Secret::new(TOKEN).unwrap()).unwrap();
    assert!(matches!(get(&http).await, Err(Error::TooLarge(_))));
}

#[tokio::test]
async fn the_token_does_not_follow_a_redirect() {
    let other = Server::start(vec![vec![OK]]);
    let redirect =
        format!("HTTP/1.1 302 Found\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", other.address);
    let server = Server::start(vec![vec![redirect.leak().as_bytes()]]);
    assert_eq!(get(&server.client()).await.unwrap().status, 302);
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_rotated_token_is_used_by_the_next_request_and_a_missing_one_is_reported() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first\n").unwrap();
    let server = Server::start(vec![vec![OK, OK]]);
    let http =
        client(&format!("http://{}", server.address), Secret::from_file(file.path()).unwrap()).unwrap();
    get(&http).await.unwrap();
    std::fs::write(file.path(), "second\n").unwrap();
    get(&http).await.unwrap();
    let requests = server.requests();
    assert!(
        requests[0].contains("authorization: Bearer first\r\n")
            && requests[1].contains("authorization: Bearer second\r\n")
    );
    let path = file.path().display().to_string();
    drop(file);
    let error = get(&http).await.unwrap_err();
    assert!(matches!(error, Error::Secret(_)) && error.retry() == Retry::Never);
    assert!(error.to_string().contains(&path), "{error}");
}

/// Everything that any crate logs through tracing, spans and their later fields included.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<String>>);

impl Visit for Everything {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0.lock().unwrap(), " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        write!(self.0.lock().unwrap(), "\nspan {}", span.metadata().name()).unwrap();
        span.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        write!(self.0.lock().unwrap(), "\nlater").unwrap();
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        write!(self.0.lock().unwrap(), "\nevent").unwrap();
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Set in the child process of the test below.
const ALONE: &str = "CLOUD_HTTP_TEST_ALONE";

/// In a process of its own: what another test logs for the first time at this moment might never reach this subscriber.
#[test]
fn neither_logs_nor_spans_nor_errors_show_the_token_or_the_query() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(nothing_shows_the_token_or_the_query());
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "neither_logs_nor_spans_nor_errors_show_the_token_or_the_query", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = [child.stdout, child.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

async fn nothing_shows_the_token_or_the_query() {
    let heard = Everything::default();
    let _guard = tracing::subscriber::set_default(heard.clone());
    let busy = b"HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(vec![vec![busy, OK], vec![CUT]]);
    let http = server.client();
    get(&http).await.unwrap();
    let mut error_body = format!("{http:?}");
    let error = http.post("/things?secret=typed", &serde_json::json!({})).await.unwrap_err();
    write!(error_body, "{error} {error:?}").unwrap();
    error_body.push_str(&heard.0.lock().unwrap());
    assert!(!error_body.contains(TOKEN), "{error_body}");
    let spans = error_body.lines().filter(|line| line.starts_with("span cloud request")).count();
    assert_eq!(spans, 3, "a span for each exchange: {error_body}");
    let ours = |line: &&str| line.starts_with("span cloud request") || line.starts_with("later");
    let text = error_body.lines().filter(ours).collect::<Vec<_>>().join("\n");
    assert!(!text.contains("typed"), "{text}");
    assert!(
        ["url.path=\"/things\"", "http.request.method=GET", "http.response.status_code=503"]
            .iter()
            .all(|attribute| text.contains(attribute)),
        "{text}"
    );
    assert!(
        text.contains("http.request.method=POST") && text.contains("error=the connection broke"),
        "{text}"
    );
}

/// Set in the child processes of the test below: a process has one environment, and the trusted authorities come from it.
const CHILD: &str = "CLOUD_HTTP_TEST_TLS_ENDPOINT";

/// A private authority is trusted through SSL_CERT_FILE, and a server of another authority is refused.
#[test]
fn tls_trusts_the_authorities_of_ssl_cert_file_only() {
    if let Ok(endpoint) = std::env::var(CHILD) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let end = runtime.block_on(async {
            let http = client(&endpoint, Secret::new(TOKEN).unwrap()).unwrap();
            http.post("/things", &serde_json::json!({})).await
        });
        println!(
            "child: {}",
            end.map_or_else(|error| error.to_string(), |response| response.status.to_string())
        );
        return;
    }
    let ours = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let config = Arc::new(
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![ours.cert.der().clone()],
                ours.signing_key.serialize_der().try_into().unwrap(),
            )
            .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = BufReader::new(rustls::StreamOwned::new(session, stream.unwrap()));
            if let Some(request) = read_request(&mut stream) {
                seen.lock().unwrap().push(request);
                stream.get_mut().write_all(OK).unwrap();
                stream.get_mut().flush().unwrap();
            }
        }
    });
    let child = |authority: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), authority).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tls_trusts_the_authorities_of_ssl_cert_file_only", "--nocapture"])
            .env(CHILD, &endpoint)
            .env("SSL_CERT_FILE", file.path())
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let error_body = child(&ours.cert.pem());
    assert!(error_body.contains("child: 200 OK"), "{error_body}");
    let error_body = child(&other.cert.pem());
    assert!(
        error_body.contains("child: cannot connect: ") && error_body.contains("certificate"),
        "{error_body}"
    );
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 1, "the token is not sent to another server");
    assert!(requests[0].contains(TOKEN));
}
