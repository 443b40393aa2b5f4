//! Faults of single requests.

use std::time::{Duration, Instant};

use e2e::fault_proxy::{Call, Fault, FaultProxy, Matcher, Reply, Upstream};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fault_proxy::client::{BODY, ask, get, is_reset, open, post};
use crate::fault_proxy::server::{BIG, Server};
use crate::fault_proxy::{TIMEOUT, env, soon};

#[tokio::test]
async fn without_rules_requests_and_responses_are_unchanged() {
    let (server, proxy) = env().await;
    let received = ask(&proxy.url(), Method::PATCH, "/api/v1/nodes/n1?fieldManager=x").await.unwrap();
    assert_eq!((received.status, received.json()), (StatusCode::CREATED, json!({"acted": true})));
    assert_eq!(get(&proxy.url(), "/big").await.unwrap().body.len(), BIG);
    let seen = &server.seen()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("PATCH", "/api/v1/nodes/n1"));
    assert_eq!(seen.headers["authorization"], "Bearer of-the-caller");
    assert_eq!(seen.headers["host"], server.url().trim_start_matches("http://"));
    assert_eq!(seen.body, BODY);
}

#[tokio::test]
async fn base_path_is_prepended() {
    let server = Server::start().await;
    let upstream = Upstream::hetzner(format!("{}/v1/", server.url()));
    let proxy = FaultProxy::start(upstream).await.unwrap();
    get(&proxy.url(), "/servers").await.unwrap();
    assert_eq!(server.seen()[0].path, "/v1/servers");
}

#[tokio::test]
async fn narrowed_list_is_recorded_as_requested() {
    let (server, proxy) = env().await;
    proxy.narrow("/api/v1/nodes", "labelSelector=env%3Da");
    for target in ["/api/v1/nodes", "/api/v1/nodes?limit=5", "/api/v1/nodes/n1"] {
        get(&proxy.url(), target).await.unwrap();
    }
    post(&proxy.url(), "/api/v1/nodes").await.unwrap();
    let seen: Vec<String> = server.seen().into_iter().map(|seen| seen.query).collect();
    assert_eq!(seen, ["labelSelector=env%3Da", "limit=5&labelSelector=env%3Da", "", ""]);
    assert!(proxy.requests().iter().all(|call| !call.query.contains("labelSelector")), "as it was requested");
}

#[tokio::test]
async fn refused_request_is_reset_and_not_forwarded() {
    let (server, proxy) = env().await;
    let rule = proxy.rule(Matcher::writes().path("/a*").after(1).times(1), Fault::Refuse);
    post(&proxy.url(), "/a/1").await.unwrap();
    let failure = post(&proxy.url(), "/a/2").await.unwrap_err();
    assert!(is_reset(&failure), "{failure:?}");
    post(&proxy.url(), "/b/3").await.unwrap();
    post(&proxy.url(), "/a/4").await.unwrap();
    assert_eq!(server.acted(), ["/a/1", "/b/3", "/a/4"]);
    assert_eq!((proxy.applied(rule), proxy.counter().count()), (1, 3));
}

#[tokio::test]
async fn refuse_all_resets_open_and_new_connections() {
    let (server, proxy) = env().await;
    let mut idle = TcpStream::connect(proxy.url().trim_start_matches("http://")).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut received = [0; 12];
    soon(idle.read_exact(&mut received)).await.unwrap();
    assert_eq!(&received, b"HTTP/1.1 200");
    proxy.refuse_all(true);
    let mut rest = Vec::new();
    assert_eq!(
        soon(idle.read_to_end(&mut rest)).await.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset
    );
    get(&proxy.url(), "/").await.unwrap_err();
    assert_eq!(server.seen().len(), 1);
    proxy.refuse_all(false);
    get(&proxy.url(), "/").await.unwrap();
}

#[tokio::test]
async fn sever_resets_connections_made_before_it_and_serves_later_ones() {
    let (_server, proxy) = env().await;
    let mut silent = TcpStream::connect(proxy.url().trim_start_matches("http://")).await.unwrap();
    proxy.sever().await;
    let outcome = soon(silent.read(&mut [0; 1])).await;
    assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    get(&proxy.url(), "/").await.unwrap();
}

