//! Against an API server that answers by script, under paused time.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, channel::mpsc};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::*;
use crate::k8s::Node;

/// What the next request is answered with.
enum Reply {
    Whole(u16, Value),
    Stream(mpsc::UnboundedReceiver<Result<Frame<Bytes>, Infallible>>),
}

struct World {
    asked: Arc<Mutex<Vec<String>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    store: Store<Node>,
    changed: Arc<Notify>,
    readiness: Readiness,
    metrics: Metrics,
}

/// The writing end of a watch.
struct Feed(mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>);

impl Feed {
    fn new() -> (Feed, Reply) {
        let (sender, receiver) = mpsc::unbounded();
        (Feed(sender), Reply::Stream(receiver))
    }

    fn event(&self, kind: &str, object: Value) {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        self.0.unbounded_send(Ok(Frame::data(line.into()))).unwrap();
    }

    fn end_of_list(&self) {
        self.event(
            "BOOKMARK",
            json!({"kind": "Node", "apiVersion": "v1",
                "metadata": {"resourceVersion": "10", "annotations": {"k8s.io/initial-events-end": "true"}}}),
        );
    }
}

fn node(name: &str, version: u32, heartbeat: &str, cordoned: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": version.to_string()},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]}})
}

fn refusal(code: u16, message: &str) -> Reply {
    Reply::Whole(
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
            "reason": "x"}),
    )
}

