//! The client over a scripted transport, under paused time: a second of waiting costs nothing and is measured exactly.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use ::http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Frame};
use proptest::prelude::*;
use tower::util::BoxCloneSyncService;

use super::*;

/// Reaction of the transport to a request.
#[derive(Clone, Debug)]
pub enum Play {
    /// A complete response.
    Response(u16, Vec<(&'static str, String)>, String),
    /// The connection breaks.
    Broken,
    /// Nothing ever comes.
    Silence,
    /// A status and half a body, then nothing.
    Stall,
}

#[test]
fn the_debug_text_of_a_response_has_no_token() {
    let mut headers = HeaderMap::new();
    headers.insert("X-Subject-Token", HeaderValue::from_static("hidden"));
    let response = Response { status: StatusCode::CREATED, headers, body: Bytes::from("hidden") };
    let text = format!("{response:?}");
    assert!(text.contains("201") && !text.contains("hidden"), "{text}");
}

/// A response with a status and a body.
pub fn response(status: u16, body: &str) -> Play {
    Play::Response(status, Vec::new(), body.to_owned())
}

/// A request as the transport saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
}

/// The requests so far.
pub type Log = Arc<Mutex<Vec<Seen>>>;

struct Stalled;

impl hyper::body::Body for Stalled {
    type Data = Bytes;
    type Error = Error;
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Pending
    }
}

/// A client whose `n`th request gets the `n`th play; the last one is for all that follow.
pub fn scripted(plays: Vec<Play>, retry_policy: RetryPolicy, registry: &Registry) -> (Http, Log) {
    let plays = Arc::new(Mutex::new(VecDeque::from(plays)));
    let log = Log::default();
    let seen = log.clone();
    let transport = BoxCloneSyncService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
        let (plays, seen) = (plays.clone(), seen.clone());
        async move {
            let (head, body) = request.into_parts();
            assert!(body.size_hint().exact().is_some());
            let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
            let path = head.uri.path_and_query().unwrap().as_str().to_owned();
            seen.lock().unwrap().push(Seen { method: head.method, path, headers: head.headers, body });
            let play = {
                let mut plays = plays.lock().unwrap();
                if plays.len() > 1 { plays.pop_front().unwrap() } else { plays[0].clone() }
            };
            match play {
                Play::Response(status, headers, body) => {
                    let mut response = ::http::Response::builder().status(status);
                    for (name, value) in headers {
                        response = response.header(name, value);
                    }
                    Ok(response
                        .body(Full::from(body).map_err(|never| match never {}).boxed_unsync())
                        .unwrap())
                }
                Play::Broken => Err(Error::Broken("connection reset".to_owned())),
                Play::Silence => std::future::pending().await,
                Play::Stall => Ok(::http::Response::new(Stalled.boxed_unsync())),
            }
        }
    }));
    let endpoint = Endpoint::parse("http://127.0.0.1/v1").unwrap();
    let secret = Secret::new("s3cr3t").unwrap();
    let wire = Wire::over(transport, "test", LIMITS, Metrics::register("test", registry).unwrap());
    let http = Http::over(wire, endpoint, secret, "perimeter/0", retry_policy).unwrap();
    (http, log)
}

fn retry_policy(response: &Response) -> Retry {
    match retry_after(&response.headers) {
        _ if !response.status.is_server_error() => Retry::Never,
        Some(asked) => Retry::After(asked),
        None => Retry::Soon,
    }
}

fn client(plays: Vec<Play>) -> (Http, Log) {
    scripted(plays, retry_policy, &Registry::new())
}

async fn get(http: &Http) -> (Result<Response, Error>, Duration) {
    let began = Instant::now();
    let end = http.get("/things", &mut Budget::default()).await;
    (end, began.elapsed())
}

