//! The generated CRD schema at a real API server.

use e2e::routegc::TestEnv;
use serde_json::json;

#[tokio::test]
async fn the_api_server_rejects_invalid_specs() {
    let env = TestEnv::start().await.unwrap();
    for (more, why) in [
        (json!({ "podCIDRs": ["10.244.1.0/16"] }), "written with its first address"),
        (json!({ "podCIDRs": ["pods"] }), "each must be a network such as"),
        (json!({ "podCIDRs": ["0.0.0.0/0"] }), "prefix length 0"),
        (json!({ "podCIDRs": [] }), "should have at least 1 items"),
        (json!({ "interval": "1s" }), "at least 10s"),
        (json!({ "interval": "soon" }), "should match"),
        (json!({ "routerID": "../networks" }), "should match"),
        (json!({ "routerID": null }), "set exactly one of routerID, routerName and openStackClusterRef"),
        (json!({ "routerName": "nodes" }), "set exactly one of"),
        (json!({ "openStackClusterRef": { "name": "prod" } }), "set exactly one of"),
        (json!({ "routerID": null, "routerName": "" }), "should be at least 1 chars long"),
        (json!({ "routerID": null, "openStackClusterRef": {} }), "openStackClusterRef.name: Required value"),
        (json!({ "identityRef": { "type": "ClusterIdentity", "name": "c" } }), "RouteGC reads Secrets only"),
        (json!({ "nodesFrom": {} }), "exactly one of secretRef and inCluster"),
        (json!({ "nodesFrom": { "inCluster": true, "secretRef": { "name": "x" } } }), "exactly one of"),
        (json!({ "safety": { "confirmations": 0 } }), "greater than or equal to 1"),
    ] {
        // Without validation in the client.
        let error = raw(&env, more.clone()).await.unwrap_err().to_string();
        assert!(error.contains(why), "{more}: {error}");
    }
    env.policy("prod", json!({})).await.unwrap();
    env.policy("named", json!({ "routerID": null, "routerName": "nodes" })).await.unwrap();
    let cluster =
        |name: &str| json!({ "routerID": null, "routerName": null, "openStackClusterRef": { "name": name } });
    env.policy("managed", cluster("prod")).await.unwrap();
    for (name, spec) in [
        ("prod", json!({ "routerID": "other" })),
        ("prod", json!({ "routerID": null, "routerName": "nodes" })),
        ("named", json!({ "routerName": "other" })),
        ("named", cluster("prod")),
        ("managed", cluster("other")),
        ("managed", json!({ "openStackClusterRef": null, "routerID": "other" })),
    ] {
        let error = env.patch(name, json!({ "spec": spec })).await.unwrap_err().to_string();
        assert!(error.contains("are immutable: create another RouteGC"), "{error}");
        env.patch(name, json!({ "spec": { "mode": "Audit" } })).await.unwrap();
    }
    let prod = env.policies().get("prod").await.unwrap();
    assert_eq!(
        (prod.spec.safety.max_removals, prod.spec.identity_ref.cloud_name.as_str()),
        (10, "openstack")
    );
}

async fn raw(env: &TestEnv, more: serde_json::Value) -> Result<(), kube::Error> {
    let mut spec = json!({ "identityRef": { "name": "c" }, "routerID": "r", "podCIDRs": ["10.244.0.0/16"] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = json!({ "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC",
        "metadata": { "name": "invalid" }, "spec": spec });
    let path = format!("/apis/routegc.perimeter.dev/v1alpha1/namespaces/{}/routegcs", env.namespace);
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(&object).unwrap()).unwrap();
    env.client.request::<serde_json::Value>(request).await.map(drop)
}
