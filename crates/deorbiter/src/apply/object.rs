//! Writes to objects of the target. Idempotent: each request carries the UID, so that another object of the same name is never touched.

use kube::Client;
use serde_json::{Value, json};

use crate::error::Error;
use crate::names;
use crate::plan::action::{Object, ObjectKind};

/// Its path in the API.
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

/// Deletes this version of it. An object that is gone counts as deleted.
///
/// # Errors
/// [`Error::Changed`] where the object has changed or is another one; [`Error::Write`] with the API server's response.
pub async fn delete(client: &Client, object: &Object) -> Result<(), Error> {
    let deleted = delete_version(client, &path(object), &object.uid, &object.version).await;
    settled(|| format!("delete {object}"), deleted)
}

/// Deletes an object if it still has this UID and this resourceVersion.
///
/// # Errors
/// The API server's response, or that there was none.
pub async fn delete_version(
    client: &Client,
    path: &str,
    uid: &str,
    resource_version: &str,
) -> Result<(), kube::Error> {
    let body = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": uid, "resourceVersion": resource_version},
    });
    let request = http::Request::delete(path).header("content-type", "application/json");
    send(client, request, &body).await
}

/// Changes its policy from Retain to Delete.
///
/// # Errors
/// As [`delete`].
pub async fn release(client: &Client, object: &Object) -> Result<(), Error> {
    let spec = match object.kind {
        ObjectKind::VolumeSnapshotContent => json!({"deletionPolicy": "Delete"}),
        _ => json!({"persistentVolumeReclaimPolicy": "Delete"}),
    };
    let body = json!({"metadata": {"uid": object.uid}, "spec": spec});
    let request = http::Request::patch(format!("{}?fieldManager={}", path(object), names::MANAGER))
        .header("content-type", "application/merge-patch+json");
    settled(|| format!("set the policy of {object}"), send(client, request, &body).await)
}

/// Sends one request with a JSON body.
///
/// # Errors
/// The API server's response, or that there was none.
pub async fn send(client: &Client, request: http::request::Builder, body: &Value) -> Result<(), kube::Error> {
    let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    client.request::<serde::de::IgnoredAny>(request).await.map(drop)
}

/// 404: it is gone. 409: it has another UID, or has changed since; nothing was done to it.
pub fn settled(what: impl FnOnce() -> String, result: Result<(), kube::Error>) -> Result<(), Error> {
    match result {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Error::Changed { what: what() }),
        Err(cause) => Err(Error::Write { what: what(), cause }),
    }
}
