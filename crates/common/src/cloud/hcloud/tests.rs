//! Waiting, repeating and deciding, over a scripted transport under paused time.

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::cloud::http::tests::{Log, Play, response, scripted};

fn client(plays: Vec<Play>) -> (Hcloud, Log) {
    let (http, log) = scripted(plays, error::retry_policy, &Registry::new());
    (Hcloud { http }, log)
}

fn requests(log: &Log) -> usize {
    log.lock().unwrap().len()
}

fn started() -> Action {
    Action { id: 77, command: "add_route".to_owned(), status: Status::Running, progress: 0, error: None }
}

fn poll(status: &str) -> Play {
    let action = json!({"id": 77, "command": "add_route", "status": status, "progress": 40,
        "error": {"code": "action_failed", "message": "Action failed"}});
    response(200, &json!({"actions": [action]}).to_string())
}

fn failing(status: u16, code: &str) -> Play {
    response(
        status,
        &json!({"error": {"code": code, "message": format!("about {code}"), "details": null}}).to_string(),
    )
}

async fn wait(plays: Vec<Play>) -> (Result<(), Error>, Duration, Log) {
    let (hcloud, log) = client(plays);
    let began = Instant::now();
    let end = hcloud.wait(&started()).await;
    (end, began.elapsed(), log)
}

#[tokio::test(start_paused = true)]
async fn an_action_is_polled_each_quarter_of_a_second_until_it_succeeds() {
    let (end, took, log) = wait(vec![poll("running"), poll("running"), poll("success")]).await;
    end.unwrap();
    assert_eq!(requests(&log), 3);
    assert!((0.75..0.85).contains(&took.as_secs_f64()), "{took:?}");
    assert!(log.lock().unwrap().iter().all(|seen| seen.path == "/v1/actions?id=77"), "the ID is mandatory");
}

