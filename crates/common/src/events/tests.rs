//! Against an API server that records requests.

use std::{convert::Infallible, fmt};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Debug, Serialize)]
struct Because(&'static str);
impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
impl Reason for Because {
    fn code(&self) -> &'static str {
        if self.0 == "another label" { "LabelChanged" } else { "LabelMissing" }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Annotate;
impl fmt::Display for Annotate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotate Node node-1")
    }
}
impl Action for Annotate {
    type Reason = Because;
    fn name(&self) -> &'static str {
        "AnnotateNode"
    }
    fn regarding(&self) -> Regarding {
        on("node-1")
    }
}

fn on(name: &str) -> Regarding {
    Regarding {
        api_version: "v1",
        kind: "Node",
        namespace: None,
        name: name.into(),
        uid: Some("uid-1".into()),
    }
}

fn problem(name: &str, text: &'static str) -> Problem<Because> {
    Problem { regarding: on(name), because: Because(text) }
}

/// Requests: method, path, body.
type Seen = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// More than any drain takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Events, and the requests that they cause. `code` is the status code of the response to each, by its number.
fn env(code: fn(usize) -> u16) -> (Events, Seen) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let (head, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            let mut log = log.lock().unwrap();
            log.push((head.method, head.uri.path().to_owned(), body.clone()));
            let code = code(log.len());
            let body = if code == 201 {
                body
            } else {
                json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "Refused"})
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let metrics = Metrics::new("natgw").unwrap();
    (Events::new(Client::new(service, "default"), &metrics, "natgw", "natgw-0".into()), seen)
}

#[tokio::test]
async fn a_step_becomes_an_event_on_its_object_and_a_repeat_becomes_a_series() {
    let (events, seen) = env(|_| 201);
    let step = Step { action: Annotate, because: Because("the label has no annotation") };
    events.done(&step);
    events.failed(&step, &std::io::Error::other("boom"));
    events.done(&step);
    events.drain(LIMIT).await;
    let seen = seen.lock().unwrap();
    let (method, path, done) = &seen[0];
    // Events on objects without a namespace live in `default`, where kubectl describe looks.
    assert_eq!((method, path.as_str()), (&Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events"));
    assert_eq!(done["type"], "Normal");
    assert_eq!((&done["action"], &done["reason"]), (&json!("AnnotateNode"), &json!("LabelMissing")));
    assert_eq!(done["note"], "annotate Node node-1: the label has no annotation");
    assert_eq!(
        done["regarding"],
        json!({"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-1"})
    );
    assert_eq!(done["reportingController"], "natgw.perimeter.dev");
    assert_eq!(done["reportingInstance"], "natgw-0");
    assert_eq!(seen[1].2["type"], "Warning");
    assert_eq!(seen[1].2["note"], "failed: annotate Node node-1: boom (the label has no annotation)");
    assert_eq!(seen[2].0, Method::PATCH);
    assert_eq!(seen[2].2["series"]["count"], 2);
}

#[derive(Clone, Debug, Serialize)]
struct Delete(&'static str);
impl fmt::Display for Delete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delete Volume {}", self.0)
    }
}
impl Action for Delete {
    type Reason = Because;
    fn name(&self) -> &'static str {
        "DeleteInCloud"
    }
    fn regarding(&self) -> Regarding {
        on("node-1")
    }
    fn related(&self) -> Option<Related> {
        Some(Related { kind: "Volume".into(), namespace: None, name: self.0.to_owned() })
    }
}

#[derive(Clone, Debug, Serialize)]
struct Left(&'static str);
impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume {} is left", self.0)
    }
}
impl Reason for Left {
    fn code(&self) -> &'static str {
        "Debris"
    }
    fn related(&self) -> Option<Related> {
        Some(Related { kind: "Volume".into(), namespace: None, name: self.0.to_owned() })
    }
}

#[tokio::test]
async fn problems_of_several_second_objects_have_events_of_their_own_on_one_object() {
    let (events, seen) = env(|_| 201);
    let problem = |id| Problem { regarding: on("node-1"), because: Left(id) };
    events.found(&[problem("a"), problem("b")]);
    events.found(&[problem("b")]);
    events.found(&[problem("a"), problem("b")]);
    events.drain(LIMIT).await;
    let seen = seen.lock().unwrap();
    let published = seen.iter().map(|(method, _, body)| (method.clone(), body["note"].as_str().unwrap()));
    let (a, b) = ("Volume a is left", "Volume b is left");
    assert_eq!(published.collect::<Vec<_>>(), [(Method::POST, a), (Method::POST, b), (Method::PATCH, a)]);
    assert_eq!(seen[1].2["related"], json!({"kind": "Volume", "name": "b"}));
}

