//! Against an API server that responds by script, under paused time.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    time::Duration,
};

use bytes::Bytes;
use futures::channel::mpsc;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    client::Body,
    core::PartialObjectMeta,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{store::Index, *};
use crate::{k8s::Node, metrics::Metrics, readiness::Readiness};

/// The response to one request.
enum Reply {
    Whole(u16, Value),
    Stream(mpsc::UnboundedReceiver<Result<Frame<Bytes>, Infallible>>),
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

    fn error(&self, code: u16) {
        self.event("ERROR", json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"}));
    }

    fn end_of_list(&self) {
        self.event(
            "BOOKMARK",
            json!({"kind": "Node", "apiVersion": "v1",
                "metadata": {"resourceVersion": "10", "annotations": {"k8s.io/initial-events-end": "true"}}}),
        );
    }

    /// A streamed list.
    fn list(objects: &[Value]) -> (Feed, Reply) {
        let (feed, reply) = Feed::new();
        objects.iter().for_each(|object| feed.event("ADDED", object.clone()));
        feed.end_of_list();
        (feed, reply)
    }
}

fn node(name: &str, version: u32, heartbeat: &str, cordoned: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": version.to_string()},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]}})
}

fn page(objects: &[Value]) -> Reply {
    Reply::Whole(
        200,
        json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": objects}),
    )
}

fn refusal(code: u16, message: &str) -> Reply {
    Reply::Whole(
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
            "reason": "x"}),
    )
}

/// An API server that gives `replies` in turn, and then does not respond.
#[derive(Clone, Default)]
struct Server {
    requests: Arc<Mutex<Vec<(Instant, String)>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
}

impl Server {
    fn new(replies: Vec<Reply>) -> Server {
        Server { requests: Arc::default(), replies: Arc::new(Mutex::new(replies.into())) }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            server.requests.lock().unwrap().push((Instant::now(), request.uri().to_string()));
            let reply = server.replies.lock().unwrap().pop_front();
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
        Client::new(service, "default")
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(_, uri)| uri.clone()).collect()
    }
}

struct TestEnv {
    server: Server,
    cache: Cache<Node>,
    changes: Arc<Mutex<Vec<String>>>,
    readiness: Readiness,
    metrics: Metrics,
}

impl TestEnv {
    fn new(replies: Vec<Reply>) -> TestEnv {
        let server = Server::new(replies);
        let (readiness, metrics) = (Readiness::default(), Metrics::new("test").unwrap());
        let cache = Builder::new(Api::<Node>::all(server.client()), &(), &metrics)
            .index("cordoned", |node| vec![node.spec.unschedulable.to_string()])
            .readiness(&readiness)
            .start();
        let changes = record(&cache);
        TestEnv { server, cache, changes, readiness, metrics }
    }

    async fn until(&self, what: &str, holds: impl Fn(&TestEnv) -> bool) {
        until(what, || holds(self)).await;
    }

    async fn until_version(&self, version: &str) {
        let is = |env: &TestEnv| {
            env.cache.list().iter().any(|node| node.metadata.resource_version.as_deref() == Some(version))
        };
        self.until(version, is).await;
    }

    fn problem(&self) -> Option<Problem> {
        self.cache.health().borrow().problem.clone()
    }

    fn take(&self) -> Vec<String> {
        let mut changes = std::mem::take(&mut *self.changes.lock().unwrap());
        changes.sort_unstable();
        changes
    }

    fn metric(&self, line: &str) -> bool {
        String::from_utf8(self.metrics.text().unwrap()).unwrap().contains(line)
    }
}

/// Paused time advances when nothing else can run: an hour of it passes in no time.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3600), wait).await.expect(what);
}

