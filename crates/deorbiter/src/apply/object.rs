//! Writes to objects of the target. Idempotent: each request carries the UID, so that another object of the same name is never touched.

use kube::Client;
use serde_json::{Value, json};

use crate::error::Error;
use crate::names;
use crate::plan::action::{Object, ObjectKind};

/// Its path in the API.
fn path(object: &Object) -> String {
    let snapshots = || "/apis/snapshot.storage.k8s.io/v1".to_owned();
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

/// Changes the policy of this version of it from Retain to Delete: an annotation that keeps it may have been added since.
///
/// # Errors
/// As [`delete`].
pub async fn release(client: &Client, object: &Object) -> Result<(), Error> {
    let spec = match object.kind {
        ObjectKind::VolumeSnapshotContent => json!({"deletionPolicy": "Delete"}),
        _ => json!({"persistentVolumeReclaimPolicy": "Delete"}),
    };
    let body = json!({"metadata": {"uid": object.uid, "resourceVersion": object.version}, "spec": spec});
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http_body_util::BodyExt as _;
    use kube::client::Body;

    use super::*;

    /// S4: another version, for example one that has got an annotation that keeps it, is neither deleted nor changed.
    #[tokio::test]
    async fn each_write_names_the_uid_and_the_version_that_were_read() {
        let bodies = Arc::new(Mutex::new(Vec::<Value>::new()));
        let seen = Arc::clone(&bodies);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let bytes = request.into_body().collect().await.unwrap().to_bytes();
                seen.lock().unwrap().push(serde_json::from_slice(&bytes).unwrap());
                let conflict =
                    json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"});
                let body = Body::from(conflict.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(http::Response::builder().status(409).body(body).unwrap())
            }
        });
        let client = Client::new(service, "default");
        let object = Object {
            kind: ObjectKind::PersistentVolume,
            namespace: String::new(),
            name: "pv".into(),
            uid: "u".into(),
            version: "7".into(),
        };
        for result in [delete(&client, &object).await, release(&client, &object).await] {
            assert!(matches!(result, Err(Error::Changed { .. })), "{result:?}");
        }
        let bodies = bodies.lock().unwrap();
        assert_eq!(bodies[0]["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(bodies[1]["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
    }
}
