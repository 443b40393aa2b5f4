//! Start and end of a whole program: exit codes, the order of drain and release, standbys, signals. The program is
//! `examples/smallest.rs`; the API server is a stand-in that knows one Lease, since only this end of it is looked at here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![cfg(feature = "runtime")]

use std::{
    convert::Infallible,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStderr, Command},
};

/// Much longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Short times, so that a lost lease is seen soon.
const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=300ms",
];

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// A running program. Dropped, it is killed.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    /// Everything that was read so far.
    seen: Vec<String>,
    _folder: tempfile::TempDir,
}

/// Cargo builds examples beside the tests.
fn executable() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/smallest");
    assert!(path.exists(), "{} is missing; `cargo test -p common --features runtime` builds it", path.display());
    path
}

fn start(server: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Program {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: a, user: {{}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a, namespace: here}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let mut child = Command::new(executable())
        .env_clear()
        .envs(environment.iter().copied())
        .args(["--admin-address=127.0.0.1:0", "--log-format=json"])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    Program { child, lines, seen: Vec::new(), _folder: folder }
}

impl Program {
    /// The first line with this text.
    async fn line(&mut self, text: &str) -> String {
        in_time(text, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.seen.push(line.clone());
                if line.contains(text) {
                    return line;
                }
            }
            panic!("ended without {text:?}: {:#?}", self.seen)
        })
        .await
    }

    async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().await.unwrap().success());
    }

    /// Its exit code; what it said is in `seen`.
    async fn code(&mut self) -> i32 {
        in_time("the end", async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.seen.push(line);
            }
            self.child.wait().await.unwrap().code().expect("it ended by itself")
        })
        .await
    }

    fn said(&self, text: &str) -> bool {
        self.seen.iter().any(|line| line.contains(text))
    }

    async fn get(&mut self, path: &str) -> String {
        let line = match self.seen.iter().find(|line| line.contains("admin server listens")) {
            Some(line) => line.clone(),
            None => self.line("admin server listens").await,
        };
        let line: Value = serde_json::from_str(&line).unwrap();
        in_time(path, async {
            let mut stream = TcpStream::connect(line["address"].as_str().unwrap()).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        })
        .await
    }

    async fn until(&mut self, path: &str, text: &str) {
        in_time(&format!("{text:?} on {path}"), async {
            while !self.get(path).await.contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

/// An API server with at most one Lease.
#[derive(Clone, Default)]
struct Leases {
    state: Arc<Mutex<(u64, Option<Value>)>>,
    /// The holders that were written, in order.
    written: Arc<Mutex<Vec<String>>>,
}

impl Leases {
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let leases = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let leases = leases.clone();
                let answer = service_fn(move |request: Request<Incoming>| {
                    let leases = leases.clone();
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let (code, body) = leases.answer(&head.method, head.uri.path(), &body);
                        let body = Full::new(Bytes::from(body.to_string()));
                        Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        url
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        assert!(path.starts_with("/apis/coordination.k8s.io/v1/namespaces/here/leases"), "{method} {path}");
        let refuse = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}))
        };
        let (version, lease) = &mut *self.state.lock().unwrap();
        if method == Method::GET {
            return lease.clone().map_or_else(|| refuse(404, "NotFound"), |lease| (200, lease));
        }
        let mut new: Value = serde_json::from_slice(body).unwrap();
        let current = lease.as_ref().map(|lease| &lease["metadata"]["resourceVersion"]);
        if method == Method::PUT && Some(&new["metadata"]["resourceVersion"]) != current {
            return refuse(409, "Conflict");
        }
        *version += 1;
        new["metadata"]["resourceVersion"] = version.to_string().into();
        new["metadata"]["name"] = "smallest".into();
        self.written.lock().unwrap().push(new["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned());
        *lease = Some(new.clone());
        (if method == Method::POST { 201 } else { 200 }, new)
    }

    /// Somebody else takes it, and goes on renewing it in no time.
    fn give_to(&self, holder: &str) {
        let (version, lease) = &mut *self.state.lock().unwrap();
        *version += 1;
        *lease = Some(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "smallest", "namespace": "here", "resourceVersion": version.to_string()},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "leaseTransitions": 1,
                "acquireTime": "2026-11-21T12:00:00.000000Z", "renewTime": "2026-11-21T12:00:00.000000Z"}}));
    }
}

/// No API server is needed by one that neither elects nor asks.
const NOWHERE: &str = "http://127.0.0.1:9";
const ALONE: &str = "--leader-elect=false";

#[tokio::test]
async fn exit_codes_tell_an_end_from_a_failure_from_bad_configuration() {
    for (then, code, text) in [
        ("return", 0, "nothing to do"),
        ("fail", 1, "this controller always fails"),
        ("misconfigured", 2, "smallest: smallest.yaml:1: unknown field \"x\""),
    ] {
        for how in ["--command", "--log-filter=info"] {
            let mut program = start(NOWHERE, &[ALONE, how, "--then", then], &[]);
            assert_eq!(program.code().await, code, "{then} {how}: {:#?}", program.seen);
            assert!(program.said(text), "{then} {how}: {:#?}", program.seen);
        }
    }
}

