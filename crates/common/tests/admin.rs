//! The admin server over real sockets: every page, every refusal and every limit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![cfg(feature = "runtime")]

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::OnceLock,
    time::{Duration, Instant},
};

use common::{
    admin::{self, Admin, Status},
    args::LogArgs,
    leader::Leadership,
    metrics::Metrics,
    readiness::Readiness,
    server,
    telemetry::{LogLevel, Telemetry},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Longer than any limit of the server, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

struct TestEnv {
    address: SocketAddr,
    readiness: Readiness,
    metrics: Metrics,
    status: Status,
}

/// One process has one log filter.
fn log_level() -> LogLevel {
    static LEVEL: OnceLock<LogLevel> = OnceLock::new();
    let start = || Telemetry::start(&common::program!(), &LogArgs::default()).unwrap().level();
    LEVEL.get_or_init(start).clone()
}

async fn serve(ip: IpAddr) -> TestEnv {
    let (readiness, metrics, status) =
        (Readiness::default(), Metrics::new("test").unwrap(), Status::default());
    let admin = Admin {
        program: common::program!(),
        flags: BTreeMap::from([
            ("context".to_owned(), "a".to_owned()),
            ("token".to_owned(), "[redacted]".to_owned()),
        ]),
        readiness: readiness.clone(),
        metrics: metrics.clone(),
        status: status.clone(),
        leadership: Leadership::always(),
        log_level: log_level(),
    };
    let server = server::Builder::new("admin", admin::LIMITS).bind(SocketAddr::new(ip, 0)).await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(admin.serve(server));
    TestEnv { address, readiness, metrics, status }
}

async fn local() -> TestEnv {
    serve(Ipv4Addr::LOCALHOST.into()).await
}

/// Everything that the server sends in response to `request` until it closes.
async fn raw(address: SocketAddr, request: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may refuse and close before it has read everything.
        let _refused_early = stream.write_all(request.as_bytes()).await;
        let mut response = Vec::new();
        let _reset = stream.read_to_end(&mut response).await;
        String::from_utf8(response).unwrap()
    };
    tokio::time::timeout(DEADLINE, exchange).await.expect("the server neither responds nor closes")
}

/// Code and body.
async fn send(address: SocketAddr, method: &str, path: &str, more: &str, body: &str) -> (u16, String) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n{more}\r\n{body}",
        body.len()
    );
    let response = raw(address, &request).await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn get(env: &TestEnv, path: &str) -> (u16, String) {
    send(env.address, "GET", path, "", "").await
}

#[tokio::test]
async fn readyz_succeeds_once_every_check_has_succeeded() {
    let env = local().await;
    let (code, text) = get(&env, "/readyz").await;
    assert_eq!((code, text.as_str()), (503, "[-]no checks yet\nreadyz check failed\n"));
    let (nodes, jobs) = (env.readiness.check("nodes"), env.readiness.check("jobs"));
    nodes.ready();
    jobs.failing("403 jobs is forbidden");
    let failed = "[-]jobs failed: 403 jobs is forbidden\n[+]nodes ok\nreadyz check failed\n";
    for path in ["/readyz", "/readyz?verbose", "/healthz"] {
        assert_eq!(get(&env, path).await, (503, failed.to_owned()), "{path}");
    }
    jobs.ready();
    assert_eq!(get(&env, "/readyz").await, (200, "ok".to_owned()));
    assert_eq!(get(&env, "/healthz").await, (200, "ok".to_owned()));
    assert_eq!(
        get(&env, "/readyz?verbose").await,
        (200, "[+]jobs ok\n[+]nodes ok\nreadyz check passed\n".to_owned())
    );
    // A watch error of a cache that has synced does not take readiness away.
    nodes.failing("connection refused");
    assert_eq!(get(&env, "/readyz").await, (200, "ok".to_owned()));
    let degraded = "[+]jobs ok\n[+]nodes ok, but now: connection refused\nreadyz check passed\n";
    assert_eq!(get(&env, "/readyz?verbose").await, (200, degraded.to_owned()));
}

#[tokio::test]
async fn liveness_does_not_wait_for_readiness() {
    let env = local().await;
    assert_eq!(get(&env, "/livez").await, (200, "ok".to_owned()));
    assert_eq!(
        get(&env, "/livez?verbose").await,
        (200, "[+]heartbeat-start ok\nlivez check passed\n".to_owned())
    );
}

