//! The only writer of the triggers. Each action first reads its object from the API server.
//!
//! Actions are idempotent: an existing finalizer is not added, a missing one is not removed, and the Deorbit of an object always has the
//! same name. A step that was decided on another state of the object is [`Error::Outdated`] and changes nothing.

use common::api::deorbit::Deorbit;
use common::api::deorbit_binding::DeorbitBinding;
use http::header::{ACCEPT, CONTENT_TYPE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::action::Action;
use super::error::Error;
use super::patch;
use super::snapshot::ObjectId;
use crate::names;

/// Responses without spec and status, which are not needed.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Executes an action. `kind` is the kind of the action's object, or of the binding's.
///
/// # Errors
/// [`Error::Outdated`] where the object has changed; otherwise the API server's error.
pub async fn act(client: &Client, action: &Action, kind: Option<&ApiResource>) -> Result<(), Error> {
    match action {
        Action::GuardBinding { binding, uid } => {
            let api = Api::<DeorbitBinding>::all(client.clone());
            let metadata = binding_metadata(&api, action, binding, uid).await?;
            if metadata.deletion_timestamp.is_some() {
                return Err(Error::Outdated(format!("DeorbitBinding {binding} is being deleted")));
            }
            let steps = patch::on(&metadata, names::BINDING_FINALIZER, None);
            send(client, action, api.resource_url(), binding, steps).await
        }
        Action::ReleaseBinding { binding, uid, finalizer } => {
            if let Some(kind) = kind {
                nothing_is_bound(client, action, kind, (binding, finalizer)).await?;
            }
            let api = Api::<DeorbitBinding>::all(client.clone());
            let metadata = binding_metadata(&api, action, binding, uid).await?;
            let steps = patch::off(&metadata, names::BINDING_FINALIZER, &[]);
            send(client, action, api.resource_url(), binding, steps).await
        }
        Action::Bind { target, binding, finalizer } => {
            let (api, metadata) = target_metadata(client, action, target, kind).await?;
            let metadata = metadata.ok_or_else(|| gone(target))?;
            if metadata.deletion_timestamp.is_some() {
                return Err(Error::Outdated(format!("{target} is being deleted")));
            }
            let steps = patch::on(&metadata, finalizer, Some((names::BOUND_BY_ANNOTATION, binding)));
            send(client, action, api.resource_url(), &target.name, steps).await
        }
        Action::Release { target, binding, finalizer, terminating } => {
            let (api, metadata) = target_metadata(client, action, target, kind).await?;
            let Some(metadata) = metadata else { return Ok(()) };
            if metadata.deletion_timestamp.is_some() != *terminating {
                return Err(Error::Outdated(format!("{target} is being deleted by now")));
            }
            let mut marks = vec![(names::BOUND_BY_ANNOTATION, binding.as_str())];
            let annotations = metadata.annotations.as_ref();
            let deorbit = annotations.and_then(|all| all.get(names::DEORBIT_UID_ANNOTATION));
            marks.extend(deorbit.map(|uid| (names::DEORBIT_UID_ANNOTATION, uid.as_str())));
            let steps = patch::off(&metadata, finalizer, &marks);
            send(client, action, api.resource_url(), &target.name, steps).await
        }
        Action::CreateDeorbit { target, resource_version, namespace, manifest, .. } => {
            let (api, metadata) = target_metadata(client, action, target, kind).await?;
            let is_same = |one: &ObjectMeta| one.resource_version.as_ref() == Some(resource_version);
            let metadata = metadata.filter(is_same);
            let metadata = metadata.ok_or_else(|| Error::Outdated(format!("{target} has changed")))?;
            let uid = create(client, action, namespace, manifest).await?;
            let steps = patch::annotate(&metadata, names::DEORBIT_UID_ANNOTATION, &uid);
            send(client, action, api.resource_url(), &target.name, steps).await
        }
        Action::RecordDeorbit { target, uid, .. } => {
            let (api, metadata) = target_metadata(client, action, target, kind).await?;
            let metadata = metadata.ok_or_else(|| gone(target))?;
            let steps = patch::annotate(&metadata, names::DEORBIT_UID_ANNOTATION, uid);
            send(client, action, api.resource_url(), &target.name, steps).await
        }
        Action::AbortDeorbit { namespace, name, uid, .. } => {
            abort(client, action, namespace, name, uid).await
        }
    }
}

/// Creates a Deorbit, and returns its UID. An existing one of its name is not read: the next reconciliation observes it.
///
/// # Errors
/// [`Error::Outdated`] where one exists, otherwise the API server's error.
pub async fn create(
    client: &Client,
    what: &impl ToString,
    namespace: &str,
    manifest: &Value,
) -> Result<String, Error> {
    let resource = ApiResource::erase::<Deorbit>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let object: DynamicObject = serde_json::from_value(manifest.clone())
        .map_err(|error| Error::Outdated(format!("{}: {error}", what.to_string())))?;
    let params = PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &object).await {
        Ok(created) => Ok(created.metadata.uid.unwrap_or_default()),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Err(Error::Outdated(format!("{}: it exists already", what.to_string())))
        }
        Err(cause) => Err(Error::Kubernetes { what: what.to_string(), cause }),
    }
}

