//! Of every request: tokens, bodies, paths, the rate limit; and the program.

use crate::hetzner::client::{Client, cluster};
use e2e::hetzner::{Hetzner, RateLimit, Settings};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

#[tokio::test]
async fn unknown_token_is_refused_and_readonly_token_cannot_write() {
    let (hetzner, mut client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    client.token = hetzner.readonly_token();
    assert_eq!(client.get("/networks").await.status, 200);
    let reply = client.post(&add, json!({})).await;
    assert_eq!((reply.status, reply.code()), (403, "token_readonly"));
    for unknown in ["", "unknown"] {
        unknown.clone_into(&mut client.token);
        let reply = client.get("/networks").await;
        assert_eq!((reply.status, reply.code()), (401, "unauthorized"), "{unknown}");
    }
}

#[tokio::test]
async fn wrong_missing_and_unknown_fields_are_refused() {
    let (_hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    let json = "application/json";
    for (kind, body) in [(json, "{"), (json, "[]"), ("text/plain", "{}"), ("", "{}")] {
        let reply = client.send("POST", &add, kind, body).await;
        assert_eq!((reply.status, reply.code()), (400, "json_error"), "{kind} {body}");
    }
    let reply = client.post(&add, json!({"destination": 7, "via": "10.0.0.2"})).await;
    assert_eq!((reply.status, reply.code()), (422, "invalid_input"));
    assert_eq!(
        reply.body["error"]["details"]["fields"],
        json!([
            {"name": "destination", "messages": ["Not a valid string."]},
            {"name": "gateway", "messages": ["Missing data for required field."]},
            {"name": "via", "messages": ["Unknown field."]},
        ])
    );
    let reply = client.send("POST", &add, "", "").await;
    assert_eq!(reply.code(), "invalid_input", "an empty body has no fields");
}

#[tokio::test]
async fn unknown_path_is_not_found_and_wrong_method_is_not_allowed() {
    let (_hetzner, client, id) = cluster().await;
    for unknown in ["/", "/volumes", "/networks/99", "/networks/x", "/networks/1/colour", "/actions/99"] {
        let reply = client.get(unknown).await;
        assert_eq!((reply.status, reply.code()), (404, "not_found"), "{unknown}");
    }
    let reply = client.post(&format!("/networks/{id}/actions/paint"), json!({})).await;
    assert_eq!(reply.code(), "not_found");
    for (method, path) in
        [("DELETE", "/networks"), ("PATCH", "/networks/1"), ("GET", "/networks/1/actions/add_route")]
    {
        let reply = client.send(method, path, "", "").await;
        assert_eq!((reply.status, reply.code()), (405, "method_not_allowed"), "{method} {path}");
    }
}

#[tokio::test]
async fn every_response_has_the_rate_limit_and_an_empty_bucket_refuses() {
    let (_hetzner, client, _) = cluster().await;
    for path in ["/networks", "/nowhere"] {
        let reply = client.get(path).await;
        assert_eq!(reply.number("ratelimit-limit"), 3600);
        assert!((3590..3600).contains(&reply.number("ratelimit-remaining")));
    }
    // So slow that no request is added meanwhile.
    let rate_limit = RateLimit { limit: 1, per_second: 0.001 };
    let hetzner = Hetzner::start_with(Settings { rate_limit, ..Settings::default() }).await.unwrap();
    let client = Client::of(&hetzner);
    let reply = client.get("/networks").await;
    assert_eq!((reply.status, reply.number("ratelimit-remaining")), (200, 0));
    let reply = client.get("/networks").await;
    assert_eq!((reply.status, reply.code()), (429, "rate_limit_exceeded"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let wait = reply.number("ratelimit-reset") - now;
    assert!((900..=1001).contains(&wait), "one in 1000 s, not {wait} s");
}

#[tokio::test]
async fn actions_are_listed_by_id_only() {
    let (_hetzner, client, id) = cluster().await;
    let reply = client.get("/actions").await;
    assert_eq!((reply.status, reply.code()), (410, "deprecated_api_endpoint"));
    assert!(reply.body["error"]["details"]["announcement"].is_string());
    assert_eq!(client.get("/actions?id=x").await.code(), "invalid_input");
    let mut ids = Vec::new();
    for command in ["add_route", "delete_route", "add_route"] {
        let path = format!("/networks/{id}/actions/{command}");
        let body = json!({"destination": "0.0.0.0/0", "gateway": "10.0.0.2"});
        ids.push(client.finished(&client.post(&path, body).await).await["id"].clone());
    }
    let body = client.get(&format!("/actions?id={}&id={}&id=9999", ids[0], ids[2])).await.body;
    let found: Vec<&Value> = body["actions"].as_array().unwrap().iter().map(|action| &action["id"]).collect();
    assert_eq!(found, [&ids[0], &ids[2]]);
}

#[tokio::test]
async fn history_has_each_request_with_its_result() {
    let (hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    let route = json!({"destination": "0.0.0.0/0", "gateway": "10.0.0.2"});
    client.get("/networks?name=cluster").await;
    client.post(&add, json!({"destination": "8.8.8.0/24", "gateway": "10.0.0.2"})).await;
    client.post(&add, route.clone()).await;
    let requests = hetzner.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.is_sorted_by_key(|request| request.at));
    assert_eq!((requests[0].method.as_str(), requests[0].query.as_deref()), ("GET", Some("name=cluster")));
    let writes = hetzner.writes();
    assert_eq!((writes[0].status, writes[0].code.as_deref()), (Some(422), Some("invalid_input")));
    assert_eq!((writes[1].status, &writes[1].body, &writes[1].path), (Some(201), &Some(route), &add));
    hetzner.clear_requests();
    assert!(hetzner.requests().is_empty());
}

#[tokio::test]
async fn program_serves_the_state_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(
        b"networks: [{name: cluster, ip_range: 10.0.0.0/16, routes: {0.0.0.0/0: 10.0.0.2}}]\n\
          servers: [{id: 42, name: a, private_net: {cluster: 10.0.0.2}}]\n\
          floating_ips: [{name: egress, ip: 198.51.100.7, server: a, labels: {pool: egress}}]\n",
    )
    .unwrap();
    let program = e2e::program::built("hetzner").unwrap();
    let mut child = Command::new(&program)
        .args(["--listen", "127.0.0.1:0", "--action-duration", "10ms", "--state"])
        .arg(file.path())
        .env("HCLOUD_TOKEN", "secret")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let client = Client::at(url.trim(), "secret");
    let servers = client.get("/servers").await.body;
    let network = client.get("/networks?name=cluster").await.body["networks"][0].clone();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(servers["servers"][0]["id"], 42);
    assert_eq!(network["routes"][0]["gateway"], "10.0.0.2");

    file.write_all(b"colour: red\n").unwrap();
    let refused = Command::new(&program).arg("--state").arg(file.path()).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("colour"), "{text}");
}
