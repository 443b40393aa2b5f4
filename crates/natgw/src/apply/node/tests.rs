use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::{NodeRef, unchanged};

/// An API server that has this one Node, or none.
fn client(node: Option<Value>) -> kube::Client {
    let items: Vec<Value> = node.into_iter().map(|metadata| json!({ "metadata": metadata })).collect();
    let service = tower::service_fn(move |request: Request<Body>| {
        assert!(request.uri().query().unwrap().contains("metadata.name%3Dnode-1"), "{}", request.uri());
        let list = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items
        });
        async move { Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes()))) }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_route_follows_only_a_node_that_is_as_the_decision_had_it() {
    let decided = NodeRef { name: "node-1".into(), uid: "uid-1".into(), resource_version: "7".into() };
    let node =
        |uid: &str, version: &str| Some(json!({ "name": "node-1", "uid": uid, "resourceVersion": version }));
    for (found, so) in [
        (node("uid-1", "7"), true),
        // Cordoned behind the cache's back, say.
        (node("uid-1", "8"), false),
        (node("uid-2", "7"), false),
        (None, false),
    ] {
        let result = unchanged(&client(found.clone()), &decided, "7").await;
        assert_eq!(result.is_ok(), so, "{found:?}: {result:?}");
        assert!(
            result.err().is_none_or(|error| error.is_outdated()),
            "the next reconciliation decides again"
        );
    }
}