#[tokio::test]
async fn what_is_wrong_at_the_start_ends_with_two_before_anything_is_asked() {
    let leases = Leases::default();
    let server = leases.serve().await;
    for (arguments, text) in [
        (vec!["--leader-elect-renew-deadline=20s"], "smallest: "),
        (vec!["--leader-elect-lease-duration=soon"], "15s, 1m30s or 500ms"),
        (vec!["--context=nobody"], "nobody"),
        (vec!["--log-filter=smallest=loud"], "smallest=loud"),
        (vec!["--admin-address=here"], "--admin-address"),
        (vec!["--no-such-flag"], "--no-such-flag"),
    ] {
        let mut program = start(&server, &arguments, &[]);
        assert_eq!(program.code().await, 2, "{arguments:?}: {:#?}", program.seen);
        assert!(program.said(text), "{arguments:?}: {:#?}", program.seen);
    }
    assert!(leases.written.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_admin_address_that_is_taken_is_a_failure_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("--admin-address={}", taken.local_addr().unwrap());
    // The last flag would win; clap refuses a flag given twice, so this one goes by its variable's way: a fresh command line.
    let mut child = Command::new(executable());
    child.env_clear().args([ALONE, "--kubeconfig=/nonexistent", &address]);
    let output = child.output().await.unwrap();
    assert_eq!(output.status.code(), Some(2), "the kubeconfig comes first: {output:?}");

    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, "current-context: a\nclusters: [{name: a, cluster: {server: 'http://a'}}]\nusers: []\n\
        contexts: [{name: a, context: {cluster: a}}]\n").unwrap();
    let mut child = Command::new(executable());
    child.env_clear().env("KUBECONFIG", &kubeconfig).args([ALONE, &address]);
    let output = child.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&taken.local_addr().unwrap().to_string()) && text.contains("admin server on"), "{text}");
}

#[tokio::test]
async fn a_signal_lets_the_pass_finish_and_then_releases_the_lease() {
    let leases = Leases::default();
    let server = leases.serve().await;
    for signal in ["TERM", "INT"] {
        let mut program = start(&server, &QUICK, &[("POD_NAME", "pod-1")]);
        program.line("leading").await;
        program.until("/statusz", "Leading: true").await;
        program.until("/statusz", "last pass: nothing to do").await;
        program.until("/metrics", "leader_election_master_status{name=\"smallest\"} 1").await;
        let held = leases.written.lock().unwrap().clone();
        assert!(held.iter().all(|holder| holder.is_empty() || holder.starts_with("pod-1")), "{held:?}");
        assert!(!held.last().unwrap().is_empty());
        program.signal(signal).await;
        assert_eq!(program.code().await, 0, "{:#?}", program.seen);
        let position = |text: &str| program.seen.iter().rposition(|line| line.contains(text));
        assert!(position("nothing to do") > position("draining"), "{:#?}", program.seen);
        assert_eq!(leases.written.lock().unwrap().last().unwrap(), "", "released, and last of all");
    }
}

#[tokio::test]
async fn a_controller_that_does_not_drain_is_cut_off_and_keeps_the_lease_from_others() {
    let leases = Leases::default();
    let server = leases.serve().await;
    let mut program = start(&server, &["--then=deaf", "--drain-timeout=500ms"], &[]);
    program.line("leading").await;
    program.signal("TERM").await;
    assert_eq!(program.code().await, 1);
    assert!(program.said("did not end within the drain timeout of 500ms"), "{:#?}", program.seen);
    assert!(!leases.written.lock().unwrap().last().unwrap().is_empty(), "a write may still be on its way");
}

#[tokio::test]
async fn the_second_signal_ends_at_once() {
    let mut program = start(NOWHERE, &[ALONE, "--then=deaf", "--drain-timeout=1h"], &[]);
    program.line("leading").await;
    program.signal("TERM").await;
    program.line("draining").await;
    program.signal("INT").await;
    assert_eq!(program.code().await, 1);
    assert!(program.said("ending at once"), "{:#?}", program.seen);
}

#[tokio::test]
async fn a_lost_lease_ends_the_process_though_its_controller_hears_nothing() {
    let leases = Leases::default();
    let server = leases.serve().await;
    let mut program = start(&server, &[QUICK.as_slice(), &["--then=deaf"]].concat(), &[]);
    program.line("leading").await;
    leases.give_to("another");
    let start = Instant::now();
    assert_eq!(program.code().await, 1, "{:#?}", program.seen);
    assert!(program.said("the lease was lost"), "{:#?}", program.seen);
    // The drain timeout of 25 s plays no part.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let (_, lease) = leases.state.lock().unwrap().clone();
    assert_eq!(lease.unwrap()["spec"]["holderIdentity"], "another", "never emptied for another");
}

