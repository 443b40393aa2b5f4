//! Routes, their constraints, and the actions that change them.

use crate::hetzner::client::{ACTION, cluster};
use e2e::hetzner::{ActionFailure, NewNetwork};
use e2e::wait::TIMEOUT;
use serde_json::{Value, json};
use std::time::Duration;

fn default_via(gateway: &str) -> Value {
    json!({"destination": "0.0.0.0/0", "gateway": gateway})
}

#[tokio::test]
async fn route_is_listed_once_its_action_has_succeeded() {
    let (hetzner, client, id) = cluster().await;
    hetzner.set_action_duration(Duration::from_secs(3600));
    let add = format!("/networks/{id}/actions/add_route");
    let reply = client.post(&add, default_via("10.0.0.2")).await;
    assert_eq!(reply.status, 201);
    let action = &reply.body["action"];
    assert_eq!((&action["command"], &action["status"]), (&json!("add_route"), &json!("running")));
    assert_eq!(action["resources"], json!([{"id": id, "type": "network"}]));
    assert_eq!((&action["finished"], &action["error"]["code"]), (&Value::Null, &json!("action_failed")));
    assert!(action["progress"].as_u64().unwrap() < 100);
    let path = format!("/networks/{id}");
    assert_eq!(client.get(&path).await.body["network"]["routes"], json!([]));

    hetzner.finish_actions();
    let done = client.finished(&reply).await;
    assert_eq!(
        (&done["status"], &done["progress"], &done["error"]),
        (&json!("success"), &json!(100), &Value::Null)
    );
    assert!(done["finished"].is_string());
    assert_eq!(client.get(&path).await.body["network"]["routes"], json!([default_via("10.0.0.2")]));
}

#[tokio::test]
async fn progress_grows_while_the_action_runs() {
    let (hetzner, client, id) = cluster().await;
    // It runs until the progress was seen, also on a busy machine.
    hetzner.set_action_duration(Duration::from_secs(30));
    let reply = client.post(&format!("/networks/{id}/actions/add_route"), default_via("10.0.0.2")).await;
    let path = format!("/actions/{}", reply.body["action"]["id"]);
    let mut seen = vec![0];
    while seen.last().is_some_and(|progress| *progress < 5) {
        seen.push(client.get(&path).await.body["action"]["progress"].as_u64().unwrap());
        tokio::time::sleep(ACTION).await;
    }
    assert!(seen.is_sorted() && seen.iter().all(|progress| *progress < 90), "{seen:?}");
    hetzner.finish_actions();
    hetzner.wait_until("the route", TIMEOUT, |w| w.networks[&id].default_gateway().is_some()).await.unwrap();
}

#[tokio::test]
async fn routes_against_the_rules_of_the_api_are_refused() {
    let (hetzner, client, id) = cluster().await;
    hetzner.set_route(id, "10.0.5.0/24".parse().unwrap(), Some("10.0.0.5".parse().unwrap())).unwrap();
    let add = format!("/networks/{id}/actions/add_route");
    let overlaps = "network route destination overlaps with another subnetwork or network route";
    let outside = "network route gateway not part of the network IP range (10.0.0.0/16)";
    for (destination, gateway, message) in [
        ("10.0.0.0/25", "10.0.0.2", overlaps),
        ("10.0.0.0/8", "10.0.0.2", overlaps),
        ("10.0.5.0/24", "10.0.0.2", overlaps),
        ("10.0.5.128/25", "10.0.0.2", overlaps),
        ("10.0.4.0/23", "10.0.0.2", overlaps),
        ("172.16.0.0/12", "10.0.0.2", overlaps),
        ("172.31.1.1/32", "10.0.0.2", overlaps),
        ("0.0.0.0/0", "192.168.0.2", outside),
        ("0.0.0.0/0", "203.0.113.7", outside),
        ("0.0.0.0/0", "10.0.0.1", "invalid gateway"),
        ("0.0.0.0/0", "172.31.1.1", "invalid gateway"),
        ("0.0.0.0/0", "10.0.9.7", "invalid gateway"),
    ] {
        let reply = client.post(&add, json!({"destination": destination, "gateway": gateway})).await;
        assert_eq!(
            (reply.status, reply.code(), reply.message()),
            (422, "invalid_input", message),
            "{destination}"
        );
    }
    for (destination, gateway, field) in [
        ("8.8.8.0/24", "10.0.0.2", "destination"),
        ("0.0.0.0/1", "10.0.0.2", "destination"),
        ("10.1.2.3/24", "10.0.0.2", "destination"),
        ("::/0", "10.0.0.2", "destination"),
        ("0.0.0.0/0", "fd00::2", "gateway"),
    ] {
        let reply = client.post(&add, json!({"destination": destination, "gateway": gateway})).await;
        assert_eq!(reply.body["error"]["details"]["fields"][0]["name"], field, "{destination}");
    }
    assert_eq!(hetzner.project().networks[&id].routes.len(), 1, "nothing was added");
    assert!(hetzner.project().actions.is_empty(), "no action was accepted");
}

