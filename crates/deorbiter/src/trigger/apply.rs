//! The only writer of the triggers. Each action first reads its object from the API server.
//!
//! Actions are idempotent: an existing finalizer is not added, a missing one is not removed, and the Deorbit of an object always has the
//! same name. A step that was decided on another state of the object is [`Error::Outdated`] and changes nothing.

use std::fmt;

use common::api::deorbit::Deorbit;
use common::api::deorbit_binding::DeorbitBinding;
use common::plan::Action as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::action::Action;
use super::patch;
use super::plan::machines::needs_hook;
use crate::error::Error;
use crate::names;

/// Responses without spec and status, which are not needed.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Executes an action. `kind` is the kind of the action's object, or of the binding's.
///
/// # Errors
/// [`Error::Outdated`] where the object has changed; otherwise the API server's error.
pub async fn act(client: &Client, action: &Action, kind: Option<&ApiResource>) -> Result<(), Error> {
    match action {
        Action::AbortDeorbit { namespace, name, uid, .. } => {
            abort(client, action, namespace, name, uid).await
        }
        Action::ReleaseBinding { binding, finalizer, machines, .. } => {
            if let Some(kind) = kind {
                // The caches may not have the last one yet. An annotation without the finalizer does not count: a user removed the
                // finalizer of an object that is being deleted.
                let bound = |one: &ObjectMeta| {
                    annotation(one, names::BOUND_BY_ANNOTATION) == Some(binding) && has(one, finalizer)
                };
                none_has(client, action, kind, bound).await?;
                let hooked =
                    |one: &ObjectMeta| annotation(one, names::MACHINE_HOOK_ANNOTATION) == Some(binding);
                if *machines {
                    none_has(client, action, &another_kind(kind, "Machine", "machines"), hooked).await?;
                }
            }
            patch_object(client, action, Some(&ApiResource::erase::<DeorbitBinding>(&()))).await
        }
        Action::GuardBinding { .. } => {
            patch_object(client, action, Some(&ApiResource::erase::<DeorbitBinding>(&()))).await
        }
        _ => patch_object(client, action, kind).await,
    }
}

/// Patches the metadata of the object that the action is about.
async fn patch_object(client: &Client, action: &Action, kind: Option<&ApiResource>) -> Result<(), Error> {
    let object = action.regarding();
    let kind = kind.ok_or_else(|| Error::Outdated(format!("the kind of {object} is not known any more")))?;
    let api = api(client, kind, object.namespace.as_deref());
    let found = api.get_metadata_opt(&object.name).await.map_err(Error::kubernetes(action))?;
    let found = found.map(|found| found.metadata).filter(|found| found.uid == object.uid);
    let outdated = |why: &str| Err(Error::Outdated(format!("{object} {why}")));
    let Some(metadata) = found else {
        return match action {
            Action::Release { .. } | Action::UnhookMachine { .. } => Ok(()),
            _ => outdated("is gone, or another of the same name"),
        };
    };
    let is_deleted = metadata.deletion_timestamp.is_some();
    let steps = match action {
        Action::GuardBinding { .. } | Action::Bind { .. } if is_deleted => {
            return outdated("is being deleted");
        }
        Action::GuardBinding { .. } => patch::on(&metadata, names::BINDING_FINALIZER, None),
        Action::ReleaseBinding { .. } => patch::off(&metadata, names::BINDING_FINALIZER, &[]),
        Action::Bind { binding, finalizer, .. } => {
            patch::on(&metadata, finalizer, Some((names::BOUND_BY_ANNOTATION, binding)))
        }
        Action::Release { terminating, .. } if is_deleted != *terminating => {
            return outdated("is being deleted by now");
        }
        Action::Release { binding, finalizer, .. } => {
            let mut marks = vec![(names::BOUND_BY_ANNOTATION, binding.as_str())];
            let deorbit = annotation(&metadata, names::DEORBIT_UID_ANNOTATION);
            marks.extend(deorbit.map(|uid| (names::DEORBIT_UID_ANNOTATION, uid.as_str())));
            patch::off(&metadata, finalizer, &marks)
        }
        Action::HookMachine { binding, .. } => {
            patch::annotate(&metadata, names::MACHINE_HOOK_ANNOTATION, binding)
        }
        Action::UnhookMachine { cluster, hook, finalizers, .. } => {
            // After the Machine: Cluster API deletes a Cluster before its Machines, but the event of the Machine may arrive first.
            let clusters =
                self::api(client, &another_kind(kind, "Cluster", "clusters"), object.namespace.as_deref());
            let found = clusters.get_metadata_opt(cluster).await.map_err(Error::kubernetes(action))?;
            let is_needed = found.map(|found| found.metadata).is_some_and(|found| {
                let is_bound = match annotation(&found, names::BOUND_BY_ANNOTATION) {
                    Some(name) => finalizers.get(name).is_some_and(|finalizer| has(&found, finalizer)),
                    None => finalizers.values().any(|finalizer| has(&found, finalizer)),
                };
                is_bound && needs_hook(found.deletion_timestamp.is_some(), is_deleted)
            });
            if is_needed {
                return outdated(&format!("waits for the Deorbit of Cluster {cluster}"));
            }
            patch::remove_annotation(&metadata, names::MACHINE_HOOK_ANNOTATION, hook)
        }
        Action::CreateDeorbit { resource_version, namespace, manifest, .. } => {
            if metadata.resource_version.as_ref() != Some(resource_version) {
                return outdated("has changed");
            }
            let uid = create(client, action, namespace, manifest).await?;
            patch::annotate(&metadata, names::DEORBIT_UID_ANNOTATION, &uid)
        }
        Action::RecordDeorbit { uid, .. } => patch::annotate(&metadata, names::DEORBIT_UID_ANNOTATION, uid),
        // It changes no object but the Deorbit.
        Action::AbortDeorbit { .. } => Vec::new(),
    };
    send(client, action, api.resource_url(), &object.name, steps).await
}