#[tokio::test]
async fn actions_on_several_second_objects_have_events_of_their_own_on_one_object() {
    let (events, seen) = env(|_| 201);
    for id in ["a", "b", "a"] {
        events.done(&Step { action: Delete(id), because: Because("it is asked for") });
    }
    events.drain(LIMIT).await;
    let seen = seen.lock().unwrap();
    let published = seen.iter().map(|(method, _, body)| (method.clone(), body["note"].as_str().unwrap()));
    let note = |id: &str| format!("delete Volume {id}: it is asked for");
    let (a, b) = (note("a"), note("b"));
    assert_eq!(
        published.collect::<Vec<_>>(),
        [(Method::POST, a.as_str()), (Method::POST, b.as_str()), (Method::PATCH, a.as_str())]
    );
    assert_eq!(seen[1].2["related"], json!({"kind": "Volume", "name": "b"}));
}

#[tokio::test]
async fn a_new_recorder_begins_new_series_after_so_many_events() {
    let (events, seen) = env(|_| 201);
    let step = Step { action: Annotate, because: Because("the label has no annotation") };
    for _ in 0..=RECORDED {
        events.done(&step);
    }
    events.drain(LIMIT).await;
    let seen = seen.lock().unwrap();
    let new = seen.iter().filter(|(method, ..)| method == Method::POST).count();
    assert_eq!((seen.len(), new), (RECORDED + 1, 2), "the second recorder begins a new series");
}

/// As by `kubectl delete events --all`.
#[tokio::test]
async fn an_event_that_was_deleted_is_created_when_its_action_repeats() {
    let (events, seen) = env(|count| if count == 2 { 404 } else { 201 });
    let step = Step { action: Annotate, because: Because("the label has no annotation") };
    events.done(&step);
    events.done(&step);
    events.drain(LIMIT).await;
    let methods: Vec<_> = seen.lock().unwrap().iter().map(|(method, ..)| method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::POST]);
    assert_eq!((counted(&events, "published"), counted(&events, "failed")), (2, 0));
}

#[tokio::test]
async fn a_problem_is_reported_once_while_it_lasts() {
    let (events, seen) = env(|_| 201);
    let published = async || {
        events.drain(LIMIT).await;
        seen.lock().unwrap().len()
    };
    events.found(&[problem("a", "bad label"), problem("b", "bad label"), problem("a", "bad label")]);
    assert_eq!(published().await, 2, "one for each object");
    events.found(&[problem("b", "bad label"), problem("a", "bad label")]);
    assert_eq!(published().await, 2, "nothing new");
    events.found(&[problem("a", "worse label")]);
    assert_eq!(published().await, 3, "another text is another problem");
    events.found(&[problem("a", "worse label"), problem("b", "bad label")]);
    assert_eq!(published().await, 4, "it disappeared and came back");
}

