//! Faults on demand, and the history that tells what really happened.

use crate::hetzner::client::{ACTION, SOON, cluster};
use e2e::hetzner::{Answer, Code, Injection};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ADD: &str = "/networks/*/actions/add_route";

fn route() -> Value {
    json!({"destination": "0.0.0.0/0", "gateway": "10.0.0.2"})
}

#[tokio::test]
async fn the_next_calls_are_refused_and_nothing_is_done() {
    let (hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    for code in [
        Code::Locked,
        Code::Conflict,
        Code::RateLimitExceeded,
        Code::ServerError,
        Code::BadGateway,
        Code::Unavailable,
        Code::Timeout,
    ] {
        hetzner.refuse("POST", ADD, 2, code);
        assert_eq!(client.get("/networks").await.status, 200, "another call is not concerned");
        for _ in 0..2 {
            let reply = client.post(&add, route()).await;
            assert_eq!((reply.status, reply.code()), (code.status(), code.as_str()));
        }
        assert_eq!(hetzner.injections_left(), 0);
    }
    assert!(hetzner.project().actions.is_empty());
    assert_eq!(client.post(&add, route()).await.status, 201);
}

#[tokio::test]
async fn a_call_can_be_refused_after_it_was_carried_out() {
    let (hetzner, client, id) = cluster().await;
    hetzner.inject(Injection::new("POST", ADD, Answer::Refuse(Code::ServerError)).after_acting());
    let reply = client.post(&format!("/networks/{id}/actions/add_route"), route()).await;
    assert_eq!(reply.status, 500);
    hetzner.wait_until("the route", SOON, |w| w.networks[&id].default_gateway().is_some()).await.unwrap();
}

#[tokio::test]
async fn a_connection_can_be_cut_before_and_after() {
    let (hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    hetzner.inject(Injection::new("POST", "**", Answer::Cut));
    let body = route().to_string();
    assert!(client.send("POST", &add, "application/json", &body).await.is_err());
    assert!(hetzner.project().actions.is_empty());
    hetzner.inject(Injection::new("POST", "**", Answer::Cut).after_acting());
    assert!(client.send("POST", &add, "application/json", &body).await.is_err());
    assert_eq!(hetzner.project().actions.len(), 1);
    assert!(hetzner.writes().iter().all(|request| request.status.is_none()));
}

#[tokio::test]
async fn a_call_can_stay_unanswered() {
    let (hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    for (after, actions) in [(false, 0), (true, 1)] {
        let silence = Injection::new("*", "/networks/**", Answer::Silence);
        hetzner.inject(if after { silence.after_acting() } else { silence });
        let body = route().to_string();
        let happened = async {
            while (hetzner.injections_left(), hetzner.project().actions.len()) != (0, actions) {
                tokio::time::sleep(ACTION / 5).await;
            }
            // Time enough for an answer that must not come.
            tokio::time::sleep(ACTION).await;
        };
        tokio::select! {
            reply = client.send("POST", &add, "application/json", &body) => panic!("answered: {reply:?}"),
            () = happened => {}
            () = tokio::time::sleep(SOON) => panic!("the fault did not happen"),
        }
    }
    assert_eq!(client.get("/networks").await.status, 200, "others are answered meanwhile");
}

#[tokio::test]
async fn an_answer_can_be_late_or_a_page_of_html() {
    let (hetzner, client, _) = cluster().await;
    hetzner.inject(Injection::new("GET", "/networks", Answer::Late(ACTION)));
    let before = Instant::now();
    assert_eq!(client.get("/networks").await.status, 200);
    assert!(before.elapsed() >= ACTION);
    hetzner.inject(Injection::new("GET", "/networks", Answer::Page(502)));
    let reply = client.get("/networks").await;
    assert_eq!((reply.status, reply.headers["content-type"].to_str().unwrap()), (502, "text/html"));
    assert!(reply.headers.contains_key("ratelimit-remaining"));
}

#[tokio::test]
async fn the_history_tells_it_all() {
    let (hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    client.get("/networks?name=cluster").await;
    client.post(&add, json!({"destination": "8.8.8.0/24", "gateway": "10.0.0.2"})).await;
    client.post(&add, route()).await;
    let requests = hetzner.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.is_sorted_by_key(|request| request.at));
    assert_eq!((requests[0].method.as_str(), requests[0].query.as_deref()), ("GET", Some("name=cluster")));
    let writes = hetzner.writes();
    assert_eq!((writes[0].status, writes[0].code.as_deref()), (Some(422), Some("invalid_input")));
    assert_eq!((writes[1].status, &writes[1].body, &writes[1].path), (Some(201), &Some(route()), &add));
    hetzner.clear_requests();
    assert!(hetzner.requests().is_empty());
}

#[tokio::test]
async fn waiting_in_vain_says_what_for() {
    let (hetzner, _, _) = cluster().await;
    let error = hetzner.wait_until("a miracle", Duration::ZERO, |_| false).await.unwrap_err().to_string();
    assert!(error.contains("a miracle") && error.contains("cluster"), "{error}");
}