/// Patches the status of a binding. One that has changed or is gone is left alone: the change is reconciled.
///
/// # Errors
/// The API server's error.
pub async fn write_status(client: &Client, name: &str, patch: Value) -> Result<(), Error> {
    let api = Api::<DeorbitBinding>::all(client.clone());
    let params = PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(name, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(cause) => Err(Error::kubernetes(format!("write the status of DeorbitBinding {name}"))(cause)),
    }
}

/// Creates a Deorbit, and returns its UID. An existing one of its name is not read: the next reconciliation observes it.
///
/// # Errors
/// [`Error::Outdated`] where one exists, otherwise the API server's error.
pub async fn create(
    client: &Client,
    what: &impl fmt::Display,
    namespace: &str,
    manifest: &Value,
) -> Result<String, Error> {
    let resource = ApiResource::erase::<Deorbit>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let object: DynamicObject = serde_json::from_value(manifest.clone())
        .map_err(|error| Error::Outdated(format!("{what}: {error}")))?;
    let params = PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &object).await {
        Ok(created) => Ok(created.metadata.uid.unwrap_or_default()),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Err(Error::Outdated(format!("{what}: it exists already")))
        }
        Err(cause) => Err(Error::kubernetes(what)(cause)),
    }
}

/// Aborts a Deorbit by deleting it, which lifts its block. Another one of its name is not touched.
///
/// # Errors
/// [`Error::Outdated`] where it is gone, otherwise the API server's error.
pub async fn abort(
    client: &Client,
    what: &impl fmt::Display,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), Error> {
    let api = Api::<Deorbit>::namespaced(client.clone(), namespace);
    let found = api.get_metadata_opt(name).await.map_err(Error::kubernetes(what))?;
    let found = found.map(|found| found.metadata).filter(|found| found.uid.as_deref() == Some(uid));
    let gone = || Error::Outdated(format!("Deorbit {namespace}/{name} is gone, or another of the same name"));
    let resource_version = found.ok_or_else(gone)?.resource_version;
    let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version };
    let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(cause) => Err(Error::of_patch(what, cause)),
    }
}

/// An API for the kind of an object, in its namespace.
pub(super) fn api(client: &Client, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, kind),
        None => Api::all_with(client.clone(), kind),
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    metadata.annotations.as_ref().and_then(|all| all.get(key))
}

fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == finalizer)
}

/// Another kind of the same group and version.
fn another_kind(kind: &ApiResource, name: &str, plural: &str) -> ApiResource {
    ApiResource { kind: name.to_owned(), plural: plural.to_owned(), ..kind.clone() }
}