/// `+a`, `~a`, `-a`.
fn record<K: Resource + Clone + Send + Sync + 'static>(cache: &Cache<K>) -> Arc<Mutex<Vec<String>>> {
    let changes = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&changes);
    cache.subscribe(move |change| {
        let sign = match change {
            Change::Added(_) => '+',
            Change::Updated { .. } => '~',
            Change::Deleted(_) => '-',
        };
        log.lock().unwrap().push(format!("{sign}{}", change.key()));
    });
    changes
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_fills_the_cache_and_only_real_changes_are_delivered() {
    let (feed, reply) = Feed::new();
    let env = TestEnv::new(vec![reply]);
    feed.event("ADDED", node("a", 1, "12:00", false));
    feed.event("ADDED", node("b", 2, "12:00", false));
    env.until("the request", |env| !env.server.requests().is_empty()).await;
    assert!(env.server.requests()[0].contains("sendInitialEvents=true"), "{:?}", env.server.requests());
    assert!(env.cache.is_empty() && !env.readiness.is_ready(), "half a list is no list");

    feed.end_of_list();
    env.until("ready", |env| env.readiness.is_ready()).await;
    env.cache.synced().await;
    assert_eq!(env.take(), ["+a", "+b"]);

    feed.event("MODIFIED", node("a", 11, "12:05", false));
    env.until_version("11").await;
    assert!(env.take().is_empty(), "a heartbeat is no change");

    feed.event("MODIFIED", node("a", 12, "12:05", true));
    env.until_version("12").await;
    assert_eq!(env.take(), ["~a"], "a cordon is one");
    let names = |value| -> Vec<String> {
        env.cache.indexed("cordoned", value).iter().map(|node| ObjectKey::of(&**node).to_string()).collect()
    };
    assert_eq!((names("true"), names("false")), (vec!["a".to_owned()], vec!["b".to_owned()]));

    feed.event("DELETED", node("b", 13, "12:05", false));
    env.until("b to be gone", |env| env.cache.len() == 1).await;
    assert_eq!(env.take(), ["-b"]);
    assert!(names("false").is_empty() && env.cache.get(&ObjectKey::new("", "b")).is_none());
    assert_eq!(*record(&env.cache).lock().unwrap(), ["+a"], "a later handler gets what is cached");
}