#[tokio::test]
async fn a_standby_is_ready_does_nothing_and_leaves_without_a_trace() {
    let leases = Leases::default();
    leases.give_to("another");
    let server = leases.serve().await;
    let mut program = start(&server, &QUICK, &[]);
    program.until("/readyz", " 200 OK").await;
    program.until("/statusz", "Lease holder: another").await;
    assert!(program.get("/statusz").await.contains("Leading: false"));
    assert!(program.get("/metrics").await.contains("leader_election_master_status{name=\"smallest\"} 0"));
    assert!(program.get("/flagz").await.contains("\nleader-elect-lease-duration=3s\n"));
    program.signal("TERM").await;
    assert_eq!(program.code().await, 0);
    assert!(!program.said("leading\"") && leases.written.lock().unwrap().is_empty(), "{:#?}", program.seen);
}

#[tokio::test]
async fn every_flag_can_come_from_the_environment() {
    let environment = [("PERIMETER_LEADER_ELECT", "false"), ("PERIMETER_THEN", "return"), ("RUST_LOG", "warn")];
    let mut program = start(NOWHERE, &[], &environment);
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
    assert!(program.seen.is_empty(), "the filter says warn: {:#?}", program.seen);
}

#[tokio::test]
async fn the_version_names_commit_and_compiler() {
    let output = Command::new(executable()).arg("--version").output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("smallest 0.1.0 (commit ") && text.contains(", rustc 1."), "{text}");
}

/// A collector of traces: paths and bodies of what it was sent.
async fn collector() -> (String, Arc<Mutex<Vec<(String, Vec<u8>)>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::<Mutex<Vec<(String, Vec<u8>)>>>::default();
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let log = Arc::clone(&log);
            let answer = service_fn(move |request: Request<Incoming>| {
                let log = Arc::clone(&log);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes().to_vec();
                    log.lock().unwrap().push((head.uri.path().to_owned(), body));
                    // An empty message, not compressed, and the status of gRPC.
                    let status = http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                    let frames = [Frame::data(Bytes::from_static(&[0; 5])), Frame::trailers(status)];
                    let body = StreamBody::new(futures::stream::iter(frames.map(Ok::<_, Infallible>)));
                    let answer = Response::builder().header("content-type", "application/grpc").body(body);
                    Ok::<_, Infallible>(answer.unwrap())
                }
            });
            tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer));
        }
    });
    (url, seen)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn traces_leave_over_grpc_before_the_process_ends_where_a_collector_is_named() {
    for variable in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
        let (url, seen) = collector().await;
        let environment = [(variable, url.as_str()), ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=lab")];
        let mut program = start(NOWHERE, &[ALONE, "--then=return"], &environment);
        assert_eq!(program.code().await, 0, "{:#?}", program.seen);
        let seen = seen.lock().unwrap();
        let (path, body) = seen.first().unwrap_or_else(|| panic!("nothing was sent: {:#?}", program.seen));
        assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
        for text in ["service.name", "smallest", "deployment.environment", "lab", "pass"] {
            assert!(holds(body, text), "{text} is not in {}", String::from_utf8_lossy(body));
        }
    }
}

#[tokio::test]
async fn a_span_for_each_call_of_the_api_server() {
    let leases = Leases::default();
    let (server, (url, seen)) = (leases.serve().await, collector().await);
    let mut program = start(&server, &["--then=return"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
    let sent: Vec<u8> = seen.lock().unwrap().iter().flat_map(|(_, body)| body.clone()).collect();
    for text in ["kubernetes get", "kubernetes create", "http.request.method", "/apis/coordination.k8s.io/"] {
        assert!(holds(&sent, text), "{text} is not in {}", String::from_utf8_lossy(&sent));
    }
}

#[tokio::test]
async fn the_standard_variables_change_or_stop_the_traces() {
    let (url, seen) = collector().await;
    for (name, value) in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_SAMPLER", "always_off")] {
        let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), (name, value)];
        let mut program = start(NOWHERE, &[ALONE, "--then=return"], &environment);
        assert_eq!(program.code().await, 0, "{:#?}", program.seen);
        assert!(seen.lock().unwrap().is_empty(), "{name}={value} sends nothing");
    }
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_SERVICE_NAME", "renamed")];
    let mut program = start(NOWHERE, &[ALONE, "--then=return"], &environment);
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
    assert!(holds(&seen.lock().unwrap()[0].1, "renamed"));
}

#[tokio::test]
async fn a_collector_that_is_away_holds_the_end_up_for_three_seconds_at_most() {
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")];
    let mut program = start(NOWHERE, &[ALONE, "--then=pass"], &environment);
    program.line("nothing to do").await;
    program.signal("TERM").await;
    let start = Instant::now();
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