#[tokio::test]
async fn delay_is_before_or_after_the_server() {
    let (server, proxy) = env().await;
    let delay = Duration::from_millis(100);
    for fault in [Fault::DelayRequest(delay), Fault::DelayResponse(delay)] {
        proxy.rule(Matcher::any().times(1), fault);
        let begun = Instant::now();
        get(&proxy.url(), "/").await.unwrap();
        assert!(begun.elapsed() >= delay);
    }
    let long = Duration::from_secs(3600);
    proxy.rule(Matcher::any().path("/late"), Fault::DelayResponse(long));
    let waiting = tokio::spawn({
        let url = proxy.url();
        async move { get(&url, "/late").await.map(|_| ()) }
    });
    server.wait_seen(3).await;
    assert!(!waiting.is_finished());
    waiting.abort();

    proxy.rule(Matcher::any().path("/never"), Fault::DelayRequest(long));
    let waiting = tokio::spawn({
        let url = proxy.url();
        async move { get(&url, "/never").await.map(|_| ()) }
    });
    proxy
        .wait_for(|requests| requests.iter().any(|request| request.path == "/never"), TIMEOUT)
        .await
        .unwrap();
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert!(server.seen().iter().all(|seen| seen.path != "/never"));
}

#[tokio::test]
async fn delayed_write_arrives_although_the_controller_gave_up() {
    let (server, proxy) = env().await;
    // Long enough to give up on a busy machine.
    let rule = proxy.rule(Matcher::writes(), Fault::DelayRequest(Duration::from_secs(3)));
    let url = proxy.url();
    let giving_up = tokio::spawn(async move { post(&url, "/late").await.map(|_| ()) });
    proxy.wait_applied(rule, 1, TIMEOUT).await.unwrap();
    giving_up.abort();
    assert!(giving_up.await.unwrap_err().is_cancelled());
    server.wait_seen(1).await;
    assert_eq!(server.acted(), ["/late"]);
}

#[tokio::test]
async fn black_hole_responds_once_its_rule_is_removed() {
    let (server, proxy) = env().await;
    let hole = proxy.rule(Matcher::any().method(Method::POST), Fault::Blackhole);
    let url = proxy.url();
    let waiting = tokio::spawn(async move { post(&url, "/a").await });
    proxy.wait_applied(hole, 1, TIMEOUT).await.unwrap();
    get(&proxy.url(), "/b").await.unwrap();
    assert!(!waiting.is_finished());
    assert_eq!(server.seen().len(), 1);
    assert!(proxy.remove(hole));
    assert_eq!(soon(waiting).await.unwrap().unwrap().status, StatusCode::CREATED);
    assert!(!proxy.remove(hole));
}

#[tokio::test]
async fn response_is_cut_after_the_number_of_bytes() {
    let (_server, proxy) = env().await;
    for after_bytes in [0, 1, BIG / 2, BIG - 1] {
        proxy.clear();
        proxy.rule(Matcher::any(), Fault::CutResponse { after_bytes });
        let response = open(&proxy.url(), Method::GET, "/big").await.unwrap();
        assert_eq!(response.headers()["content-length"], BIG.to_string());
        let mut body = response.into_body();
        let mut arrived = 0;
        let end = loop {
            match soon(body.frame()).await {
                Some(Ok(frame)) => arrived += frame.into_data().unwrap().len(),
                other => break other,
            }
        };
        assert!(matches!(end, Some(Err(_))), "cut, not ended");
        assert_eq!(arrived, after_bytes);
    }
}

#[tokio::test]
async fn response_to_a_write_is_cut_after_the_server_acted() {
    let (server, proxy) = env().await;
    proxy.rule(Matcher::writes(), Fault::CutResponse { after_bytes: 4 });
    let response = open(&proxy.url(), Method::POST, "/a").await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    soon(response.into_body().collect()).await.unwrap_err();
    assert_eq!(server.acted(), ["/a"]);
}

#[tokio::test]
async fn rejection_has_the_body_of_the_flavour_and_is_not_forwarded() {
    let server = Server::start().await;
    let kubernetes = FaultProxy::start(Upstream::kubernetes(server.url())).await.unwrap();
    let hetzner = FaultProxy::start(Upstream::hetzner(server.url())).await.unwrap();
    for (status, reason, code) in [
        (409, "Conflict", "conflict"),
        (410, "Expired", "deprecated_api_endpoint"),
        (429, "TooManyRequests", "rate_limit_exceeded"),
        (500, "InternalError", "server_error"),
        (502, "InternalError", "bad_gateway"),
        (503, "ServiceUnavailable", "unavailable"),
        (504, "Timeout", "timeout"),
    ] {
        let reply = Reply::status(StatusCode::from_u16(status).unwrap());
        for proxy in [&kubernetes, &hetzner] {
            proxy.rule(Matcher::any().times(1), Fault::Reject(reply.clone()));
        }
        let received = post(&kubernetes.url(), "/a").await.unwrap();
        let body = received.json();
        assert_eq!(
            (received.status.as_u16(), &body["reason"], &body["code"]),
            (status, &json!(reason), &json!(status))
        );
        assert_eq!(body["kind"], "Status");
        let received = post(&hetzner.url(), "/a").await.unwrap();
        assert_eq!((received.status.as_u16(), &received.json()["error"]["code"]), (status, &json!(code)));
    }
    kubernetes.rule(Matcher::any().times(1), Fault::Reject(Reply::too_many_requests(7)));
    let received = post(&kubernetes.url(), "/a").await.unwrap();
    assert_eq!(received.json()["details"]["retryAfterSeconds"], 7);
    assert_eq!(received.headers["retry-after"], "7");
    kubernetes.rule(Matcher::any(), Fault::Reject(Reply::too_many_requests(1).body("{}")));
    assert_eq!(post(&kubernetes.url(), "/a").await.unwrap().body, "{}");
    assert!(server.seen().is_empty());
    assert_eq!((kubernetes.counter().count(), hetzner.counter().count()), (0, 0));
}