/// kube's own store replaces its content without a word of what is gone.
#[tokio::test(start_paused = true)]
async fn a_relist_delivers_what_was_added_changed_and_deleted_meanwhile() {
    let mut recreated = node("recreated", 23, "12:00", false);
    recreated["metadata"]["uid"] = json!("another");
    let (first, list) = Feed::list(&[
        node("same", 1, "12:00", false),
        node("changed", 2, "12:00", false),
        node("recreated", 3, "12:00", false),
        node("gone", 4, "12:00", false),
    ]);
    let (_second, relist) = Feed::list(&[
        node("same", 1, "12:00", false),
        node("changed", 22, "12:00", true),
        recreated,
        node("new", 24, "12:00", false),
    ]);
    let env = TestEnv::new(vec![list, relist]);
    env.until("the first list", |env| env.cache.len() == 4).await;
    env.take();
    first.error(410);
    env.until("the second list", |env| env.cache.get(&ObjectKey::new("", "new")).is_some()).await;
    assert_eq!(env.take(), ["+new", "+recreated", "-gone", "-recreated", "~changed"]);
    assert_eq!(env.cache.indexed("cordoned", "true").len(), 1);
    assert!(env.metric("perimeter_watch_errors_total{api=\"main\",kind=\"Node\",reason=\"gone\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_streamed_lists_is_listed_in_pages() {
    let (feed, watch) = Feed::new();
    let env = TestEnv::new(vec![refusal(422, "x"), page(&[node("a", 1, "12:00", false)]), watch]);
    env.until("ready", |env| env.readiness.is_ready()).await;
    feed.event("ADDED", node("b", 6, "12:00", false));
    env.until("b", |env| env.cache.len() == 2).await;
    let requests = env.server.requests();
    assert!(requests[1].contains("limit=500") && !requests[1].contains("watch="), "{requests:?}");
    assert!(requests[2].contains("watch=true") && !requests[2].contains("sendInitialEvents"), "{requests:?}");
    assert!(!env.metric("perimeter_watch_errors_total{"), "a fallback is no error");
}

/// As API servers before 1.27 respond; their events go on, so the stream is never silent.
#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_send_initial_events_is_listed_in_pages_after_a_deadline() {
    let (feed, reply) = Feed::new();
    let (_watch, second) = Feed::new();
    let env = TestEnv::new(vec![reply, page(&[node("a", 1, "12:00", false)]), second]);
    let start = Instant::now();
    let busy = async {
        let mut version = 0;
        loop {
            version += 1;
            let _closed = feed.0.unbounded_send(Ok(Frame::data(
                format!("{}\n", json!({"type": "MODIFIED", "object": node("a", version, "12:00", false)}))
                    .into(),
            )));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = busy => {}
        () = env.until("ready", |env| env.readiness.is_ready()) => {}
    }
    assert!(start.elapsed() < watch::STREAMED_LIST * 2, "{:?}", start.elapsed());
    assert_eq!(env.cache.len(), 1);
    assert!(!env.metric("perimeter_watch_errors_total{"), "a fallback is no error");
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_reported_and_counted_until_it_works() {
    let (feed, reply) = Feed::new();
    let no = || refusal(403, "nodes is forbidden: User \"x\" cannot watch resource \"nodes\"");
    let env = TestEnv::new(vec![no(), no(), reply]);
    env.until("the refusal", |env| env.problem().is_some()).await;
    let message = "403 nodes is forbidden: User \"x\" cannot watch resource \"nodes\"".to_owned();
    assert_eq!(env.problem(), Some(Problem { code: Some(403), message }));
    assert!(!env.readiness.is_ready());
    feed.event("ADDED", node("a", 1, "12:00", false));
    feed.end_of_list();
    env.until("ready", |env| env.readiness.is_ready()).await;
    assert_eq!(env.problem(), None);
    assert!(env.metric("perimeter_watch_errors_total{api=\"main\",kind=\"Node\",reason=\"forbidden\"} 2"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_reported_with_the_version_that_has_it() {
    let server = Server::new(vec![refusal(404, "404 page not found\n"), refusal(500, "etcd is away")]);
    let nodes = Api::<Node>::all(server.client());
    let cache = Builder::new(nodes, &(), &Metrics::new("test").unwrap()).served_since("example v2").start();
    let problem = || cache.health().borrow().problem.clone();
    until("the error", || problem().is_some()).await;
    let message =
        "404: the API server does not serve Node; example v2 is the first version that does".to_owned();
    assert_eq!(problem(), Some(Problem { code: Some(404), message }));
    until("another error", || problem().is_some_and(|problem| problem.code != Some(404))).await;
    assert_eq!(problem().unwrap().message, "500 etcd is away");
}

/// As hyper-util reports a refused connection: the first text has no cause.
#[derive(Debug, thiserror::Error)]
#[error("client error (Connect)")]
struct ConnectError(#[source] std::io::Error);

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_connection_is_reported_with_its_cause() {
    let service = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Full<Bytes>>, _>(ConnectError(std::io::Error::other("connection refused")))
    });
    let nodes = Api::<Node>::all(Client::new(service, "default"));
    let cache = Builder::new(nodes, &(), &Metrics::new("test").unwrap()).start();
    let problem = || cache.health().borrow().problem.clone();
    until("the error", || problem().is_some()).await;
    let message = "client error (Connect): connection refused".to_owned();
    assert_eq!(problem(), Some(Problem { code: None, message }));
}

/// A restart of the API server must not take the endpoints of every controller away.
#[tokio::test(start_paused = true)]
async fn a_watch_error_after_the_first_sync_does_not_take_readiness_away() {
    let (feed, reply) = Feed::list(&[node("a", 1, "12:00", false)]);
    let env = TestEnv::new(vec![reply, refusal(500, "x"), refusal(500, "x"), refusal(500, "x")]);
    env.until("ready", |env| env.readiness.is_ready()).await;
    feed.error(500);
    drop(feed);
    env.until("the error", |env| env.problem().is_some()).await;
    env.until("three tries", |env| env.server.requests().len() >= 4).await;
    assert!(env.readiness.is_ready());
    assert_eq!(env.cache.len(), 1, "the cached objects stay");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_accepted_again_has_no_problem_although_it_is_silent() {
    let (feed, reply) = Feed::list(&[]);
    let (_silent, second) = Feed::new();
    let env = TestEnv::new(vec![reply, second]);
    env.until("ready", |env| env.readiness.is_ready()).await;
    feed.error(500);
    drop(feed);
    env.until("the error", |env| env.problem().is_some()).await;
    env.until("no problem", |env| env.problem().is_none()).await;
    assert_eq!(env.server.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn silence_never_makes_an_empty_cache_ready() {
    let env = TestEnv::new(vec![refusal(500, "etcd is away")]);
    env.until("the error", |env| env.problem().is_some()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!env.readiness.is_ready());
    assert_eq!(env.problem().unwrap().message, "500 etcd is away");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_refused_is_repeated_less_and_less_often() {
    let refused = (0..9).map(|_| refusal(403, "nodes is forbidden"));
    let start = Instant::now();
    let env = TestEnv::new(std::iter::once(refusal(422, "x")).chain(refused).collect());
    env.until("nine tries", |env| env.server.requests().len() == 10).await;
    assert!(start.elapsed() > Duration::from_secs(60), "{:?}", start.elapsed());
}

/// A backoff that is reset by each object of a list repeats one that breaks midway every second for ever.
#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_midway_is_repeated_less_and_less_often() {
    let broken = |index: u32| {
        let (feed, reply) = Feed::new();
        feed.event("ADDED", node("a", 1, "12:00", false));
        // Both ways in which a list breaks: an error, and a stream that just ends.
        if index.is_multiple_of(2) {
            feed.error(500);
        }
        reply
    };
    let start = Instant::now();
    let env = TestEnv::new((0..14).map(broken).collect());
    env.until("fourteen tries", |env| env.server.requests().len() > 14).await;
    assert!(start.elapsed() > Duration::from_secs(60), "{:?}", start.elapsed());
}

/// A program that may list and not watch does not list all objects each second.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_after_a_list_is_repeated_less_and_less_often() {
    let refused = (0..9).map(|_| refusal(403, "nodes is forbidden"));
    let start = Instant::now();
    let env = TestEnv::new([refusal(422, "x"), page(&[])].into_iter().chain(refused).collect());
    env.until("nine tries", |env| env.server.requests().len() == 11).await;
    assert!(start.elapsed() > Duration::from_secs(60), "{:?}", start.elapsed());
    assert_eq!(env.server.requests().iter().filter(|uri| !uri.contains("watch=true")).count(), 1);
}

/// As in client-go. A watch that breaks each quarter of an hour must not wait half a minute each time.
#[tokio::test(start_paused = true)]
async fn the_backoff_begins_again_after_two_minutes_without_a_failure() {
    let (feed, first) = Feed::list(&[]);
    let env = TestEnv::new(std::iter::once(first).chain((0..8).map(|_| refusal(500, "x"))).collect());
    env.until("ready", |env| env.readiness.is_ready()).await;
    drop(feed);
    // Eight refusals are far up the backoff; then a watch is accepted, and silent for long.
    env.until("eight refusals", |env| env.server.requests().len() == 9).await;
    let (silent, accepted) = Feed::new();
    let (_next, last) = Feed::new();
    env.server.replies.lock().unwrap().extend([accepted, last]);
    env.until("accepted", |env| env.server.requests().len() == 10).await;
    tokio::time::sleep(Duration::from_secs(121)).await;
    silent.error(500);
    drop(silent);
    let broke = Instant::now();
    env.until("the next watch", |env| env.server.requests().len() == 11).await;
    assert!(broke.elapsed() < Duration::from_secs(3), "{:?}", broke.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_is_reported_as_such() {
    let (feed, reply) = Feed::list(&[]);
    let env = TestEnv::new(vec![reply]);
    env.until("ready", |env| env.readiness.is_ready()).await;
    let mut foreign = node("a", 1, "12:00", false);
    foreign["spec"]["unschedulable"] = json!("perhaps");
    feed.event("ADDED", foreign);
    env.until("the error", |env| env.problem().is_some()).await;
    let problem = env.problem().unwrap();
    assert!(problem.message.contains("older than the CustomResourceDefinition"), "{problem:?}");
    assert!(env.metric("perimeter_watch_errors_total{api=\"main\",kind=\"Node\",reason=\"decode\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_relist_that_cannot_be_decoded_is_not_taken_for_deleted() {
    let (feed, list) = Feed::list(&[node("a", 1, "12:00", false)]);
    let mut foreign = node("a", 2, "12:00", false);
    foreign["spec"]["unschedulable"] = json!("perhaps");
    let (_second, relist) = Feed::list(&[foreign]);
    let env = TestEnv::new(vec![list, relist]);
    env.until("ready", |env| env.readiness.is_ready()).await;
    feed.error(410);
    env.until("a third list", |env| env.server.requests().len() == 3).await;
    assert_eq!(env.take(), ["+a"]);
    assert_eq!(env.cache.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn metadata_of_a_kind_that_is_known_only_at_run_time_is_cached_without_the_rest() {
    let (feed, reply) = Feed::new();
    let server = Server::new(vec![reply]);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v1", "Thing"));
    let metrics = Metrics::new("test").unwrap();
    let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(server.client(), &resource);
    let cache =
        Builder::metadata(api, &resource, &metrics).trim(|object| object.metadata.annotations = None).start();
    let changes = record(&cache);
    let thing = |version: u32, annotations: Value, labels: Value| {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a", "namespace": "ns",
            "uid": "u", "resourceVersion": version.to_string(), "annotations": annotations, "labels": labels,
            "managedFields": [{"manager": version.to_string()}]}})
    };
    feed.event("ADDED", thing(1, json!({"a": "1"}), json!({})));
    feed.end_of_list();
    cache.synced().await;
    let key = ObjectKey::new("ns", "a");
    assert_eq!((key.namespace(), key.name(), key.to_string().as_str()), ("ns", "a", "ns/a"));
    assert_eq!(cache.get(&key).unwrap().metadata.annotations, None);
    feed.event("MODIFIED", thing(2, json!({"a": "2"}), json!({})));
    feed.event("MODIFIED", thing(3, json!({"a": "2"}), json!({"b": "1"})));
    let version = |version: &str| {
        cache.get(&key).is_some_and(|object| object.metadata.resource_version.as_deref() == Some(version))
    };
    until("both", || version("3")).await;
    assert_eq!(*changes.lock().unwrap(), ["+ns/a", "~ns/a"], "what is trimmed is no change");
}

/// A watch of a kind that is no longer used must end.
#[tokio::test(start_paused = true)]
async fn the_watch_ends_with_the_last_clone_of_its_cache() {
    let (feed, reply) = Feed::list(&[]);
    let TestEnv { cache, .. } = TestEnv::new(vec![reply]);
    cache.synced().await;
    let clone = cache.clone();
    drop(cache);
    assert!(!feed.0.is_closed());
    drop(clone);
    until("the end of the stream", || feed.0.is_closed()).await;
}

/// How a store can keep its objects.
fn packings() -> [Packing<Node>; 2] {
    [Packing::none(), Packing::json()]
}

fn objects<K: Resource + Clone>(store: &Store<K>) -> Vec<Arc<K>> {
    store.keys().iter().map(|key| store.get(key).unwrap()).collect()
}

/// Indexes follow every change, also those of a relist: compared with a scan.
#[test]
fn an_index_gives_what_a_scan_gives() {
    packings().into_iter().for_each(compare_index_with_scan);
}

fn compare_index_with_scan(packing: Packing<Node>) {
    let object = |name: u64, uid: u64, group: u64| {
        let mut node = Node::default();
        (node.metadata.name, node.metadata.uid) = (Some(name.to_string()), Some(uid.to_string()));
        node.metadata.labels = Some(BTreeMap::from([("group".to_owned(), group.to_string())]));
        node
    };
    let groups = |node: &Node| node.label("group").map(str::to_owned).into_iter().collect::<Vec<_>>();
    let mut store = Store::new(|a: &Node, b| a == b, packing, vec![Index::new("group", Box::new(groups))]);
    let mut random = fastrand::Rng::with_seed(7);
    let mut next = || object(random.u64(..6), random.u64(..2), random.u64(..3));
    for step in 0..2000 {
        match step % 7 {
            0 => drop(store.delete(&next())),
            1 => {
                store.list_begins();
                (0..4).for_each(|_| store.list_has(next()));
                store.list_ends();
            }
            _ => drop(store.apply(next())),
        }
        for group in ["0", "1", "2", "none"] {
            let mut scan: Vec<_> =
                objects(&store).into_iter().filter(|node| node.label("group") == Some(group)).collect();
            scan.sort_by_key(|node| ObjectKey::of(&**node));
            assert_eq!(store.indexed("group", group), scan);
        }
    }
}

/// Another client deletes an object that this process has written, before the API server makes the list.
#[test]
fn a_written_object_that_a_newer_list_lacks_is_not_kept() {
    let object = |name: &str, version: u64| {
        let mut node = Node::default();
        (node.metadata.name, node.metadata.uid) = (Some(name.to_owned()), Some(name.to_owned()));
        node.metadata.resource_version = Some(version.to_string());
        node
    };
    // The response comes before the list is complete, or after it.
    for (is_late, newest, kept) in [(false, 8, false), (true, 8, false), (false, 6, true), (true, 6, true)] {
        for packing in packings() {
            let mut store = Store::new(|a: &Node, b| a == b, packing, Vec::new());
            store.list_begins();
            let lists = store.lists();
            store.list_has(object("other", newest));
            if is_late {
                store.list_ends();
                store.write(lists, object("written", 7));
            } else {
                store.write(lists, object("written", 7));
                assert_eq!(store.len(), 1, "cached at once");
                store.list_ends();
            }
            assert_eq!(store.get(&ObjectKey::new("", "written")).is_some(), kept, "{is_late} {newest}");
        }
    }
}

/// Histories of one object, which this process and others write, with lists and responses at any time: the cached version goes back
/// at most with a list, and in the end the cache has what the server has.
#[test]
fn a_write_is_cached_at_once_and_no_older_version_replaces_it() {
    let mut random = fastrand::Rng::with_seed(7);
    for run in 0..5000 {
        let mut history = History::new(packings()[run % 2]);
        for step in 0..24 {
            history.step(&mut random, step < 16);
        }
        history.end();
    }
}

struct History {
    /// Each version of the server: the object, or None after its deletion.
    versions: Vec<Option<Node>>,
    store: Store<Node>,
    /// The version that the watch has delivered last.
    delivered: usize,
    /// The write of this process without a response so far, and the number of lists before it.
    response: Option<(u64, usize)>,
    /// The version that the list shows.
    list: Option<usize>,
}

impl History {
    fn new(packing: Packing<Node>) -> Self {
        let store = Store::new(|a: &Node, b| a == b, packing, Vec::new());
        History { versions: vec![None], store, delivered: 0, response: None, list: None }
    }

    fn cached(&self) -> Option<usize> {
        objects(&self.store).first()?.metadata.resource_version.as_ref()?.parse().ok()
    }

    fn step(&mut self, random: &mut fastrand::Rng, may_write: bool) {
        let before = self.cached();
        let mut may_go_back = false;
        match random.u8(..6) {
            0 | 1 if may_write => self.write(random),
            2 => self.respond(),
            3 if self.list.is_none() => {
                self.store.list_begins();
                self.list = Some(self.versions.len() - 1);
            }
            4 if self.list.is_some() => {
                self.end_list();
                may_go_back = true;
            }
            _ if self.list.is_none() => self.deliver(),
            _ => {}
        }
        let is_older = before.zip(self.cached()).is_some_and(|(before, now)| now < before);
        assert!(!is_older || may_go_back, "{before:?} to {:?}: {:?}", self.cached(), self.versions);
    }

    /// Of this process, if it has no other one under way, or of another process.
    fn write(&mut self, random: &mut fastrand::Rng) {
        let version = self.versions.len();
        let uid = match self.versions.last().unwrap() {
            Some(_) if random.u8(..4) == 0 => return self.versions.push(None),
            Some(last) => last.metadata.uid.clone(),
            None => Some(version.to_string()),
        };
        let mut node = Node::default();
        node.metadata.name = Some("a".into());
        node.metadata.uid = uid;
        node.metadata.resource_version = Some(version.to_string());
        self.versions.push(Some(node));
        if self.response.is_none() && random.bool() {
            self.response = Some((self.store.lists(), version));
        }
    }

    fn respond(&mut self) {
        let Some((lists, version)) = self.response.take() else { return };
        self.store.write(lists, self.versions[version].clone().unwrap());
        let is_cached = self.cached() >= Some(version);
        assert!(is_cached || self.delivered > version || lists != self.store.lists(), "{:?}", self.versions);
    }

    fn end_list(&mut self) {
        let version = self.list.take().unwrap();
        self.versions[version].iter().for_each(|object| self.store.list_has(object.clone()));
        self.store.list_ends();
        self.delivered = version;
    }

    fn deliver(&mut self) {
        let Some(next) = self.versions.get(self.delivered + 1) else { return };
        match (next, &self.versions[self.delivered]) {
            (Some(object), _) => drop(self.store.apply(object.clone())),
            (None, Some(last)) => {
                let mut last = last.clone();
                last.metadata.resource_version = Some((self.delivered + 1).to_string());
                self.store.delete(&last);
            }
            (None, None) => unreachable!("a missing object is not deleted"),
        }
        self.delivered += 1;
    }

    /// Everything arrives.
    fn end(mut self) {
        self.respond();
        if self.list.is_some() {
            self.end_list();
        }
        while self.delivered + 1 < self.versions.len() {
            self.deliver();
        }
        let cached = objects(&self.store).first().map(|one| (**one).clone());
        assert_eq!(cached, *self.versions.last().unwrap(), "{:?}", self.versions);
    }
}