#[tokio::test(start_paused = true)]
async fn an_action_that_is_over_already_is_not_polled() {
    let (hcloud, log) = client(vec![Play::Broken]);
    hcloud.wait(&Action { status: Status::Success, ..started() }).await.unwrap();
    let failed = hcloud.wait(&Action { status: Status::Error, ..started() }).await.unwrap_err();
    assert!(matches!(failed, Error::ActionFailed { action: 77, .. }));
    assert_eq!(requests(&log), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_action_is_an_error_with_its_code() {
    let (end, ..) = wait(vec![poll("running"), poll("error")]).await;
    let error = end.unwrap_err();
    assert_eq!(error.to_string(), "wait for add_route: action 77 failed with action_failed: Action failed");
    assert_eq!(error.code().unwrap().as_str(), "action_failed");
    assert_eq!(error.retry(), Retry::Soon);
}

#[tokio::test(start_paused = true)]
async fn a_missing_action_is_an_error_at_once() {
    for gone in [json!({"actions": []}), json!({"actions": [{"id": 78, "status": "success"}]})] {
        let (end, _, log) = wait(vec![response(200, &gone.to_string())]).await;
        assert!(matches!(end, Err(Error::ActionMissing { action: 77, .. })), "{end:?}");
        assert_eq!(requests(&log), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_that_is_never_over_is_given_up_after_a_minute() {
    let (end, took, log) = wait(vec![poll("running")]).await;
    let error = end.unwrap_err();
    assert!(matches!(error, Error::Timeout { action: 77, .. }));
    assert_eq!(
        error.to_string(),
        "wait for add_route: action 77 did not finish within 60 s (last status: 40 % done)"
    );
    assert!((60.0..60.1).contains(&took.as_secs_f64()), "{took:?}");
    assert!((60..=70).contains(&requests(&log)), "{}", requests(&log));

    let (end, took, _) = wait(vec![Play::Silence]).await;
    assert!(end.unwrap_err().to_string().contains("no complete response within"));
    assert!((60.0..60.1).contains(&took.as_secs_f64()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn errors_that_pass_are_waited_out() {
    let mut plays = vec![failing(503, "unavailable"); 12];
    plays.extend([Play::Broken, Play::Silence, failing(429, "rate_limit_exceeded"), poll("success")]);
    let (end, ..) = wait(plays).await;
    end.unwrap();
    let (end, _, log) = wait(vec![failing(401, "unauthorized")]).await;
    assert_eq!(end.unwrap_err().code(), Some(&Code::Unauthorized));
    assert_eq!(requests(&log), 1);
}

#[tokio::test(start_paused = true)]
async fn a_spent_rate_limit_is_waited_for_by_its_refill_not_until_the_bucket_is_full() {
    let limits = vec![
        ("ratelimit-limit", "3600".to_owned()),
        ("ratelimit-remaining", "0".to_owned()),
        ("ratelimit-reset", "99999999999".to_owned()),
    ];
    let body = json!({"error": {"code": "rate_limit_exceeded", "message": "limit of 3600 requests per hour reached"}});
    let spent = Play::Response(429, limits, body.to_string());
    let network = response(200, &json!({"network": {"id": 4711, "ip_range": "10.0.0.0/16"}}).to_string());
    let (hcloud, log) = client(vec![spent.clone(), network]);
    let began = Instant::now();
    hcloud.network(4711).await.unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!((1.0..=2.51).contains(&took), "{took}");
    assert_eq!(requests(&log), 2);

    // A write is not repeated; the caller is told when.
    let (hcloud, log) = client(vec![spent]);
    let route = Route::default_via([10, 0, 0, 2].into());
    let error = hcloud.add_route(4711, &route).await.unwrap_err();
    let Retry::After(asked) = error.retry() else { panic!("{error:?}") };
    assert!((1.0..=2.0).contains(&asked.as_secs_f64()), "{asked:?}");
    assert_eq!(requests(&log), 1);
}

/// The API's code decides on the retry, whatever the HTTP status. For an unknown code, the status decides.
#[tokio::test(start_paused = true)]
async fn the_code_decides_not_the_status() {
    let route = Route::default_via([10, 0, 0, 2].into());
    for (status, code, retry) in [
        (423, "locked", Retry::Soon),
        (409, "conflict", Retry::Soon),
        (504, "timeout", Retry::Soon),
        (502, "bad_gateway", Retry::Soon),
        (503, "unavailable", Retry::Soon),
        (500, "server_error", Retry::Soon),
        (400, "server_error", Retry::Soon),
        (503, "robot_unavailable", Retry::Soon),
        (422, "invalid_input", Retry::Never),
        (503, "invalid_input", Retry::Never),
        (403, "forbidden", Retry::Never),
        (401, "unauthorized", Retry::Never),
        (403, "token_readonly", Retry::Never),
        (404, "not_found", Retry::Never),
        (409, "uniqueness_error", Retry::Never),
        (418, "new_next_year", Retry::Never),
        (409, "new_next_year", Retry::Soon),
    ] {
        let (hcloud, log) = client(vec![failing(status, code)]);
        let error = hcloud.delete_route(4711, &route).await.unwrap_err();
        assert_eq!((error.retry(), error.code().unwrap().as_str()), (retry, code), "{error}");
        assert_eq!(requests(&log), 1, "writes are sent once");
        let begin = "delete route 0.0.0.0/0 via 10.0.0.2 of network 4711: Hetzner responded with ";
        let error_body = format!("{begin}{code} (HTTP {status}): about {code}");
        assert!(error.to_string().starts_with(&error_body), "{error}");

        let (hcloud, log) = client(vec![failing(status, code)]);
        assert_eq!(hcloud.server(1).await.unwrap_err().code().unwrap().as_str(), code);
        assert_eq!(requests(&log), if retry == Retry::Soon { 5 } else { 1 }, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_the_apis_counts_by_its_status() {
    for (status, code, retry) in
        [(502, "bad_gateway", Retry::Soon), (504, "timeout", Retry::Soon), (404, "http_404", Retry::Never)]
    {
        let (hcloud, _) = client(vec![response(status, "<html>\n<h1>nginx</h1>")]);
        let error = hcloud.network(1).await.unwrap_err();
        assert_eq!((error.code().unwrap().as_str(), error.retry()), (code, retry));
        assert!(error.to_string().contains("<html> <h1>nginx</h1>"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn advice_is_given_where_a_person_can_do_something() {
    let (hcloud, _) = client(vec![failing(403, "token_readonly")]);
    let error = hcloud.add_route(4711, &Route::default_via([10, 0, 0, 2].into())).await.unwrap_err();
    assert!(error.to_string().contains("the token must be Read & Write"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_response_of_another_shape_is_a_decode_error_and_not_retried() {
    for body in ["", "{", "[]", "{}", r#"{"server": {"name": "no id"}}"#] {
        let (hcloud, log) = client(vec![response(200, body)]);
        let error = hcloud.server(1).await.unwrap_err();
        assert!(matches!(error, Error::Decode { .. }), "{error:?}");
        assert!(error.to_string().starts_with("read server 1: cannot parse Hetzner's response: "), "{error}");
        assert_eq!((requests(&log), error.retry()), (1, Retry::Never));
    }
}

/// If the API has no list of actions (404), the client requests the action itself.
#[tokio::test(start_paused = true)]
async fn an_action_is_asked_for_alone_where_there_is_no_list() {
    let alone = json!({"action": {"id": 77, "command": "add_route", "status": "success", "progress": null}});
    let (end, _, log) = wait(vec![failing(404, "not_found"), response(200, &alone.to_string())]).await;
    end.unwrap();
    assert_eq!(log.lock().unwrap().last().unwrap().path, "/v1/actions/77");
    let (end, ..) = wait(vec![failing(404, "not_found")]).await;
    assert!(matches!(end, Err(Error::ActionMissing { action: 77, .. })), "{end:?}");
}

fn servers(ids: std::ops::Range<u64>) -> serde_json::Value {
    ids.map(|id| json!({"id": id})).collect()
}

async fn listed(pages: &[serde_json::Value]) -> Result<usize, Error> {
    let (hcloud, _) = client(pages.iter().map(|page| response(200, &page.to_string())).collect());
    hcloud.servers().await.map(|servers| servers.len())
}

/// Depending on the server, a missing number is null, 0 or absent.
#[tokio::test(start_paused = true)]
async fn pages_are_followed_however_their_numbers_are_written() {
    let meta = |servers: serde_json::Value, pagination: serde_json::Value| json!({"servers": servers, "meta": {"pagination": pagination}});
    let pages = [
        meta(servers(0..50), json!({"page": 1, "next_page": 2, "last_page": 2, "total_entries": 60})),
        meta(servers(50..60), json!({"page": 2, "next_page": 0, "last_page": 2, "total_entries": 60})),
    ];
    assert_eq!(listed(&pages).await.unwrap(), 60);
    let pages = [
        meta(servers(0..50), json!({"page": 1, "last_page": 2})),
        meta(servers(50..60), json!({"page": 2, "last_page": 2, "total_entries": null})),
    ];
    assert_eq!(listed(&pages).await.unwrap(), 60);
    assert_eq!(
        listed(&[meta(json!(null), json!({"next_page": null, "total_entries": 0}))]).await.unwrap(),
        0
    );
}

/// Without any numbers, a page that is not full is the last; what could be more is asked for, and must be other servers.
#[tokio::test(start_paused = true)]
async fn without_page_numbers_a_full_page_is_not_taken_for_the_whole() {
    assert_eq!(listed(&[json!({"servers": []})]).await.unwrap(), 0);
    assert_eq!(listed(&[json!({"servers": servers(0..24), "meta": null})]).await.unwrap(), 24);
    let second = json!({"servers": servers(25..30), "meta": {"pagination": null}});
    assert_eq!(listed(&[json!({"servers": servers(0..25)}), second]).await.unwrap(), 30);
    let same = listed(&[json!({"servers": servers(0..25)})]).await;
    assert!(matches!(same, Err(Error::Partial { .. })), "{same:?}");
    assert!(matches!(listed(&[json!({})]).await, Err(Error::Decode { .. })));
}
