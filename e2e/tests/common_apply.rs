//! Server-side apply at a real API server: what it stores as owned fields is what `common::apply` compares with.

use common::apply::{Applied, Conflicts, Error, FieldManager};
use e2e::control_plane::ControlPlane;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::{Value, json};

const OURS: FieldManager = FieldManager::new("ours.perimeter.dev");
const THEIRS: FieldManager = FieldManager::new("theirs.example.com");

async fn services() -> (ControlPlane, Api<Service>) {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let namespace = control_plane.namespace("apply").await.unwrap();
    let api = Api::namespaced(control_plane.client(), &namespace);
    (control_plane, api)
}

/// With the protocol, which would be defaulted: it is one of the keys of the list of ports.
fn service(labels: &Value, port: u16) -> Value {
    json!({
        "metadata": { "name": "a", "labels": labels },
        "spec": {
            "type": "LoadBalancer", "selector": { "app": "a" },
            "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
        },
    })
}

fn written(applied: Applied<Service>) -> Service {
    match applied {
        Applied::Written(service) => service,
        Applied::Unchanged => panic!("no request was made"),
    }
}

#[tokio::test]
async fn an_object_is_written_once_and_again_only_when_a_field_changes_or_goes() {
    let (_control_plane, api) = services().await;
    let apply = async |observed: Option<&Service>, desired: &Value| {
        OURS.apply(&api, observed, desired, Conflicts::Fail).await.unwrap()
    };
    let desired = service(&json!({ "app": "a", "tier": "b" }), 80);
    let first = written(apply(None, &desired).await);
    assert_eq!(apply(Some(&first), &desired).await, Applied::Unchanged);
    // The write that the comparison skips would have changed nothing.
    let repeated = written(apply(None, &desired).await);
    assert_eq!(repeated.metadata.resource_version, first.metadata.resource_version);

    // Another manager's fields are no reason for a request.
    let foreign =
        json!({ "metadata": { "name": "a", "labels": { "foreign": "x" }, "finalizers": ["example.com/x"] } });
    let observed = written(THEIRS.apply(&api, None, &foreign, Conflicts::Fail).await.unwrap());
    assert_eq!(apply(Some(&observed), &desired).await, Applied::Unchanged);

    let fewer = service(&json!({ "app": "a" }), 81);
    let observed = written(apply(Some(&observed), &fewer).await);
    let labels: Vec<_> = observed.metadata.labels.clone().unwrap_or_default().into_keys().collect();
    assert_eq!(labels, ["app", "foreign"], "our removed label is gone, and the foreign one stays");
    let ports: Vec<_> = observed.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).collect();
    assert_eq!(ports.iter().map(|port| port.port).collect::<Vec<_>>(), [81]);
    assert_eq!(apply(Some(&observed), &fewer).await, Applied::Unchanged);

    let mut recreated = fewer.clone();
    recreated["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let error = OURS.apply(&api, Some(&observed), &recreated, Conflicts::Force).await.unwrap_err();
    assert!(matches!(error, Error::Kubernetes { .. }), "{error}");
}

#[tokio::test]
async fn a_conflict_names_the_other_manager_and_force_takes_the_field_over() {
    let (_control_plane, api) = services().await;
    written(THEIRS.apply(&api, None, &service(&json!({ "app": "a" }), 80), Conflicts::Fail).await.unwrap());
    let label = json!({ "metadata": { "name": "a", "labels": { "app": "b" } } });
    let observed = api.get("a").await.unwrap();
    let error = OURS.apply(&api, Some(&observed), &label, Conflicts::Fail).await.unwrap_err();
    assert!(matches!(&error, Error::Conflict { fields, .. } if fields[0].field == ".metadata.labels.app"));
    let text = error.to_string();
    assert!(text.starts_with("cannot apply Service a: ") && text.contains("theirs.example.com"), "{text}");

    let taken = written(OURS.apply(&api, Some(&observed), &label, Conflicts::Force).await.unwrap());
    assert_eq!(taken.metadata.labels.unwrap()["app"], "b");
    let observed = api.get("a").await.unwrap();
    assert_eq!(
        OURS.apply(&api, Some(&observed), &label, Conflicts::Force).await.unwrap(),
        Applied::Unchanged
    );
}

#[tokio::test]
async fn a_status_is_written_only_where_it_differs() {
    let (_control_plane, api) = services().await;
    let observed =
        written(OURS.apply(&api, None, &service(&json!({ "app": "a" }), 80), Conflicts::Fail).await.unwrap());
    let status = |ip: &str| json!({ "metadata": { "name": "a" }, "status": { "loadBalancer": { "ingress": [{ "ip": ip, "ipMode": "VIP" }] } } });
    let apply = async |observed: &Service, ip: &str| {
        OURS.apply_status(&api, Some(observed), &status(ip), Conflicts::Fail).await.unwrap()
    };
    let observed = written(apply(&observed, "192.0.2.1").await);
    assert_eq!(apply(&observed, "192.0.2.1").await, Applied::Unchanged);
    let observed = written(apply(&observed, "192.0.2.2").await);
    assert_eq!(apply(&observed, "192.0.2.2").await, Applied::Unchanged);
    let labels =
        OURS.apply(&api, Some(&observed), &service(&json!({ "app": "a" }), 80), Conflicts::Fail).await;
    assert_eq!(labels.unwrap(), Applied::Unchanged, "the status is no field of the object itself");
}