impl World {
    /// A cache of Nodes whose API server gives `replies` in turn, and then no answer.
    fn new(replies: Vec<Reply>) -> World {
        let (asked, replies) =
            (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Mutex::new(VecDeque::from(replies))));
        let (log, script) = (Arc::clone(&asked), Arc::clone(&replies));
        let service = tower::service_fn(move |request: Request<Body>| {
            log.lock().unwrap().push(request.uri().to_string());
            let reply = script.lock().unwrap().pop_front();
            async move {
                match reply {
                    None => std::future::pending().await,
                    Some(Reply::Whole(code, body)) => {
                        let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
                        Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
                    }
                    Some(Reply::Stream(frames)) => Ok(Response::new(StreamBody::new(frames).boxed_unsync())),
                }
            }
        });
        let client = Client::new(service, "default");
        let (readiness, metrics) = (Readiness::default(), Metrics::new("test").unwrap());
        let changed = Arc::new(Notify::new());
        let config = watcher::Config::default();
        let (store, keeper) = cache(
            Api::<Node>::all(client),
            config,
            "nodes",
            |_| {},
            &readiness,
            &metrics,
            Arc::clone(&changed),
        );
        tokio::spawn(keeper);
        World { asked, replies, store, changed, readiness, metrics }
    }

    async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        // Paused time runs on when nothing else can: an hour of it passes in no time.
        let wait = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(3600), wait).await.expect(what);
    }

    async fn until_version(&self, version: &str) {
        let is = |world: &World| {
            world.store.state().iter().any(|node| node.metadata.resource_version.as_deref() == Some(version))
        };
        self.until(version, is).await;
    }

    fn why_not_ready(&self) -> Option<String> {
        self.readiness.report()[0].1.problem.clone()
    }

    fn was_told(&self) -> bool {
        self.changed.notified().now_or_never().is_some()
    }

    fn metric(&self, line: &str) -> bool {
        String::from_utf8(self.metrics.text().unwrap()).unwrap().contains(line)
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_fills_the_cache_and_only_real_changes_are_told() {
    let (feed, reply) = Feed::new();
    let world = World::new(vec![reply]);
    assert_eq!(world.why_not_ready().as_deref(), Some("not started"));
    feed.event("ADDED", node("a", 1, "12:00", false));
    feed.event("ADDED", node("b", 2, "12:00", false));
    world.until("the request", |world| !world.asked.lock().unwrap().is_empty()).await;
    assert!(world.asked.lock().unwrap()[0].contains("sendInitialEvents=true"), "{:?}", world.asked);
    assert!(world.store.is_empty() && !world.readiness.is_ready(), "half a list is no list");

    feed.end_of_list();
    world.until("ready", |world| world.readiness.is_ready()).await;
    assert_eq!(world.store.len(), 2);
    assert!(world.was_told(), "of the full list");

    feed.event("MODIFIED", node("a", 11, "12:05", false));
    world.until_version("11").await;
    assert!(!world.was_told(), "a heartbeat is no change");

    feed.event("MODIFIED", node("a", 12, "12:05", true));
    world.until_version("12").await;
    assert!(world.was_told(), "a cordon is one");

    feed.event("DELETED", node("b", 13, "12:05", false));
    world.until("b to be gone", |world| world.store.len() == 1).await;
    assert!(world.was_told());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_streams_no_lists_is_listed_in_pages() {
    let (feed, watch) = Feed::new();
    let list = json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"},
        "items": [node("a", 1, "12:00", false)]});
    // The words of kube-apiserver 1.33 with the feature gate off.
    let words = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden \
                 for watch unless the WatchList feature gate is enabled";
    let world = World::new(vec![refusal(422, words), Reply::Whole(200, list), watch]);
    world.until("ready", |world| world.readiness.is_ready()).await;
    assert_eq!(world.store.len(), 1);
    feed.event("ADDED", node("b", 6, "12:00", false));
    world.until("b", |world| world.store.len() == 2).await;
    let asked = world.asked.lock().unwrap().clone();
    assert!(asked[1].contains("limit=500") && !asked[1].contains("watch="), "{asked:?}");
    assert!(asked[2].contains("watch=true") && !asked[2].contains("sendInitialEvents"), "{asked:?}");
    assert!(!world.metric("perimeter_watch_errors_total{"), "a fall-back is no error");
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_red_and_counted_until_it_works() {
    let (feed, reply) = Feed::new();
    let no = || refusal(403, "nodes is forbidden: User \"x\" cannot watch resource \"nodes\"");
    let world = World::new(vec![no(), no(), reply]);
    world.until("red", |world| world.why_not_ready().is_some_and(|why| why != "not started")).await;
    assert_eq!(
        world.why_not_ready().unwrap(),
        "403 nodes is forbidden: User \"x\" cannot watch resource \"nodes\""
    );
    feed.event("ADDED", node("a", 1, "12:00", false));
    feed.end_of_list();
    world.until("ready", |world| world.readiness.is_ready()).await;
    assert!(world.metric("perimeter_watch_errors_total{kind=\"Node\",reason=\"forbidden\"} 2"));
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_that_is_refused_is_asked_for_less_and_less_often() {
    let words = "sendInitialEvents is forbidden";
    let refused = (0..9).map(|_| refusal(403, "nodes is forbidden"));
    let start = tokio::time::Instant::now();
    let world = World::new(std::iter::once(refusal(422, words)).chain(refused).collect());
    world.until("nine tries", |world| world.asked.lock().unwrap().len() == 10).await;
    assert!(start.elapsed() > Duration::from_secs(60), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_called_so() {
    let (feed, reply) = Feed::new();
    let world = World::new(vec![reply]);
    feed.end_of_list();
    world.until("ready", |world| world.readiness.is_ready()).await;
    let mut strange = node("a", 1, "12:00", false);
    strange["spec"]["unschedulable"] = json!("perhaps");
    feed.event("ADDED", strange);
    world.until("a problem", |world| world.why_not_ready().is_some()).await;
    let why = world.why_not_ready().unwrap();
    assert!(why.contains("older than the CustomResourceDefinition"), "{why}");
    assert!(world.metric("perimeter_watch_errors_total{kind=\"Node\",reason=\"decode\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn silence_never_makes_an_empty_cache_ready() {
    let world = World::new(vec![refusal(500, "etcd is away")]);
    world.until("red", |world| world.why_not_ready().is_some_and(|why| why != "not started")).await;
    tokio::time::advance(SETTLED * 10).await;
    world.until("the next request", |world| world.asked.lock().unwrap().len() == 2).await;
    assert_eq!(world.why_not_ready().unwrap(), "500 etcd is away");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_broke_and_is_accepted_again_is_green_though_it_has_nothing_to_say() {
    let (feed, reply) = Feed::new();
    let (_silent, again) = Feed::new();
    let world = World::new(vec![reply]);
    feed.end_of_list();
    world.until("ready", |world| world.readiness.is_ready()).await;
    world.replies.lock().unwrap().push_back(again);
    feed.event(
        "ERROR",
        json!({"kind": "Status", "status": "Failure", "code": 500, "message": "etcd is away"}),
    );
    drop(feed);
    world.until("a problem", |world| world.why_not_ready().is_some()).await;
    world.until("no problem", |world| world.why_not_ready().is_none()).await;
    assert_eq!(world.asked.lock().unwrap().len(), 2);
    assert!(world.metric("perimeter_watch_errors_total{kind=\"Node\",reason=\"server_error\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_lists_anew_and_drops_what_is_gone() {
    let (feed, reply) = Feed::new();
    let (second, again) = Feed::new();
    let world = World::new(vec![reply, again]);
    feed.event("ADDED", node("a", 1, "12:00", false));
    feed.event("ADDED", node("b", 2, "12:00", false));
    feed.end_of_list();
    world.until("ready", |world| world.store.len() == 2).await;
    feed.event(
        "ERROR",
        json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "old"}),
    );
    world.until("a problem", |world| world.why_not_ready().is_some()).await;
    assert_eq!(world.store.len(), 2, "the store keeps what it had");
    second.event("ADDED", node("b", 20, "12:00", false));
    second.end_of_list();
    world.until("one", |world| world.store.len() == 1).await;
    assert!(world.readiness.is_ready());
    assert!(world.metric("perimeter_watch_errors_total{kind=\"Node\",reason=\"gone\"} 1"));
}
