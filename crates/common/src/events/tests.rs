//! Against an API server that keeps what it is told.

use std::convert::Infallible;

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
        "LabelMissing"
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

/// Events, and the requests that came of them. `accepts` is asked for each.
fn world(accepts: fn(usize) -> bool) -> (Events, Seen) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let (head, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            let mut log = log.lock().unwrap();
            log.push((head.method, head.uri.path().to_owned(), body.clone()));
            let (code, body) = if accepts(log.len()) {
                (201, body)
            } else {
                (
                    403,
                    json!({"kind": "Status", "status": "Failure", "code": 403, "message": "no", "reason": "Forbidden"}),
                )
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (Events::new(Client::new(service, "default"), "natgw", "natgw-0".into()), seen)
}

#[tokio::test]
async fn a_step_becomes_an_event_on_its_object_and_a_repeat_becomes_a_series() {
    let (events, seen) = world(|_| true);
    let step = Step { action: Annotate, because: Because("the label has no annotation") };
    events.done(&step).await;
    events.failed(&step, &std::io::Error::other("boom")).await;
    events.done(&step).await;
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
async fn findings_about_several_things_are_told_apart_where_all_appear_on_one_object() {
    let (events, seen) = world(|_| true);
    let problem = |id| Problem { regarding: on("node-1"), because: Left(id) };
    events.found(&[problem("a"), problem("b")]).await;
    events.found(&[problem("b")]).await;
    events.found(&[problem("a"), problem("b")]).await;
    let seen = seen.lock().unwrap();
    let told = seen.iter().map(|(method, _, body)| (method.clone(), body["note"].as_str().unwrap()));
    let (a, b) = ("Volume a is left", "Volume b is left");
    assert_eq!(told.collect::<Vec<_>>(), [(Method::POST, a), (Method::POST, b), (Method::PATCH, a)]);
    assert_eq!(seen[1].2["related"], json!({"kind": "Volume", "name": "b"}));
}

#[tokio::test]
async fn acts_on_several_objects_are_told_apart_where_all_appear_on_one() {
    let (events, seen) = world(|_| true);
    for id in ["a", "b", "a"] {
        events.done(&Step { action: Delete(id), because: Because("it is asked for") }).await;
    }
    let seen = seen.lock().unwrap();
    let told = seen.iter().map(|(method, _, body)| (method.clone(), body["note"].as_str().unwrap()));
    let note = |id: &str| format!("delete Volume {id}: it is asked for");
    let (a, b) = (note("a"), note("b"));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(Method::POST, a.as_str()), (Method::POST, b.as_str()), (Method::PATCH, a.as_str())]
    );
    assert_eq!(seen[1].2["related"], json!({"kind": "Volume", "name": "b"}));
}

#[tokio::test]
async fn no_more_than_so_many_events_are_remembered() {
    let (events, seen) = world(|_| true);
    let step = Step { action: Annotate, because: Because("the label has no annotation") };
    for _ in 0..=REMEMBERED {
        events.done(&step).await;
    }
    let seen = seen.lock().unwrap();
    let new = seen.iter().filter(|(method, ..)| method == Method::POST).count();
    assert_eq!((seen.len(), new), (REMEMBERED + 1, 2), "the second begins a series anew");
}

#[tokio::test]
async fn a_finding_is_told_once_for_as_long_as_it_stands() {
    let (events, seen) = world(|_| true);
    let told = || seen.lock().unwrap().len();
    events.found(&[problem("a", "bad label"), problem("b", "bad label"), problem("a", "bad label")]).await;
    assert_eq!(told(), 2, "one for each object");
    events.found(&[problem("b", "bad label"), problem("a", "bad label")]).await;
    assert_eq!(told(), 2, "nothing new");
    events.found(&[problem("a", "worse label")]).await;
    assert_eq!(told(), 3, "other words are news");
    events.found(&[problem("a", "worse label"), problem("b", "bad label")]).await;
    assert_eq!(told(), 4, "it had gone and came back");
}

#[tokio::test]
async fn a_refused_event_fails_nothing_and_is_tried_again() {
    let (events, seen) = world(|count| count > 1);
    events.found(&[problem("a", "bad label")]).await;
    events.found(&[problem("a", "bad label")]).await;
    events.found(&[problem("a", "bad label")]).await;
    assert_eq!(seen.lock().unwrap().len(), 2, "refused, taken, known");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_holds_a_pass_up_for_five_seconds_at_most() {
    let service =
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let events = Events::new(Client::new(service, "default"), "natgw", "natgw-0".into());
    let start = tokio::time::Instant::now();
    events.done(&Step { action: Annotate, because: Because("x") }).await;
    assert_eq!(start.elapsed().as_secs(), PATIENCE.as_secs());
    events.found(&[problem("a", "bad label"), problem("b", "bad label"), problem("c", "bad label")]).await;
    assert_eq!(start.elapsed().as_secs(), PATIENCE.as_secs(), "those after it are not tried");
    tokio::time::advance(SILENCE).await;
    events.found(&[problem("a", "bad label"), problem("b", "bad label")]).await;
    assert_eq!(start.elapsed().as_secs(), (SILENCE + PATIENCE * 2).as_secs(), "a minute later one is");
}

#[test]
fn notes_fit_into_the_api_s_limit() {
    assert_eq!(cut("short".into()), "short");
    let long = cut("ä".repeat(2000));
    assert!(long.len() <= NOTE_BYTES && long.ends_with("ä..."), "{}", long.len());
}
