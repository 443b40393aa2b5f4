//! Writes to objects of the target. Repeatable: each names the UID, so that another object of the name is never touched.

use kube::Client;
use serde_json::{Value, json};

use crate::error::Error;
use crate::names;
use crate::plan::action::{Object, ObjectKind};

/// Where the API server has it.
fn path(object: &Object) -> String {
    let snapshots = || format!("/apis/snapshot.storage.k8s.io/{}", object.snapshot_api.word());
    let core = || "/api/v1".to_owned();
    let (group, plural) = match object.kind {
        ObjectKind::VolumeSnapshot => (snapshots(), "volumesnapshots"),
        ObjectKind::VolumeSnapshotContent => (snapshots(), "volumesnapshotcontents"),
        ObjectKind::Pod => (core(), "pods"),
        ObjectKind::PersistentVolumeClaim => (core(), "persistentvolumeclaims"),
        ObjectKind::PersistentVolume => (core(), "persistentvolumes"),
        ObjectKind::Service => (core(), "services"),
        ObjectKind::Ingress => ("/apis/networking.k8s.io/v1".to_owned(), "ingresses"),
    };
    match object.namespace.as_str() {
        "" => format!("{group}/{plural}/{}", object.name),
        namespace => format!("{group}/namespaces/{namespace}/{plural}/{}", object.name),
    }
}

/// Deletes it. Gone is done; so is another object in its place, which the next look judges for itself.
///
/// # Errors
/// [`Error::Write`] with the API server's answer.
pub async fn delete(client: &Client, object: &Object) -> Result<(), Error> {
    let mut preconditions = json!({"uid": object.uid});
    if let (Some(version), Some(map)) = (&object.version, preconditions.as_object_mut()) {
        map.insert("resourceVersion".to_owned(), json!(version));
    }
    let body = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions, "propagationPolicy": "Background",
    });
    let request = http::Request::delete(path(object)).header("content-type", "application/json");
    settled(send(client, request, &body).await)
        .map_err(|cause| Error::Write { what: format!("delete {object}"), cause })
}

/// Turns its Retain policy into Delete.
///
/// # Errors
/// [`Error::Write`] with the API server's answer.
pub async fn release(client: &Client, object: &Object) -> Result<(), Error> {
    let spec = match object.kind {
        ObjectKind::VolumeSnapshotContent => json!({"deletionPolicy": "Delete"}),
        _ => json!({"persistentVolumeReclaimPolicy": "Delete"}),
    };
    let body = json!({"metadata": {"uid": object.uid}, "spec": spec});
    let request = http::Request::patch(format!("{}?fieldManager={}", path(object), names::MANAGER))
        .header("content-type", "application/merge-patch+json");
    settled(send(client, request, &body).await)
        .map_err(|cause| Error::Write { what: format!("set the policy of {object}"), cause })
}

/// Sends one request with a JSON body.
///
/// # Errors
/// The API server's answer, or that there was none.
pub async fn send(client: &Client, request: http::request::Builder, body: &Value) -> Result<(), kube::Error> {
    let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    client.request::<serde::de::IgnoredAny>(request).await.map(drop)
}

/// 404: it is gone. 409: it is another one, or has changed since; nothing was done to it.
fn settled(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}
