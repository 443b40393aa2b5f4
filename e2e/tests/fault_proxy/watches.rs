//! Faults of watches.

use std::time::{Duration, Instant};

use e2e::fault_proxy::{EventFilter, Fate, Fault, FaultProxy, Matcher, Reply};
use futures::FutureExt;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::fault_proxy::client::{get, open};
use crate::fault_proxy::{TIMEOUT, env, soon};

const NODES: &str = "/api/v1/nodes?watch=true";

struct Watch(Incoming);

impl Watch {
    async fn open(proxy: &FaultProxy) -> Watch {
        Watch(open(&proxy.url(), Method::GET, NODES).await.unwrap().into_body())
    }

    /// The next event; None at a clean end. A frame is a line, because the proxy forwards them one by one.
    async fn next(&mut self) -> Option<Value> {
        let frame = soon(self.0.frame()).await?.expect("the watch was cut");
        Some(serde_json::from_slice(&frame.into_data().unwrap()).unwrap())
    }
}

fn event(name: &str) -> Value {
    json!({"type": "MODIFIED", "object": {"kind": "Node", "metadata": {"name": name}}})
}

fn assert_expired(event: &Value) {
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
}

#[tokio::test]
async fn each_event_is_forwarded_before_the_next() {
    let (server, proxy) = env().await;
    let mut watch = Watch::open(&proxy).await;
    for number in 0..100 {
        let event = event(&number.to_string());
        server.event(&event);
        assert_eq!(watch.next().await, Some(event));
    }
    // Events end with a line, not with a chunk.
    let text = event("split").to_string();
    let (first, second) = text.split_at(text.len() / 2);
    server.send(first);
    server.send(&format!("{second}\n{}\n", event("same chunk")));
    assert_eq!(watch.next().await, Some(event("split")));
    assert_eq!(watch.next().await, Some(event("same chunk")));
    server.hang_up();
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn response_that_is_no_watch_is_streamed() {
    let (server, proxy) = env().await;
    let mut log = open(&proxy.url(), Method::GET, "/logs?x-watch=true").await.unwrap().into_body();
    for text in ["no ", "line"] {
        server.send(text);
        assert_eq!(soon(log.frame()).await.unwrap().unwrap().into_data().unwrap(), text);
    }
}

#[tokio::test]
async fn server_sees_the_controller_close_its_watch() {
    let (server, proxy) = env().await;
    let watch = Watch::open(&proxy).await;
    drop(watch);
    server.all_left().await;
}

#[tokio::test]
async fn held_events_are_forwarded_in_order_when_released() {
    let (server, proxy) = env().await;
    let mut watch = Watch::open(&proxy).await;
    let hold = proxy.rule(Matcher::watches().after(1), Fault::hold_events());
    for name in ["a", "b", "c"] {
        server.event(&event(name));
    }
    assert_eq!(watch.next().await, Some(event("a")));
    proxy.wait_applied(hold, 1, TIMEOUT).await.unwrap();
    // The stream holds its events; other requests are forwarded.
    get(&proxy.url(), "/").await.unwrap();
    assert!(watch.0.frame().now_or_never().is_none());
    proxy.remove(hold);
    assert_eq!(watch.next().await, Some(event("b")));
    assert_eq!(watch.next().await, Some(event("c")));
}

#[tokio::test]
async fn late_event_comes_after_its_delay_and_in_order() {
    let (server, proxy) = env().await;
    let mut watch = Watch::open(&proxy).await;
    let delay = Duration::from_millis(100);
    let late = proxy.rule(Matcher::watches().times(1), Fault::Event(Fate::Delay(delay), EventFilter::all()));
    let begun = Instant::now();
    server.event(&event("a"));
    server.event(&event("b"));
    assert_eq!(watch.next().await, Some(event("a")));
    assert!(begun.elapsed() >= delay);
    assert_eq!(watch.next().await, Some(event("b")));
    assert_eq!(proxy.applied(late), 1);
}

#[tokio::test]
async fn dropped_events_are_never_forwarded() {
    let (server, proxy) = env().await;
    let mut watch = Watch::open(&proxy).await;
    let of_b = |event: &Value| event["object"]["metadata"]["name"] == "b";
    let rule = proxy.rule(Matcher::any().resource("nodes").times(2), Fault::drop_events(of_b));
    proxy.rule(Matcher::any().resource("pods"), Fault::drop_events(|_| true));
    for name in ["a", "b", "b", "c", "b"] {
        server.event(&event(name));
    }
    for name in ["a", "c", "b"] {
        assert_eq!(watch.next().await, Some(event(name)));
    }
    assert_eq!(proxy.applied(rule), 2);
}

#[tokio::test]
async fn watch_expires_or_ends_instead_of_an_event() {
    let (server, proxy) = env().await;
    proxy.rule(Matcher::watches().after(1).times(1), Fault::expire_watch());
    let mut watch = Watch::open(&proxy).await;
    server.event(&event("a"));
    server.event(&event("b"));
    assert_eq!(watch.next().await, Some(event("a")));
    assert_expired(&watch.next().await.unwrap());
    assert_eq!(watch.next().await, None);

    proxy.clear();
    proxy.rule(Matcher::watches().times(1), Fault::end_watch());
    let mut watch = Watch::open(&proxy).await;
    server.event(&event("c"));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn idle_and_held_watches_expire_on_order() {
    let (server, proxy) = env().await;
    let mut watch = Watch::open(&proxy).await;
    assert_eq!(proxy.expire_watches(&Matcher::any().resource("pods")), 0);
    assert_eq!(proxy.expire_watches(&Matcher::any().resource("nodes")), 1);
    assert_expired(&watch.next().await.unwrap());
    assert_eq!(watch.next().await, None);

    let hold = proxy.rule(Matcher::watches(), Fault::hold_events());
    let mut watch = Watch::open(&proxy).await;
    server.event(&event("a"));
    proxy.wait_applied(hold, 1, TIMEOUT).await.unwrap();
    assert_eq!(proxy.expire_watches(&Matcher::watches()), 1);
    assert_expired(&watch.next().await.unwrap());
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn watch_can_be_rejected_as_expired() {
    let (server, proxy) = env().await;
    proxy.rule(Matcher::watches().times(1), Fault::Reject(Reply::status(StatusCode::GONE)));
    let received = get(&proxy.url(), NODES).await.unwrap();
    assert_eq!((received.status.as_u16(), &received.json()["reason"]), (410, &json!("Expired")));
    assert!(server.seen().is_empty());
    let mut watch = Watch::open(&proxy).await;
    server.event(&event("a"));
    assert_eq!(watch.next().await, Some(event("a")));
}

#[tokio::test]
async fn watch_is_cut_within_an_event() {
    let (server, proxy) = env().await;
    proxy.rule(Matcher::watches(), Fault::CutResponse { after_bytes: 10 });
    let mut watch = Watch::open(&proxy).await;
    server.event(&event("a"));
    assert_eq!(
        soon(watch.0.frame()).await.unwrap().unwrap().into_data().unwrap(),
        event("a").to_string()[..10]
    );
    soon(watch.0.frame()).await.unwrap().unwrap_err();
}