fn requests(log: &Log) -> usize {
    log.lock().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_get_is_retried_until_it_succeeds() {
    let (http, log) = client(vec![response(503, ""), Play::Broken, response(200, "ok")]);
    let (end, took) = get(&http).await;
    assert_eq!(end.unwrap().body, "ok");
    assert_eq!(requests(&log), 3);
    assert!(took <= Duration::from_millis(1500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_get_returns_the_last_response_after_all_retries() {
    let (http, log) = client(vec![response(502, "first"), response(503, "last")]);
    let (end, took) = get(&http).await;
    assert_eq!(end.unwrap().body, "last");
    assert_eq!(requests(&log), 5, "one request and four repetitions");
    assert!(took <= Duration::from_secs(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_get_ends_at_the_deadline_without_a_response() {
    for silence in [Play::Silence, Play::Stall] {
        let (http, log) = client(vec![silence]);
        let (end, took) = get(&http).await;
        assert!(matches!(end, Err(Error::Deadline(_))), "{end:?}");
        assert!((15.0..=30.01).contains(&took.as_secs_f64()), "{took:?}");
        assert!((2..=5).contains(&requests(&log)), "{}", requests(&log));
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_is_never_retried() {
    for play in [response(503, ""), Play::Broken, Play::Silence, Play::Stall] {
        let (http, log) = client(vec![play]);
        let began = Instant::now();
        let end = http.post("/things", &serde_json::json!({"a": 1})).await;
        assert!(end.is_err() || end.unwrap().status == 503);
        assert!(began.elapsed() <= Duration::from_millis(15_010), "{:?}", began.elapsed());
        let log = log.lock().unwrap();
        assert_eq!(log.len(), 1);
        assert_eq!((&log[0].method, log[0].body.as_str()), (&Method::POST, r#"{"a":1}"#));
        assert_eq!(log[0].headers["content-type"], "application/json");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_is_not_retried() {
    for status in [301, 400, 404, 409] {
        let (http, log) = client(vec![response(status, "")]);
        assert_eq!(get(&http).await.0.unwrap().status, status);
        assert_eq!(requests(&log), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_retry_after_is_waited_for_and_a_long_one_is_returned() {
    let busy = |seconds: u32| Play::Response(503, vec![("retry-after", seconds.to_string())], String::new());
    let (http, log) = client(vec![busy(2), response(200, "")]);
    let (end, took) = get(&http).await;
    assert_eq!((end.unwrap().status, requests(&log)), (StatusCode::OK, 2));
    assert!((2.0..=2.51).contains(&took.as_secs_f64()), "{took:?}");

    for seconds in [3, 60] {
        let (http, log) = client(vec![busy(seconds)]);
        let (end, took) = get(&http).await;
        assert_eq!((end.unwrap().status.as_u16(), requests(&log)), (503, 1));
        assert_eq!(took, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn one_budget_covers_several_calls() {
    let (http, log) = client(vec![response(503, "")]);
    let mut budget = Budget::default();
    for _ in 0..3 {
        http.get("/things", &mut budget).await.unwrap();
    }
    assert_eq!(requests(&log), 5 + 1 + 1, "the repetitions are spent in the first call");
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_the_cap_is_an_error_and_one_at_the_cap_is_not() {
    let (http, log) = client(vec![response(200, &"x".repeat(LIMITS.bytes + 1))]);
    assert!(matches!(get(&http).await.0, Err(Error::TooLarge(most)) if most == LIMITS.bytes));
    assert_eq!(requests(&log), 1);
    let (http, _) = client(vec![response(200, &"x".repeat(LIMITS.bytes))]);
    assert_eq!(get(&http).await.0.unwrap().body.len(), LIMITS.bytes);
}

#[tokio::test(start_paused = true)]
async fn every_exchange_is_counted_and_the_rate_limit_is_a_metric() {
    let registry = Registry::new();
    let limits = |remaining: &str| {
        vec![
            ("ratelimit-limit", "3600".to_owned()),
            ("ratelimit-remaining", remaining.to_owned()),
            ("ratelimit-reset", "1731011315".to_owned()),
        ]
    };
    let plays = vec![
        Play::Broken,
        Play::Response(503, limits("7"), String::new()),
        response(200, ""),
        response(201, ""),
    ];
    let (http, _) = scripted(plays, retry_policy, &registry);
    let unknown = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert!(!unknown.contains("cloud_api_rate_limit_remaining{"), "zero would be an alarm:\n{unknown}");
    get(&http).await.0.unwrap();
    http.post("/things/4711/actions", &serde_json::json!({})).await.unwrap();
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        r#"cloud_api_requests_total{cloud="test",code="<error>",method="GET",service="things"} 1"#,
        r#"cloud_api_requests_total{cloud="test",code="503",method="GET",service="things"} 1"#,
        r#"cloud_api_requests_total{cloud="test",code="200",method="GET",service="things"} 1"#,
        r#"cloud_api_requests_total{cloud="test",code="201",method="POST",service="things"} 1"#,
        r#"cloud_api_request_duration_seconds_count{cloud="test",method="GET",service="things"} 3"#,
        r#"cloud_api_rate_limit_remaining{cloud="test"} 7"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_clouds_share_a_registry_and_one_cloud_registers_once() {
    let registry = Registry::new();
    Metrics::register("one", &registry).unwrap();
    Metrics::register("other", &registry).unwrap();
    assert!(Metrics::register("one", &registry).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever the server does, a GET ends within 30 s and 5 requests, and succeeds only with a 2xx.
    #[test]
    fn no_server_holds_a_get_for_longer_than_its_budget(plays in proptest::collection::vec(prop_oneof![
        (prop_oneof![Just(200_u16), Just(404), Just(429), Just(500), Just(503)], proptest::option::of(0_u32..40))
            .prop_map(|(status, after)| {
                let headers = after.map(|after| ("retry-after", after.to_string())).into_iter().collect();
                Play::Response(status, headers, String::new())
            }),
        Just(Play::Broken), Just(Play::Silence), Just(Play::Stall),
    ], 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (http, log) = client(plays);
            let (end, took) = get(&http).await;
            prop_assert!(took <= Duration::from_millis(30_010), "{took:?}");
            prop_assert!(requests(&log) <= 5);
            // It gave up on a transient failure only because the server asks for a long wait, or the wait would not end in time.
            if let Ok(response) = end && !response.status.is_success() && retry_policy(&response) != Retry::Never {
                let asked = retry_after(&response.headers).unwrap_or_default();
                let late = took + asked + Duration::from_secs(5) >= Duration::from_secs(30);
                prop_assert!(requests(&log) == 5 || late || asked > Duration::from_secs(2), "{took:?} {response:?}");
            }
            Ok(())
        })?;
    }
}