/// Refuses while an object of the kind is bound.
async fn none_has(
    client: &Client,
    action: &Action,
    kind: &ApiResource,
    is_bound: impl Fn(&ObjectMeta) -> bool,
) -> Result<(), Error> {
    let mut params = ListParams::default().limit(500);
    loop {
        let page = match api(client, kind, None).list_metadata(&params).await {
            Ok(page) => page,
            // The kind is gone, and so are its objects.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(cause) => return Err(Error::kubernetes(action)(cause)),
        };
        if page.items.iter().any(|one| is_bound(&one.metadata)) {
            return Err(Error::Outdated(format!("{} are still bound", kind.plural)));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Sends a JSON patch; an empty one is not sent.
async fn send(
    client: &Client,
    action: &Action,
    url: &str,
    name: &str,
    steps: Vec<Value>,
) -> Result<(), Error> {
    if steps.is_empty() {
        return Ok(());
    }
    let request = http::Request::patch(format!("{url}/{name}?fieldManager={}", names::MANAGER))
        .header(CONTENT_TYPE, "application/json-patch+json")
        .header(ACCEPT, METADATA_ONLY)
        .body(Value::from(steps).to_string().into_bytes());
    let request = request.map_err(|error| Error::Outdated(format!("{action}: {error}")))?;
    let response = client.request::<PartialObjectMeta<DynamicObject>>(request).await;
    response.map(|_| ()).map_err(|cause| Error::of_patch(action, cause))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::api::GroupVersionKind;
    use serde_json::json;

    use super::*;
    use crate::controller::tests::server as api_server;
    use crate::trigger::snapshot::ObjectId;

    /// An API server with one Machine and its Cluster; the patches that it gets.
    fn server(machine: Value, cluster: Option<Value>) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let patches = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&patches);
        let client = api_server(move |request| {
            let found = match request.uri().path() {
                "/apis/cluster.x-k8s.io/v1beta1/namespaces/team/machines/w1" => Some(&machine),
                "/apis/cluster.x-k8s.io/v1beta1/namespaces/team/clusters/prod" => cluster.as_ref(),
                path => panic!("{path}"),
            };
            if request.method() == http::Method::PATCH {
                seen.lock().unwrap().push(request.body().clone());
            }
            Some(match found {
                Some(metadata) => (
                    200,
                    json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata }),
                ),
                None => (
                    404,
                    json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "not found" }),
                ),
            })
        });
        (client, patches)
    }

    /// Whether the hook is removed from a Machine.
    async fn unhooked(machine_is_deleted: bool, cluster: Option<(bool, bool)>) -> bool {
        let deleted = |yes: bool| yes.then_some("2026-01-01T00:00:00Z");
        let machine = json!({ "name": "w1", "namespace": "team", "uid": "u", "deletionTimestamp": deleted(machine_is_deleted),
            "annotations": { names::MACHINE_HOOK_ANNOTATION: "b" } });
        let cluster = cluster.map(|(is_bound, is_deleted)| {
            let finalizers = if is_bound { vec!["other", "f"] } else { vec!["other"] };
            json!({ "name": "prod", "namespace": "team", "uid": "c", "deletionTimestamp": deleted(is_deleted),
                "finalizers": finalizers, "annotations": { names::BOUND_BY_ANNOTATION: "b" } })
        });
        let (client, patches) = server(machine, cluster);
        let object = ObjectId {
            api_version: "cluster.x-k8s.io/v1beta1",
            kind: "Machine",
            namespace: Some("team".into()),
            name: "w1".into(),
            uid: "u".into(),
        };
        let action = Action::UnhookMachine {
            machine: object,
            cluster: "prod".into(),
            hook: "b".into(),
            finalizers: [("b".to_owned(), "f".to_owned())].into(),
        };
        let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Machine");
        let result = act(&client, &action, Some(&ApiResource::from_gvk(&kind))).await;
        let patches = patches.lock().unwrap();
        assert_eq!(matches!(result, Err(Error::Outdated(_))), patches.is_empty(), "{result:?}");
        !patches.is_empty()
    }

    /// The plan is made from two caches: that of the Clusters may lag behind that of the Machines.
    #[tokio::test]
    async fn the_hook_of_a_machine_whose_cluster_is_deleted_by_now_stays() {
        assert!(!unhooked(true, Some((true, true))).await);
        assert!(!unhooked(false, Some((true, false))).await);
        assert!(unhooked(true, Some((true, false))).await, "deleted alone");
        assert!(unhooked(true, Some((false, true))).await, "released");
        assert!(unhooked(true, None).await, "gone");
    }
}