/// Aborts a Deorbit by deleting it, which lifts its block. Another one of its name is not touched.
///
/// # Errors
/// [`Error::Outdated`] where it is gone, otherwise the API server's error.
pub async fn abort(
    client: &Client,
    what: &impl ToString,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), Error> {
    let api = Api::<Deorbit>::namespaced(client.clone(), namespace);
    let found = api.get_metadata_opt(name).await;
    let found = found.map_err(|cause| Error::Kubernetes { what: what.to_string(), cause })?;
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

fn gone(target: &ObjectId) -> Error {
    Error::Outdated(format!("{target} is gone, or another of the same name"))
}

/// The metadata of an object now; None if it is gone or has another UID.
async fn target_metadata(
    client: &Client,
    action: &Action,
    target: &ObjectId,
    kind: Option<&ApiResource>,
) -> Result<(Api<DynamicObject>, Option<ObjectMeta>), Error> {
    let kind = kind.ok_or_else(|| Error::Outdated(format!("the kind of {target} is not known any more")))?;
    let api = api(client, kind, target.namespace.as_deref());
    let found = api.get_metadata_opt(&target.name).await;
    let found = found.map_err(|cause| Error::Kubernetes { what: action.to_string(), cause })?;
    let metadata = found.map(|found| found.metadata).filter(|found| found.uid.as_ref() == Some(&target.uid));
    Ok((api, metadata))
}

async fn binding_metadata(
    api: &Api<DeorbitBinding>,
    action: &Action,
    name: &str,
    uid: &str,
) -> Result<ObjectMeta, Error> {
    let found = api.get_metadata_opt(name).await;
    let found = found.map_err(|cause| Error::Kubernetes { what: action.to_string(), cause })?;
    let found = found.map(|found| found.metadata).filter(|found| found.uid.as_deref() == Some(uid));
    found.ok_or_else(|| Error::Outdated(format!("DeorbitBinding {name} is gone")))
}

/// Refuses while an object has the finalizer of the binding: the cache may not have the last one yet. An annotation without the finalizer
/// does not count: a user removed the finalizer of an object that is being deleted.
async fn nothing_is_bound(
    client: &Client,
    action: &Action,
    kind: &ApiResource,
    (binding, finalizer): (&str, &str),
) -> Result<(), Error> {
    let bound = |one: &PartialObjectMeta<DynamicObject>| {
        one.annotations().get(names::BOUND_BY_ANNOTATION).is_some_and(|name| name == binding)
            && one.finalizers().iter().any(|one| one == finalizer)
    };
    let mut params = ListParams::default().limit(500);
    loop {
        let page = match api(client, kind, None).list_metadata(&params).await {
            Ok(page) => page,
            // The kind is gone, and so are its objects.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(cause) => return Err(Error::Kubernetes { what: action.to_string(), cause }),
        };
        if page.items.iter().any(bound) {
            return Err(Error::Outdated(format!("objects still carry the finalizer of {binding}")));
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
