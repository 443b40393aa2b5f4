//! `cloud::hcloud` against a small server that accepts exactly what the API accepts: every call, paging while the list changes,
//! routes and their actions, and error messages.
#![cfg(feature = "hcloud")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::cloud::hcloud::{Code, Error, Hcloud, Retry, Route, Token};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use prometheus::Registry;
use serde_json::{Value, json};

const TOKEN: &str = "project-token";

/// One project with one network, 4711.
struct Project {
    servers: Vec<u64>,
    routes: Vec<Value>,
    floating_ips: Vec<Value>,
    /// Actions run for this many polls before they succeed.
    polls: u32,
    running: Vec<(u64, u32)>,
    /// Requests as `GET /servers?page=1`, in order.
    log: Vec<String>,
    /// Called after each page of servers has been made.
    after_page: fn(&mut Project),
    /// Changes what a page says of itself.
    twist: fn(&mut Value),
    /// Status and body of the responses to the next changes of a route, last one first. These changes are not made.
    refusals: Vec<(u16, Value)>,
    /// No action is found again: the list is null, as some write one with nothing in it.
    forgetful: bool,
}

type Shared = Arc<Mutex<Project>>;

async fn start() -> (Hcloud, Shared) {
    start_with(TOKEN).await
}

async fn start_with(token: &str) -> (Hcloud, Shared) {
    let project = Shared::new(Mutex::new(Project {
        servers: vec![1, 2],
        routes: Vec::new(),
        floating_ips: Vec::new(),
        polls: 1,
        running: Vec::new(),
        log: Vec::new(),
        after_page: |_| {},
        twist: |_| {},
        refusals: Vec::new(),
        forgetful: false,
    }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1", listener.local_addr().unwrap());
    let served = project.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let project = served.clone();
            let service = hyper::service::service_fn(move |request| handle(project.clone(), request));
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    let token = Token::new(token).unwrap();
    (Hcloud::new(&endpoint, token, "perimeter-test/1", &Registry::new()).unwrap(), project)
}

async fn handle(project: Shared, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut project = project.lock().unwrap();
    let path = head.uri.path_and_query().unwrap().as_str().strip_prefix("/v1").unwrap().to_owned();
    project.log.push(format!("{} {path}", head.method));
    let (status, json) = if head.headers.get("authorization").is_none_or(|v| v != &format!("Bearer {TOKEN}"))
    {
        refuse(401, "unauthorized", "unable to authenticate")
    } else {
        project.response(head.method.as_str(), &path, &body)
    };
    let response = Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("RateLimit-Limit", "3600")
        .header("RateLimit-Remaining", "3599")
        .header("RateLimit-Reset", "1731011315");
    Ok(response.body(Full::from(json.to_string())).unwrap())
}

fn refuse(status: u16, code: &str, message: &str) -> (u16, Value) {
    (status, json!({"error": {"code": code, "message": message, "details": null}}))
}

impl Project {
    fn response(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if method == "POST"
            && let Some(refusal) = self.refusals.pop()
        {
            return refusal;
        }
        match (method, path, query) {
            ("GET", "/actions", _) if self.forgetful => (200, json!({"actions": null})),
            ("GET", "/servers", query) => {
                let servers = self.servers.iter().map(|id| server(*id)).collect();
                let page = self.page("servers", servers, query, "sort=id%3Aasc");
                (self.after_page)(self);
                page
            }
            ("GET", "/servers/1", "") => (200, json!({"server": server(1)})),
            ("GET", "/networks/4711", "") => (200, json!({"network": self.network()})),
            ("GET", "/networks", query) if query.starts_with("name=my%20net%26work&") => {
                self.page("networks", vec![self.network()], query, "name=my%20net%26work")
            }
            ("GET", "/networks", query) => self.page("networks", Vec::new(), query, "name=missing"),
            ("GET", "/floating_ips", query) => {
                let all = self.floating_ips.clone();
                match query.contains("label_selector") {
                    true => self.page(
                        "floating_ips",
                        all,
                        query,
                        "sort=id%3Aasc&label_selector=pool%3D%3Da%2C%21old",
                    ),
                    false => self.page("floating_ips", all, query, "sort=id%3Aasc"),
                }
            }
            ("GET", "/actions", query) => {
                let id: u64 = query.strip_prefix("id=").unwrap().parse().unwrap();
                let running = self.running.iter_mut().find(|(running, _)| *running == id).unwrap();
                let status = if running.1 == 0 { "success" } else { "running" };
                running.1 = running.1.saturating_sub(1);
                (
                    200,
                    json!({"actions": [{"id": id, "command": "add_route", "status": status, "error": null}]}),
                )
            }
            ("POST", "/networks/4711/actions/add_route", "") => {
                let route: Value = serde_json::from_slice(body).unwrap();
                if self.routes.iter().any(|other| other["destination"] == route["destination"]) {
                    let message =
                        "network route destination overlaps with another subnetwork or network route";
                    return refuse(422, "invalid_input", message);
                }
                self.routes.push(route);
                self.action("add_route")
            }
            ("POST", "/networks/4711/actions/delete_route", "") => {
                let route: Value = serde_json::from_slice(body).unwrap();
                let Some(at) = self.routes.iter().position(|other| *other == route) else {
                    return refuse(404, "not_found", "network route not found");
                };
                self.routes.remove(at);
                self.action("delete_route")
            }
            _ => refuse(404, "not_found", &format!("{path} not found")),
        }
    }

    fn network(&self) -> Value {
        json!({"id": 4711, "name": "my net&work", "ip_range": "10.0.0.0/16", "routes": self.routes, "servers": self.servers,
            "subnets": [{"type": "cloud", "ip_range": "10.0.1.0/24", "network_zone": "eu-central", "gateway": "10.0.0.1"}]})
    }

    fn action(&mut self, command: &str) -> (u16, Value) {
        let id = 100 + self.running.len() as u64;
        self.running.push((id, self.polls));
        let error = json!({"code": "action_failed", "message": "Action failed"});
        (
            201,
            json!({"action": {"id": id, "command": command, "status": "running", "progress": 0, "error": error,
            "started": "2026-01-01T00:00:00+00:00", "finished": null, "resources": [{"id": 4711, "type": "network"}]}}),
        )
    }

    /// A page of 50, if exactly `filter` and the page were asked for.
    fn page(&self, name: &str, items: Vec<Value>, query: &str, filter: &str) -> (u16, Value) {
        let Some(page) =
            query.strip_prefix(&format!("{filter}&page=")).and_then(|rest| rest.strip_suffix("&per_page=50"))
        else {
            return refuse(400, "invalid_input", &format!("invalid query {query}"));
        };
        let page: usize = page.parse().unwrap();
        let last = items.len().div_ceil(50).max(1);
        let mut meta = json!({"page": page, "per_page": 50, "last_page": last, "total_entries": items.len(),
            "previous_page": (page > 1).then(|| page - 1), "next_page": (page < last).then_some(page + 1)});
        (self.twist)(&mut meta);
        let items: Vec<&Value> = items.iter().skip((page - 1) * 50).take(50).collect();
        (200, json!({name: items, "meta": {"pagination": meta}}))
    }
}

fn server(id: u64) -> Value {
    json!({"id": id, "name": format!("node-{id}"), "status": "running", "public_net": {"ipv4": null}, "private_net": [
        {"network": 9, "ip": format!("10.9.0.{}", id % 250 + 2), "alias_ips": []},
        {"network": 4711, "ip": format!("10.0.1.{}", id % 250 + 2), "alias_ips": ["10.0.1.254"], "mac_address": "86:00:00:00:00:01"}]})
}

fn log(project: &Shared) -> Vec<String> {
    std::mem::take(&mut project.lock().unwrap().log)
}

#[tokio::test]
async fn a_route_is_moved_as_a_controller_moves_it() {
    let (hcloud, project) = start().await;
    let (old, new) =
        (Route::default_via(Ipv4Addr::new(10, 0, 1, 3)), Route::default_via(Ipv4Addr::new(10, 0, 1, 4)));
    let action = hcloud.add_route(4711, &old).await.unwrap();
    assert_eq!(action.failure(), None, "the error of a running action means nothing");
    hcloud.wait(&action).await.unwrap();
    assert_eq!(project.lock().unwrap().routes, [json!({"destination": "0.0.0.0/0", "gateway": "10.0.1.3"})]);

    let error = hcloud.add_route(4711, &new).await.unwrap_err();
    assert_eq!((error.code(), error.retry()), (Some(&Code::InvalidInput), Retry::Never));
    assert!(error.to_string().contains("add route 0.0.0.0/0 via 10.0.1.4 to network 4711"), "{error}");
    assert!(error.to_string().contains("overlaps with another"), "{error}");

    let error = hcloud.delete_route(4711, &new).await.unwrap_err();
    assert_eq!(error.code(), Some(&Code::NotFound));

    hcloud.wait(&hcloud.delete_route(4711, &old).await.unwrap()).await.unwrap();
    hcloud.wait(&hcloud.add_route(4711, &new).await.unwrap()).await.unwrap();
    let network = hcloud.network(4711).await.unwrap();
    assert_eq!(network.default_route(), Some(&new));
    assert_eq!(network.gateway(), Ipv4Addr::new(10, 0, 0, 1));
}

#[tokio::test]
async fn an_unknown_error_code_counts_as_its_status() {
    let (hcloud, project) = start().await;
    let route = Route::default_via(Ipv4Addr::new(10, 0, 1, 3));
    for (status, retry) in
        [(409, Retry::Soon), (423, Retry::Soon), (500, Retry::Soon), (400, Retry::Never), (404, Retry::Never)]
    {
        project.lock().unwrap().refusals.push(refuse(status, "of_tomorrow", "not now"));
        let error = hcloud.add_route(4711, &route).await.unwrap_err();
        assert_eq!(error.retry(), retry, "{status}");
        assert_eq!(error.code(), Some(&Code::Other("of_tomorrow".to_owned())));
    }
    project.lock().unwrap().refusals.push(refuse(429, "of_tomorrow", "too many"));
    let error = hcloud.add_route(4711, &route).await.unwrap_err();
    assert!(matches!(error.retry(), Retry::After(_)), "{error}");
}

#[tokio::test]
async fn an_action_in_an_empty_list_is_missing() {
    let (hcloud, project) = start().await;
    project.lock().unwrap().forgetful = true;
    let action = hcloud.add_route(4711, &Route::default_via(Ipv4Addr::new(10, 0, 1, 3))).await.unwrap();
    let error = hcloud.wait(&action).await.unwrap_err();
    assert!(matches!(error, Error::ActionMissing { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Soon);
}

#[tokio::test]
async fn networks_and_servers_are_read() {
    let (hcloud, project) = start().await;
    assert_eq!(hcloud.network_by_name("my net&work").await.unwrap(), hcloud.network(4711).await.unwrap());
    let error = hcloud.network_by_name("missing").await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }) && error.code() == Some(&Code::NotFound));
    assert!(error.to_string().starts_with("look up network \"missing\": no object has this name"), "{error}");

    let server = hcloud.server(1).await.unwrap();
    assert_eq!((server.name.as_str(), server.private_ip(4711)), ("node-1", Some(Ipv4Addr::new(10, 0, 1, 3))));
    assert_eq!(hcloud.servers().await.unwrap().len(), 2);
    let error = hcloud.server(404).await.unwrap_err();
    assert_eq!((error.code(), error.retry()), (Some(&Code::NotFound), Retry::Never));
    let gone = log(&project).iter().filter(|line| line.as_str() == "GET /servers/404").count();
    assert_eq!(gone, 1, "what is gone is asked for once");
}

#[tokio::test]
async fn floating_ips_are_listed_by_label() {
    let (hcloud, project) = start().await;
    project.lock().unwrap().floating_ips = vec![
        json!({"id": 1, "name": "egress", "ip": "198.51.100.7", "type": "ipv4", "server": 1, "blocked": false, "labels": {"pool": "a"}}),
        json!({"id": 2, "name": "six", "ip": "2001:db8::/64", "type": "ipv6", "server": null, "labels": {}}),
    ];
    for selector in [None, Some("pool==a,!old")] {
        let ips = hcloud.floating_ips(selector).await.unwrap();
        assert_eq!((ips[0].ipv4(), ips[0].server), (Some(Ipv4Addr::new(198, 51, 100, 7)), Some(1)));
        assert_eq!((ips[1].ipv4(), ips[1].server), (None, None));
    }
}

#[tokio::test]
async fn a_long_list_takes_one_request_a_page() {
    let (hcloud, project) = start().await;
    for (length, pages) in [(0, 1), (50, 1), (51, 2), (120, 3)] {
        project.lock().unwrap().servers = (1..=length).collect();
        let ids: Vec<u64> = hcloud.servers().await.unwrap().iter().map(|server| server.id).collect();
        assert_eq!(ids, (1..=length).collect::<Vec<_>>());
        assert_eq!(log(&project).len(), pages, "{length}");
    }
}

#[tokio::test]
async fn a_list_that_shrinks_between_two_pages_is_read_again() {
    let (hcloud, project) = start().await;
    {
        let mut project = project.lock().unwrap();
        project.servers = (1..=120).collect();
        project.after_page = |project| project.servers.retain(|id| *id != 7);
    }
    // Without the second reading, server 51 moves to the page that was read already, and is lost.
    let ids: Vec<u64> = hcloud.servers().await.unwrap().iter().map(|server| server.id).collect();
    assert_eq!(ids, (1..=120).filter(|id| *id != 7).collect::<Vec<_>>());
    assert_eq!(log(&project).len(), 2 + 3);
}

#[tokio::test]
async fn a_list_that_changes_during_every_read_is_an_error() {
    let (hcloud, project) = start().await;
    {
        let mut project = project.lock().unwrap();
        project.servers = (1..=120).collect();
        project.after_page = |project| project.servers = project.servers.split_off(1);
    }
    let error = hcloud.servers().await.unwrap_err();
    assert!(matches!(error, Error::Partial { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::Soon);
    assert!(error.to_string().starts_with("list servers: the list was incomplete in 3 reads: "), "{error}");
    assert_eq!(log(&project).len(), 3 * 2);
}

#[tokio::test]
async fn inconsistent_pages_are_an_error() {
    let twists: [fn(&mut Value); 4] = [
        |meta| meta["total_entries"] = json!(121),
        |meta| meta["next_page"] = json!(1),
        |meta| (meta["next_page"], meta["last_page"]) = (json!(null), json!(null)),
        |meta| meta["next_page"] = json!(meta["page"].as_u64().unwrap() + 2),
    ];
    for twist in twists {
        let (hcloud, project) = start().await;
        {
            let mut project = project.lock().unwrap();
            project.servers = (1..=120).collect();
            project.twist = twist;
        }
        let end = hcloud.servers().await;
        assert!(matches!(end, Err(Error::Partial { .. })), "{end:?}");
        assert!(log(&project).len() <= 9);
    }
}

#[tokio::test]
async fn last_page_also_announces_further_pages() {
    let (hcloud, project) = start().await;
    {
        let mut project = project.lock().unwrap();
        project.servers = (1..=120).collect();
        project.twist = |meta| meta["next_page"] = json!(null);
    }
    assert_eq!(hcloud.servers().await.unwrap().len(), 120);
    assert_eq!(log(&project).len(), 3);
}

#[tokio::test]
async fn a_wrong_token_is_reported_and_not_shown() {
    let (hcloud, project) = start_with("wr0ng-t0ken").await;
    let error = hcloud.network(4711).await.unwrap_err();
    assert_eq!((error.code(), error.retry()), (Some(&Code::Unauthorized), Retry::Never));
    assert!(error.to_string().contains("check the Secret that holds it"), "{error}");
    assert!(!format!("{error} {error:?} {hcloud:?}").contains("wr0ng"));
    assert_eq!(log(&project).len(), 1);
}

#[tokio::test]
async fn calls_can_be_moved_to_another_thread() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let (hcloud, _project) = start().await;
    is_send(hcloud.servers()).await.unwrap();
    let action = is_send(hcloud.add_route(4711, &Route::default_via([10, 0, 1, 3].into()))).await.unwrap();
    is_send(hcloud.wait(&action)).await.unwrap();
}

#[test]
fn an_invalid_configuration_is_refused_at_the_start() {
    let new = |endpoint: &str, registry: &Registry| {
        Hcloud::new(endpoint, Token::new(TOKEN).unwrap(), "perimeter-test/1", registry)
    };
    let registry = Registry::new();
    let error = new("http://api.hetzner.cloud/v1", &registry).unwrap_err();
    assert!(matches!(error, Error::Setup(_)) && error.retry() == Retry::Never);
    assert!(error.to_string().contains("unencrypted"), "{error}");
    new("http://127.0.0.1:1/v1", &registry).unwrap();
    let error = new("http://127.0.0.1:1/v1", &registry).unwrap_err();
    assert!(error.to_string().contains("metrics"), "{error}");
}
