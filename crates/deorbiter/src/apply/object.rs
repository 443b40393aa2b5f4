//! Writes to objects of the target. Idempotent: each request carries the UID, so that another object of the same name is never touched.

use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, Preconditions,
};
use serde_json::json;

use crate::error::Error;
use crate::names;
use crate::plan::action::{Object, ObjectKind};

/// The API of its kind, in its namespace.
fn api(client: &Client, object: &Object) -> Api<DynamicObject> {
    let (group, plural) = match object.kind {
        ObjectKind::VolumeSnapshot => ("snapshot.storage.k8s.io", "volumesnapshots"),
        ObjectKind::VolumeSnapshotContent => ("snapshot.storage.k8s.io", "volumesnapshotcontents"),
        ObjectKind::Pod => ("", "pods"),
        ObjectKind::PersistentVolumeClaim => ("", "persistentvolumeclaims"),
        ObjectKind::PersistentVolume => ("", "persistentvolumes"),
        ObjectKind::Service => ("", "services"),
        ObjectKind::Ingress => ("networking.k8s.io", "ingresses"),
    };
    let kind = GroupVersionKind::gvk(group, "v1", &object.kind.to_string());
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    match object.namespace.as_str() {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Deletes this version of it. An object that is gone counts as deleted.
///
/// # Errors
/// [`Error::Changed`] where the object has changed or is another one; [`Error::Kubernetes`] with the API server's response.
pub async fn delete(client: &Client, object: &Object) -> Result<(), Error> {
    let params = only_version(&object.uid, &object.version);
    let deleted = api(client, object).delete(&object.name, &params).await;
    settled(|| format!("delete {object}"), deleted)
}

/// Deletes an object only if it still has this UID and this resourceVersion.
#[must_use]
pub fn only_version(uid: &str, resource_version: &str) -> DeleteParams {
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: Some(resource_version.to_owned()) };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() }
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
    let metadata = json!({"uid": object.uid, "resourceVersion": object.version});
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
    let params = PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..PatchParams::default() };
    let released = api(client, object).patch(&object.name, &params, &patch).await;
    settled(|| format!("set the policy of {object}"), released)
}

/// 404: it is gone. 409: it has another UID, or has changed since; nothing was done to it.
pub fn settled<T>(what: impl FnOnce() -> String, result: Result<T, kube::Error>) -> Result<(), Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Error::Changed { what: what() }),
        Err(cause) => Err(Error::kubernetes(what())(cause)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;
    use crate::controller::tests::server;

    /// S4: another version, for example one that has got an annotation that keeps it, is neither deleted nor changed.
    #[tokio::test]
    async fn each_write_names_the_uid_and_the_version_that_were_read() {
        let bodies = Arc::new(Mutex::new(Vec::<Value>::new()));
        let seen = Arc::clone(&bodies);
        let client = server(move |request| {
            seen.lock().unwrap().push(request.body().clone());
            Some((409, json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"})))
        });
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