#[tokio::test]
async fn pages_for_people_and_their_json() {
    let env = local().await;
    env.status.set("primary", "node-1");
    env.metrics.reconciliation("test").succeeded();
    let (code, text) = get(&env, "/statusz").await;
    assert_eq!(code, 200);
    assert!(text.starts_with("common statusz\nWarning: "), "{text}");
    for line in
        ["Up: 0 hr 0", "Leading: true", "primary: node-1", "Binary version: 0.1.0", "Paths: /flagz /healthz"]
    {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    // The Accept header for kubectl get --raw and for the structured z-pages of 1.35.
    let accept = "accept: application/json;v=v1alpha1;g=config.k8s.io;as=Statusz\r\n";
    let (_, text) = send(env.address, "GET", "/statusz", accept, "").await;
    let page: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&page["kind"], &page["apiVersion"]), (&"Statusz".into(), &"config.k8s.io/v1alpha1".into()));
    assert_eq!((&page["status"]["primary"], &page["leading"]), (&"node-1".into(), &true.into()));

    let (_, text) = get(&env, "/flagz").await;
    assert!(text.ends_with("\n\ncontext=a\ntoken=[redacted]\n"), "{text}");
    let (_, text) = send(env.address, "GET", "/flagz", "accept: application/json\r\n", "").await;
    let page: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&page["kind"], &page["flags"]["context"]), (&"Flagz".into(), &"a".into()));

    let (code, text) = get(&env, "/metrics").await;
    assert_eq!(code, 200);
    assert!(
        text.contains("controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1"),
        "{text}"
    );
}

#[tokio::test]
async fn the_log_level_is_changed_from_this_host_only() {
    let env = local().await;
    let put = async |body: &str| send(env.address, "PUT", "/loglevel", "", body).await;
    assert_eq!(put("info,common=debug\n").await, (200, "common=debug,info\n".to_owned()));
    assert_eq!(get(&env, "/loglevel").await, (200, "common=debug,info\n".to_owned()));
    let (code, why) = put("common=loud").await;
    assert!(code == 400 && why.contains("common=loud"), "{code} {why}");
    assert_eq!(put(&"a".repeat(1025)).await.0, 413);
    assert_eq!(get(&env, "/loglevel").await.1, "common=debug,info\n", "refused ones change nothing");
    assert_eq!(put("info").await.0, 200);

    // natgw listens on the address of its Node only. A client on the Node has the same address.
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    let outside = match probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr()) {
        Ok(address) if !address.ip().is_loopback() => address.ip(),
        _ => panic!("this test needs a network interface other than loopback"),
    };
    let env = serve(outside).await;
    for method in ["GET", "PUT"] {
        let (code, _) = send(env.address, method, "/loglevel", "", "debug").await;
        assert_eq!(code, 200, "{method}");
    }
    assert_eq!(get(&env, "/livez").await.0, 200);
}

#[tokio::test]
async fn an_unknown_path_is_not_found_and_a_method_that_changes_nothing_is_not_allowed() {
    let env = local().await;
    assert_eq!(get(&env, "/").await.0, 404);
    assert_eq!(get(&env, "/livez/x").await.0, 404);
    for path in ["/livez", "/metrics", "/flagz"] {
        assert_eq!(
            send(env.address, "POST", path, "", "x").await,
            (405, "allowed: GET, HEAD\n".to_owned()),
            "{path}"
        );
    }
    assert_eq!(send(env.address, "DELETE", "/loglevel", "", "").await.0, 405);
    let (code, body) = send(env.address, "HEAD", "/livez", "", "").await;
    assert_eq!((code, body.as_str()), (200, ""));
}

#[tokio::test]
async fn a_request_head_that_is_too_long_or_incomplete_is_refused() {
    let env = local().await;
    let long = format!("GET /livez HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "x".repeat(16 * 1024));
    let response = raw(env.address, &long).await;
    assert!(!response.contains(" 200 "), "{response}");

    let start = Instant::now();
    let response = raw(env.address, "GET /livez HTTP/1.1\r\nhost: a\r\n").await;
    assert!(!response.contains(" 200 "), "{response}");
    assert!(start.elapsed() >= Duration::from_secs(1), "a slow client has some time");
}

#[tokio::test]
async fn more_silent_connections_than_the_limit_do_not_lock_a_probe_out() {
    let env = local().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(env.address).await.unwrap());
    }
    assert_eq!(get(&env, "/livez").await.0, 200, "while {} connections are silent", silent.len());
}