#[tokio::test]
async fn replaced_and_swallowed_requests_reach_the_server() {
    let (server, proxy) = env().await;
    proxy.rule(Matcher::any().path("/replaced"), Fault::Replace(Reply::internal()));
    proxy.rule(Matcher::any().path("/swallowed"), Fault::Swallow);
    let received = post(&proxy.url(), "/replaced").await.unwrap();
    assert_eq!((received.status.as_u16(), &received.json()["reason"]), (500, &json!("InternalError")));
    let failure = post(&proxy.url(), "/swallowed").await.unwrap_err();
    assert!(is_reset(&failure), "{failure:?}");
    assert_eq!(server.acted(), ["/replaced", "/swallowed"]);
    let writes = proxy.writes();
    let statuses: Vec<_> = writes.iter().map(|write| (write.upstream_status, write.status)).collect();
    assert_eq!(statuses, [(Some(201), Some(500)), (Some(201), None)]);
}

#[tokio::test]
async fn matcher_selects_by_verb_resource_method_and_closure() {
    let (_server, proxy) = env().await;
    let verb = proxy.rule(Matcher::any().verb("list").resource("nodes"), Fault::DelayRequest(Duration::ZERO));
    let methods = Matcher::any().method(Method::PUT).method(Method::POST);
    let method = proxy.rule(methods, Fault::DelayRequest(Duration::ZERO));
    let closure = Matcher::any().when(|call: &Call| call.body == BODY && call.query == "b=1");
    let closure = proxy.rule(closure, Fault::DelayRequest(Duration::ZERO));
    get(&proxy.url(), "/api/v1/nodes").await.unwrap();
    get(&proxy.url(), "/api/v1/nodes/n?b=1").await.unwrap();
    post(&proxy.url(), "/a").await.unwrap();
    assert_eq!([verb, method, closure].map(|rule| proxy.applied(rule)), [1, 1, 1]);
}

#[tokio::test]
async fn requests_are_recorded() {
    let (_server, proxy) = env().await;
    post(&proxy.url(), "/apis/coordination.k8s.io/v1/namespaces/a/leases").await.unwrap();
    ask(&proxy.url(), Method::PATCH, "/api/v1/nodes/n1/status?fieldManager=x").await.unwrap();
    get(&proxy.url(), "/api/v1/pods").await.unwrap();
    let all = proxy
        .wait_for(|requests| requests.iter().all(|request| request.status.is_some()), TIMEOUT)
        .await
        .unwrap();
    assert_eq!(all.iter().map(|request| request.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(all.iter().map(|request| request.write).collect::<Vec<_>>(), [None, Some(1), None]);
    let patch = &proxy.writes()[0];
    assert_eq!(patch.json(), Some(json!({"asked": true})));
    assert_eq!(
        (patch.query.as_str(), patch.upstream_status, patch.forwarded),
        ("fieldManager=x", Some(201), true)
    );
    assert!(patch.duration.is_some());
    let asked = patch.kube().unwrap();
    assert_eq!((asked.verb.as_str(), asked.full_resource().as_str()), ("patch", "nodes/status"));
    proxy.clear_requests();
    let failure =
        proxy.wait_for(|requests| !requests.is_empty(), Duration::from_millis(1)).await.unwrap_err();
    assert!(failure.to_string().contains("no such request"), "{failure}");
}

#[tokio::test]
async fn unreachable_server_is_a_reset_and_recorded() {
    let gone = TcpStream::connect(Server::start().await.url().trim_start_matches("http://")).await.unwrap();
    // The port of a client's socket: nothing can listen there.
    let proxy = FaultProxy::start(Upstream::kubernetes(format!("http://{}", gone.local_addr().unwrap())))
        .await
        .unwrap();
    let failure = get(&proxy.url(), "/").await.unwrap_err();
    assert!(is_reset(&failure), "{failure:?}");
    let asked = &proxy.requests()[0];
    assert!(asked.forwarded && asked.status.is_none());
    assert!(asked.error.as_deref().unwrap().contains("onnect"), "{:?}", asked.error);
}
