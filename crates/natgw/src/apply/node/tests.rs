use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::{Action, NodeRef, check, content, names, nodes};
use crate::config::Config;
use crate::observe::snapshot::{self, Server};
use crate::task::{Kind, Task};

/// An API server that has this one Node, or none.
fn client(node: Option<Value>) -> kube::Client {
    let items: Vec<Value> = node.into_iter().collect();
    let service = tower::service_fn(move |request: Request<Body>| {
        assert!(request.uri().query().unwrap().contains("metadata.name%3Dnode-1"), "{}", request.uri());
        let list = json!({ "apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": items });
        async move { Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes()))) }
    });
    kube::Client::new(service, "default")
}

fn config() -> Config {
    Config::new(serde_yaml::from_str("network: lan").unwrap()).unwrap()
}

fn node(uid: &str, version: &str, cordoned: bool) -> Value {
    json!({
        "metadata": { "name": "node-1", "uid": uid, "resourceVersion": version,
            "labels": { "natgw.perimeter.dev/floating-ip": "198.51.100.1" },
            "annotations": { "natgw.perimeter.dev/nat-gateway": "198.51.100.1", "other": version } },
        "spec": { "providerID": "hcloud://7", "unschedulable": cordoned },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

/// As the plan had it.
fn seen() -> snapshot::Node {
    let node = serde_json::from_value(node("uid-1", "7", false)).unwrap();
    let server = Server::Cloud { id: 7, private_ip: Some([10, 0, 0, 2].into()) };
    nodes::read(&config(), &node, |_, _| server).unwrap()
}

#[tokio::test]
async fn a_route_follows_only_a_node_that_is_as_the_decision_had_it() {
    let decided = NodeRef { name: "node-1".into(), uid: "uid-1".into(), resource_version: "7".into() };
    for (found, so) in [
        (Some(node("uid-1", "7", false)), true),
        // Cordoned behind the cache's back, say.
        (Some(node("uid-1", "8", true)), false),
        (Some(node("uid-2", "7", false)), false),
        (None, false),
    ] {
        let result = check(&client(found.clone()), &config(), &decided, Some(&seen()), "7").await;
        assert_eq!(result.is_ok(), so, "{found:?}: {result:?}");
        assert!(
            result.err().is_none_or(|error| error.is_outdated()),
            "the next reconciliation decides again"
        );
    }
}

#[tokio::test]
async fn defect_30_a_write_that_changes_nothing_for_the_decision_does_not_stop_the_move() {
    let decided = NodeRef { name: "node-1".into(), uid: "uid-1".into(), resource_version: "7".into() };
    let newer = client(Some(node("uid-1", "8", false)));
    let version = check(&newer, &config(), &decided, Some(&seen()), "7").await.unwrap();
    assert_eq!(version, "8", "the next write to the Node carries it");
    // After a write of this plan, the Node is no longer as in the Snapshot, and its version is that of this write.
    let own = client(Some(node("uid-1", "9", true)));
    assert!(check(&own, &config(), &decided, Some(&seen()), "9").await.is_ok());
}

#[test]
fn the_private_address_of_a_setup_is_recorded_and_removed_with_it() {
    let node = NodeRef { name: "node-1".into(), uid: "uid-1".into(), resource_version: "7".into() };
    let task = |kind| Task { kind, ip: [198, 51, 100, 1].into() };
    let recorded = |action: &Action| {
        let content = content(&config(), action).unwrap();
        content["annotations"].get(names::PRIVATE_IP_ANNOTATION).cloned()
    };
    let setup = Action::RecordSetup {
        node: node.clone(),
        task: task(Kind::Setup),
        boot_id: "boot".into(),
        private_ip: Some([10, 0, 0, 2].into()),
        hash: "hash".into(),
    };
    assert_eq!(recorded(&setup), Some(json!("10.0.0.2")));
    let teardown = Action::RecordTeardown { node: node.clone(), task: task(Kind::Teardown) };
    for action in [teardown, Action::Forget { node }] {
        assert_eq!(recorded(&action), Some(Value::Null), "null removes it: {action}");
    }
}