#[tokio::test]
async fn default_route_is_allowed_next_to_pod_routes() {
    let (hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    for pods in ["10.244.0.0/24", "10.244.1.0/24", "192.168.7.0/24"] {
        client.finished(&client.post(&add, json!({"destination": pods, "gateway": "10.0.0.2"})).await).await;
    }
    client.finished(&client.post(&add, default_via("10.0.0.2")).await).await;
    client
        .finished(&client.post(&add, json!({"destination": "10.244.2.0/24", "gateway": "10.0.0.2"})).await)
        .await;
    assert_eq!(hetzner.project().networks[&id].routes.len(), 5);
    let reply = client.post(&add, default_via("10.0.0.3")).await;
    assert!(reply.message().contains("overlaps"), "no second default route: {:?}", reply.body);
}

#[tokio::test]
async fn route_is_deleted_by_destination_and_gateway() {
    let (hetzner, client, id) = cluster().await;
    hetzner.set_route(id, "0.0.0.0/0".parse().unwrap(), Some("10.0.0.2".parse().unwrap())).unwrap();
    let delete = format!("/networks/{id}/actions/delete_route");
    let reply = client.post(&delete, default_via("10.0.0.3")).await;
    assert_eq!((reply.status, reply.code()), (404, "not_found"));
    hetzner.set_action_duration(Duration::from_secs(3600));
    let reply = client.post(&delete, default_via("10.0.0.2")).await;
    assert!(hetzner.default_gateway(id).is_some(), "still there while the action runs");
    hetzner.finish_actions();
    assert_eq!(client.finished(&reply).await["status"], "success");
    assert_eq!(hetzner.default_gateway(id), None);
    assert_eq!(client.post(&delete, default_via("10.0.0.2")).await.code(), "not_found");
}

#[tokio::test]
async fn second_change_of_a_network_conflicts_while_the_first_runs() {
    let (hetzner, client, id) = cluster().await;
    let other = hetzner.add_network(NewNetwork::new("other", "10.1.0.0/16")).unwrap();
    hetzner.set_action_duration(Duration::from_secs(3600));
    client.post(&format!("/networks/{id}/actions/add_route"), default_via("10.0.0.2")).await;
    for (path, body) in [
        (
            format!("/networks/{id}/actions/add_route"),
            json!({"destination": "10.244.0.0/24", "gateway": "10.0.0.2"}),
        ),
        (format!("/networks/{id}/actions/delete_route"), default_via("10.0.0.2")),
    ] {
        let reply = client.post(&path, body).await;
        assert_eq!((reply.status, reply.code()), (409, "conflict"), "{path}");
    }
    let free = client.post(&format!("/networks/{other}/actions/add_route"), default_via("10.1.0.2")).await;
    assert_eq!(free.status, 201);
    hetzner.finish_actions();
    let free = client.post(&format!("/networks/{id}/actions/delete_route"), default_via("10.0.0.2")).await;
    assert_eq!(free.status, 201);
}

#[tokio::test]
async fn route_101_is_refused() {
    let (hetzner, client, id) = cluster().await;
    for n in 0..100 {
        let pods = format!("10.244.{n}.0/24").parse().unwrap();
        hetzner.set_route(id, pods, Some("10.0.0.2".parse().unwrap())).unwrap();
    }
    let reply = client.post(&format!("/networks/{id}/actions/add_route"), default_via("10.0.0.2")).await;
    assert_eq!((reply.status, reply.code()), (403, "resource_limit_exceeded"));
}

#[tokio::test]
async fn failed_action_has_made_its_change_or_not_as_the_test_asks() {
    let (hetzner, client, id) = cluster().await;
    let add = format!("/networks/{id}/actions/add_route");
    hetzner.fail_action(ActionFailure::of("add_route"));
    let failed = client.finished(&client.post(&add, default_via("10.0.0.2")).await).await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("error"), &json!("action_failed")));
    assert_eq!(hetzner.default_gateway(id), None);
    hetzner.fail_action(ActionFailure::of("add_route").acting());
    let failed = client.finished(&client.post(&add, default_via("10.0.0.2")).await).await;
    assert_eq!(failed["status"], "error");
    assert!(hetzner.default_gateway(id).is_some(), "the change was made");
    assert_eq!(hetzner.failures_left(), 0);
}

#[tokio::test]
async fn action_fails_when_another_client_added_the_route_meanwhile() {
    let (hetzner, client, id) = cluster().await;
    hetzner.set_action_duration(Duration::from_secs(3600));
    let reply = client.post(&format!("/networks/{id}/actions/add_route"), default_via("10.0.0.2")).await;
    hetzner.set_route(id, "0.0.0.0/0".parse().unwrap(), Some("10.0.0.3".parse().unwrap())).unwrap();
    hetzner.finish_actions();
    assert_eq!(client.finished(&reply).await["status"], "error");
    assert_eq!(hetzner.default_gateway(id), Some("10.0.0.3".parse().unwrap()));
}

#[tokio::test]
async fn history_has_each_default_route_and_each_forbidden_state() {
    let (hetzner, client, id) = cluster().await;
    hetzner.forbid("a default route to .3", move |env| {
        env.networks.get(&id).and_then(e2e::hetzner::Network::default_gateway)
            == Some("10.0.0.3".parse().unwrap())
    });
    for gateway in ["10.0.0.2", "10.0.0.3"] {
        for command in ["add_route", "delete_route"] {
            let path = format!("/networks/{id}/actions/{command}");
            client.finished(&client.post(&path, default_via(gateway)).await).await;
        }
    }
    let history = hetzner.route_history(id);
    let gateways: Vec<Option<String>> =
        history.iter().map(|change| change.gateway.map(|ip| ip.to_string())).collect();
    assert_eq!(gateways, [None, Some("10.0.0.2".into()), None, Some("10.0.0.3".into()), None]);
    assert!(history.is_sorted_by_key(|change| change.at));
    assert!(history[2].at - history[1].at >= ACTION, "not before the end of its action");
    let violations = hetzner.violations();
    assert_eq!(violations.len(), 1);
    assert_eq!((violations[0].0, violations[0].1.as_str()), (history[3].at, "a default route to .3"));
}
