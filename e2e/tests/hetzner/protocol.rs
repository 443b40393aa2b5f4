//! What holds for every request: tokens, bodies, paths, rate limit, actions as a list; and the program.

use crate::hetzner::client::{Client, cluster};
use e2e::hetzner::RateLimit;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

#[tokio::test]
async fn tokens() {
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
async fn bodies_are_read_strictly() {
    let (_hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    let json = "application/json";
    for (kind, body) in [(json, "{"), (json, "[]"), ("text/plain", "{}"), ("", "{}")] {
        let reply = client.send("POST", &add, kind, body).await.unwrap();
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
    let reply = client.send("POST", &add, "", "").await.unwrap();
    assert_eq!(reply.code(), "invalid_input", "an empty body has no fields");
}

#[tokio::test]
async fn paths_and_methods() {
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
        let reply = client.send(method, path, "", "").await.unwrap();
        assert_eq!((reply.status, reply.code()), (405, "method_not_allowed"), "{method} {path}");
    }
}

#[tokio::test]
async fn every_answer_tells_the_rate_limit() {
    let (hetzner, client, _) = cluster().await;
    for path in ["/networks", "/nowhere"] {
        let reply = client.get(path).await;
        assert_eq!(reply.number("ratelimit-limit"), 3600);
        assert!((3590..3600).contains(&reply.number("ratelimit-remaining")));
    }
    // Slow enough that nothing comes back unseen.
    hetzner.configure(|settings| settings.rate_limit = RateLimit { limit: 10, per_second: 0.01 });
    hetzner.set_rate_limit_left(1);
    let reply = client.get("/networks").await;
    assert_eq!((reply.status, reply.number("ratelimit-remaining")), (200, 0));
    let reply = client.get("/networks").await;
    assert_eq!((reply.status, reply.code()), (429, "rate_limit_exceeded"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let wait = reply.number("ratelimit-reset") - now;
    assert!((990..=1001).contains(&wait), "ten at one in 100 s, not {wait} s");
    hetzner.configure(|settings| settings.rate_limit = RateLimit { limit: 10, per_second: 1000.0 });
    hetzner.set_rate_limit_left(0);
    let refilled = async { while client.get("/networks").await.status != 200 {} };
    tokio::time::timeout(Duration::from_secs(20), refilled).await.expect("the bucket fills again");
}

#[tokio::test]
async fn actions_are_listed_by_id_or_by_resource() {
    let (hetzner, client, id) = cluster().await;
    let reply = client.get("/actions").await;
    assert_eq!((reply.status, reply.code()), (410, "deprecated_api_endpoint"));
    assert!(reply.body["error"]["details"]["announcement"].is_string());
    assert_eq!(client.get("/actions?id=x").await.code(), "invalid_input");

    let mut ids = Vec::new();
    for command in ["add_route", "delete_route", "add_route"] {
        let path = format!("/networks/{id}/actions/{command}");
        let body = json!({"destination": "0.0.0.0/0", "gateway": "10.0.0.2"});
        ids.push(client.finished(&client.post(&path, body).await).await["id"].as_u64().unwrap());
    }
    let found = |body: &Value| -> Vec<u64> {
        body["actions"].as_array().unwrap().iter().map(|action| action["id"].as_u64().unwrap()).collect()
    };
    let path = format!("/actions?id={}&id={}&id=9999&sort=status&sort=id:desc", ids[0], ids[2]);
    assert_eq!(found(&client.get(&path).await.body), [ids[2], ids[0]]);
    let sorted = client.get(&format!("/networks/{id}/actions?sort=command:desc&sort=id")).await.body;
    assert_eq!(found(&sorted), [ids[1], ids[0], ids[2]]);
    assert_eq!(found(&client.get("/networks/actions?status=running").await.body), [0; 0]);
    assert_eq!(found(&client.get("/servers/actions").await.body), [0; 0]);
    assert_eq!(client.get(&format!("/networks/{id}/actions/{}", ids[0])).await.status, 200);
    assert_eq!(client.get(&format!("/servers/actions/{}", ids[0])).await.code(), "not_found");
    hetzner.set_action_duration(Duration::from_secs(3600));
}

#[tokio::test]
async fn the_program_serves_a_state_file() {
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