fn counted(events: &Events, result: &str) -> u64 {
    let text = String::from_utf8(events.shared.metrics.text().unwrap()).unwrap();
    let line = format!("perimeter_events_total{{result=\"{result}\"}} ");
    text.lines().find_map(|text| text.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn without_rights_for_events_a_problem_is_published_and_logged_once() {
    let (events, seen) = env(|_| 403);
    for _ in 0..3 {
        events.found(&[problem("a", "bad label")]);
        events.drain(LIMIT).await;
    }
    let seen = seen.lock().unwrap();
    let paths: Vec<&str> = seen.iter().map(|(_, path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        ["/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"],
        "once for each API"
    );
    assert_eq!(counted(&events, "failed"), 1);
}

#[tokio::test]
async fn where_events_k8s_io_is_forbidden_core_events_are_published_and_counted_up() {
    let (events, seen) = env(|count| if count == 1 { 403 } else { 201 });
    let step = Step { action: Annotate, because: Because("the label has no annotation") };
    events.done(&step);
    events.done(&step);
    events.failed(&step, &std::io::Error::other("boom"));
    events.drain(LIMIT).await;
    let seen = seen.lock().unwrap();
    let requests: Vec<_> = seen.iter().map(|(method, path, _)| (method.clone(), path.as_str())).collect();
    let core = "/api/v1/namespaces/default/events";
    let name = seen[1].2["metadata"]["name"].as_str().unwrap();
    assert_eq!(requests[1..3], [(Method::POST, core), (Method::PATCH, format!("{core}/{name}").as_str())]);
    assert_eq!(requests[3], (Method::POST, core));
    let first = &seen[1].2;
    assert_eq!((&first["reason"], &first["type"]), (&json!("LabelMissing"), &json!("Normal")));
    assert_eq!(first["involvedObject"]["name"], "node-1");
    assert_eq!(first["message"], "annotate Node node-1: the label has no annotation");
    assert_eq!(seen[2].2["count"], 2);
    assert_eq!(seen[3].2["type"], "Warning");
    assert_eq!(counted(&events, "published"), 3);
}

/// The namespace of its object is being deleted.
#[tokio::test]
async fn an_event_that_both_apis_refuse_changes_nothing_for_the_next_one() {
    let (events, seen) = env(|count| if count <= 2 { 403 } else { 201 });
    events.found(&[problem("a", "bad label")]);
    events.drain(LIMIT).await;
    events.found(&[problem("b", "bad label")]);
    events.drain(LIMIT).await;
    let paths: Vec<_> = seen.lock().unwrap().iter().map(|(_, path, _)| path.clone()).collect();
    assert!(paths.len() == 3 && paths[2].starts_with("/apis/events.k8s.io/"), "{paths:?}");
    assert_eq!((counted(&events, "failed"), counted(&events, "published")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_meets_an_error_of_the_server_is_sent_again() {
    let (events, seen) = env(|count| if count < 3 { 500 } else { 201 });
    events.found(&[problem("a", "bad label")]);
    events.drain(LIMIT).await;
    assert_eq!((seen.lock().unwrap().len(), counted(&events, "published")), (3, 1));
}

fn silent_server() -> Events {
    let service =
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let metrics = Metrics::new("natgw").unwrap();
    Events::new(Client::new(service, "default"), &metrics, "natgw", "natgw-0".into())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_respond_delays_no_action_and_the_drain_is_limited() {
    let events = silent_server();
    let start = tokio::time::Instant::now();
    events.done(&Step { action: Annotate, because: Because("x") });
    events.found(&[problem("a", "bad label"), problem("b", "bad label")]);
    assert_eq!(start.elapsed(), Duration::ZERO);
    events.drain(Duration::from_secs(2)).await;
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_queue_are_dropped_and_counted() {
    let events = silent_server();
    for _ in 0..QUEUE + 5 {
        events.done(&Step { action: Annotate, because: Because("x") });
    }
    assert_eq!(counted(&events, "dropped"), 5);
}

#[tokio::test(start_paused = true)]
async fn an_action_that_fails_for_an_hour_is_an_event_every_five_minutes_for_each_object() {
    let (events, seen) = env(|_| 201);
    let because = || Because("the label has no annotation");
    for _ in 0..60 {
        for id in ["a", "b"] {
            events.failed(&Step { action: Delete(id), because: because() }, &std::io::Error::other("boom"));
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    events.drain(LIMIT).await;
    let seen = seen.lock().unwrap();
    for id in ["a", "b"] {
        let of_id = seen.iter().filter(|(.., body)| body["related"]["name"] == id);
        let new = of_id.clone().filter(|(method, ..)| method == Method::POST);
        assert_eq!((of_id.count(), new.count()), (12, 1), "{id}");
    }
    assert!(events.shared.failures.lock().unwrap().len() <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_an_event_at_once_if_it_is_new_or_comes_back_after_a_success() {
    let (events, seen) = env(|_| 201);
    let error = std::io::Error::other("boom");
    let step = |because| Step { action: Annotate, because: Because(because) };
    let published = async || {
        events.drain(LIMIT).await;
        seen.lock().unwrap().len()
    };
    events.log_only().failed(&step("no label"), &error);
    assert_eq!(published().await, 0);
    events.failed(&step("no label"), &error);
    assert_eq!(published().await, 1, "a failure that is only logged counts as unreported");
    events.failed(&step("another label"), &error);
    assert_eq!(published().await, 2, "another reason");
    events.failed(&step("no label"), &error);
    events.scoped().failed(&step("another label"), &error);
    assert_eq!(published().await, 2, "both are known");
    events.warnings_only().done(&step("another label"));
    events.failed(&step("no label"), &error);
    assert_eq!(published().await, 3, "the action has succeeded since");
}

#[tokio::test]
async fn scoped_events_remember_their_own_problems() {
    let (events, seen) = env(|_| 201);
    let scoped = events.scoped();
    events.found(&[problem("a", "bad label")]);
    scoped.found(&[problem("b", "bad label")]);
    events.found(&[problem("a", "bad label")]);
    events.drain(LIMIT).await;
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn log_only_publishes_nothing_and_leaves_the_others_as_they_are() {
    let (events, seen) = env(|_| 201);
    events.log_only().done(&Step { action: Annotate, because: Because("x") });
    events.drain(LIMIT).await;
    assert_eq!(seen.lock().unwrap().len(), 0);
    events.done(&Step { action: Annotate, because: Because("x") });
    events.drain(LIMIT).await;
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn notes_fit_into_the_api_s_limit() {
    assert_eq!(cut("short".into()), "short");
    let long = cut("ä".repeat(2000));
    assert!(long.len() <= NOTE_BYTES && long.ends_with("ä..."), "{}", long.len());
}
