//! The generated CRD schema at a real API server.

use common::api::routegc::RouteGC;
use e2e::control_plane::ControlPlane;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

#[tokio::test]
async fn the_api_server_rejects_invalid_specs() {
    let control_plane = ControlPlane::shared("routegc").await.unwrap();
    control_plane.serve::<RouteGC>().await.unwrap();
    let namespace = control_plane.namespace("routegc").await.unwrap();
    let policies = Api::<RouteGC>::namespaced(control_plane.client(), &namespace);
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
        let error = create(&policies, "invalid", more.clone()).await.unwrap_err().to_string();
        assert!(error.contains(why), "{more}: {error}");
    }
    create(&policies, "prod", json!({})).await.unwrap();
    create(&policies, "named", json!({ "routerID": null, "routerName": "nodes" })).await.unwrap();
    let cluster =
        |name: &str| json!({ "routerID": null, "routerName": null, "openStackClusterRef": { "name": name } });
    create(&policies, "managed", cluster("prod")).await.unwrap();
    let change = async |name: &str, spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        policies.patch(name, &PatchParams::default(), &patch).await
    };
    for (name, spec) in [
        ("prod", json!({ "routerID": "other" })),
        ("prod", json!({ "routerID": null, "routerName": "nodes" })),
        ("named", json!({ "routerName": "other" })),
        ("named", cluster("prod")),
        ("managed", cluster("other")),
        ("managed", json!({ "openStackClusterRef": null, "routerID": "other" })),
    ] {
        let error = change(name, spec).await.unwrap_err().to_string();
        assert!(error.contains("are immutable: create another RouteGC"), "{error}");
        change(name, json!({ "mode": "Audit" })).await.unwrap();
    }
    let prod = policies.get("prod").await.unwrap();
    assert_eq!(
        (prod.spec.safety.max_removals, prod.spec.identity_ref.cloud_name.as_str()),
        (10, "openstack")
    );
}

/// Without validation in the client: not through our own type.
async fn create(policies: &Api<RouteGC>, name: &str, more: Value) -> Result<(), kube::Error> {
    let mut spec = json!({ "identityRef": { "name": "c" }, "routerID": "r", "podCIDRs": ["10.244.0.0/16"] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = json!({ "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC",
        "metadata": { "name": name }, "spec": spec });
    let request = http::Request::post(policies.resource_url()).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(&object).unwrap()).unwrap();
    policies.clone().into_client().request::<Value>(request).await.map(drop)
}
