//! Server-side apply.
//!
//! * [`FieldManager`] is the name under which a controller owns fields.
//! * No request is made where the cached object already shows what would be applied: the manager owns exactly the desired fields,
//!   and each has the desired value. Where that is not certain, for example because the API server has normalised a quantity,
//!   the request is made, and changes nothing.
//! * A cache removes `managedFields`; [`cache::Builder::owned_by`](crate::cache::Builder::owned_by) keeps what is compared here.
//! * Another manager's field is a conflict, which is an error with the manager's name, or is taken over: the caller
//!   chooses with [`Conflicts`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::Status,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::cluster::error_chain;

/// The operation of `managedFields` that server-side apply records.
const APPLY: &str = "Apply";

/// Fields of `metadata` that identify an object and have no owner.
const IDENTITY: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "generation"];

/// The owner of the fields that a controller applies, by convention `<controller>.perimeter.dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldManager(&'static str);

/// Handling of a desired field that another field manager owns with another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// Nothing is applied: [`Error::Conflict`].
    Fail,
    /// The field is taken over.
    Force,
}

/// How an object is after [`FieldManager::apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied<K> {
    /// The observed object already showed it; no request was made.
    Unchanged,
    /// As the API server responded. Until the cache has caught up, this is the state to reconcile with.
    Written(K),
}

/// Why nothing was applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The desired object cannot be serialized, or has no name.
    #[error("the desired {kind} is invalid: {why}")]
    Invalid {
        /// The kind.
        kind: String,
        /// For a developer: it is a mistake in the program.
        why: String,
    },
    /// Other managers own desired fields, with other values.
    #[error("cannot apply {kind} {name}: {}", join(.fields))]
    Conflict {
        /// The kind.
        kind: String,
        /// Of the object.
        name: String,
        /// Each field with its manager.
        fields: Vec<ConflictingField>,
    },
    /// The API server reported another error, or did not respond.
    #[error("cannot apply {kind} {name}: {}", error_chain(.cause))]
    Kubernetes {
        /// The kind.
        kind: String,
        /// Of the object.
        name: String,
        /// As kube reports it.
        cause: kube::Error,
    },
}

/// A field of another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingField {
    /// Such as `.spec.replicas`.
    pub field: String,
    /// As the API server writes it: `conflict with "kubectl-client-side-apply" using apps/v1`.
    pub conflict: String,
}

fn join(fields: &[ConflictingField]) -> String {
    fields.iter().map(|one| format!("{}: {}", one.field, one.conflict)).collect::<Vec<_>>().join(", ")
}

impl FieldManager {
    /// `name` has at most 128 characters.
    #[must_use]
    pub const fn new(name: &'static str) -> FieldManager {
        FieldManager(name)
    }

    /// As `managedFields` shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// Applies an object, unless `observed` shows it already. `api` is that of the object's namespace. An `observed` of None
    /// always applies.
    ///
    /// `desired` contains the fields that this manager shall own, and no others: a field that it owned and that is missing there
    /// is removed from the object. With `metadata.uid` no other object of that name is changed, and none is created.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn apply<K>(
        self,
        api: &Api<K>,
        observed: Option<&K>,
        desired: &impl Serialize,
        conflicts: Conflicts,
    ) -> Result<Applied<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        self.write(api, observed, desired, conflicts, None).await
    }

    /// The same for the subresource `status`. Other fields of `desired` than `status` are ignored by the API server.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn apply_status<K>(
        self,
        api: &Api<K>,
        observed: Option<&K>,
        desired: &impl Serialize,
        conflicts: Conflicts,
    ) -> Result<Applied<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        self.write(api, observed, desired, conflicts, Some("status")).await
    }

    async fn write<K>(
        self,
        api: &Api<K>,
        observed: Option<&K>,
        desired: &impl Serialize,
        conflicts: Conflicts,
        subresource: Option<&'static str>,
    ) -> Result<Applied<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let kind = K::kind(&()).into_owned();
        let invalid = |why: String| Error::Invalid { kind: kind.clone(), why };
        let body = body::<K>(desired).map_err(invalid)?;
        let name = body.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.ok_or_else(|| invalid("it has no name".to_owned()))?.to_owned();
        if let Some(observed) = observed
            && self.shows(observed, &body, subresource).map_err(invalid)?
        {
            return Ok(Applied::Unchanged);
        }
        let mut parameters = PatchParams::apply(self.0);
        parameters.force = conflicts == Conflicts::Force;
        let patch = Patch::Apply(&body);
        let written = match subresource {
            None => api.patch(&name, &parameters, &patch).await,
            Some(subresource) => api.patch_subresource(subresource, &name, &parameters, &patch).await,
        };
        written.map(Applied::Written).map_err(|cause| match conflicting(&cause) {
            fields if fields.is_empty() => Error::Kubernetes { kind, name, cause },
            fields => Error::Conflict { kind, name, fields },
        })
    }

    /// Whether applying `desired` to the object would change nothing, not even the ownership of a field.
    fn shows<K: Resource + Serialize>(
        self,
        observed: &K,
        desired: &Value,
        subresource: Option<&str>,
    ) -> Result<bool, String> {
        let identity =
            |value: &Value| IDENTITY.map(|field| value.pointer(&format!("/metadata/{field}")).cloned());
        let version = desired.get("apiVersion").and_then(Value::as_str);
        // Fields of another version may have other names.
        let is_own = |entry: &&ManagedFieldsEntry| {
            self.owns(entry, subresource) && entry.api_version.as_deref() == version
        };
        let Some(entry) = observed.managed_fields().iter().find(is_own) else { return Ok(false) };
        let fields = entry.fields_v1.as_ref().map_or(&Value::Null, |fields| &fields.0);
        let observed = serde_json::to_value(observed).map_err(|error| error.to_string())?;
        let is_same =
            |(desired, observed): (&Option<Value>, &Option<Value>)| desired.is_none() || desired == observed;
        Ok(identity(desired).iter().zip(&identity(&observed)).all(is_same)
            && shows(&owned(desired, subresource.is_some()), &observed, fields))
    }

    /// The entries that are compared, without their times, which change with each write of the manager.
    pub(crate) fn own(self, entries: Vec<ManagedFieldsEntry>) -> Option<Vec<ManagedFieldsEntry>> {
        let of_manager = |entry: &ManagedFieldsEntry| self.owns(entry, entry.subresource.as_deref());
        let own: Vec<_> = entries
            .into_iter()
            .filter(of_manager)
            .map(|entry| ManagedFieldsEntry { time: None, ..entry })
            .collect();
        Some(own).filter(|own| !own.is_empty())
    }

    /// Whether this is the entry of the fields that this manager applied.
    fn owns(self, entry: &ManagedFieldsEntry, subresource: Option<&str>) -> bool {
        entry.manager.as_deref() == Some(self.0)
            && entry.operation.as_deref() == Some(APPLY)
            && entry.subresource.as_deref().unwrap_or_default() == subresource.unwrap_or_default()
    }
}

/// The body of a server-side apply: with the type, and without nulls, which no manager owns.
fn body<K: Resource<DynamicType = ()>>(desired: &impl Serialize) -> Result<Value, String> {
    let mut body = without_nulls(serde_json::to_value(desired).map_err(|error| error.to_string())?);
    let fields = body.as_object_mut().ok_or("it is no object")?;
    fields.insert("apiVersion".to_owned(), K::api_version(&()).into());
    fields.insert("kind".to_owned(), K::kind(&()).into());
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        // The API server refuses managedFields, and does not store empty labels, annotations, finalizers and ownerReferences.
        metadata.remove("managedFields");
        metadata.retain(|_, value| *value != json!({}) && *value != json!([]));
    }
    Ok(body)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

/// The fields of a body that get an owner.
fn owned(body: &Value, only_status: bool) -> Value {
    let mut fields: Map<String, Value> = body.as_object().cloned().unwrap_or_default();
    fields.retain(|field, _| field == "status" || !only_status && field != "apiVersion" && field != "kind");
    if !only_status {
        fields.remove("status");
    }
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.retain(|field, _| !IDENTITY.contains(&field.as_str()));
        if metadata.is_empty() {
            fields.remove("metadata");
        }
    }
    Value::Object(fields)
}

/// Whether `observed` has the desired values, and the set of owned fields is that of `desired`. `fields` has the format
/// FieldsV1: `f:` and a field, `k:` and the keys of a list's item, `v:` and the value of a set's item; `.` is the item itself, and
/// an empty object is a field that is owned as a whole.
fn shows(desired: &Value, observed: &Value, fields: &Value) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    let children: Vec<_> = fields.iter().filter(|(key, _)| *key != ".").collect();
    if children.is_empty() {
        return desired == observed;
    }
    match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => {
            children.len() == desired.len()
                && desired.iter().all(|(key, value)| {
                    let child = fields.get(&format!("f:{key}"));
                    child
                        .zip(observed.get(key))
                        .is_some_and(|(child, observed)| shows(value, observed, child))
                })
        }
        (Value::Array(desired), Value::Array(observed)) => {
            children.len() == desired.len()
                && children.iter().all(|(key, child)| {
                    let items = [desired, observed].map(|items| items.iter().find(|item| is_item(key, item)));
                    match items {
                        [Some(desired), Some(observed)] => shows(desired, observed, child),
                        _ => false,
                    }
                })
        }
        _ => false,
    }
}

/// Whether a list's item is the one that a key of FieldsV1 names.
fn is_item(key: &str, item: &Value) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    if let Some(keys) = key.strip_prefix("k:").and_then(parse) {
        let keys = keys.as_object().into_iter().flatten();
        return keys.into_iter().all(|(field, value)| item.get(field) == Some(value));
    }
    key.strip_prefix("v:").and_then(parse).is_some_and(|value| *item == value)
}

fn conflicting(error: &kube::Error) -> Vec<ConflictingField> {
    let kube::Error::Api(status) = error else { return Vec::new() };
    let Status { details: Some(details), .. } = &**status else { return Vec::new() };
    let conflicts = details.causes.iter().filter(|cause| cause.reason == "FieldManagerConflict");
    conflicts
        .map(|cause| ConflictingField { field: cause.field.clone(), conflict: cause.message.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Service};

    use super::*;

    const MANAGER: FieldManager = FieldManager::new("test.perimeter.dev");

    /// A Service as an API server stores it after an apply, with defaults and fields of others.
    fn observed() -> Service {
        serde_json::from_value(json!({
            "metadata": {
                "name": "a", "namespace": "n", "uid": "1", "labels": { "app": "a", "other": "x" },
                "managedFields": [
                    {
                        "manager": "test.perimeter.dev", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                        "fieldsV1": {
                            "f:metadata": { "f:labels": { "f:app": {} }, "f:finalizers": { "v:\"x/y\"": {} } },
                            "f:spec": {
                                "f:selector": {},
                                "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:port": {}, "f:protocol": {}, "f:name": {} } },
                            },
                        },
                    },
                    { "manager": "other", "operation": "Update", "fieldsV1": { "f:metadata": { "f:labels": { "f:other": {} } } } },
                    {
                        "manager": "test.perimeter.dev", "operation": "Apply", "subresource": "status", "apiVersion": "v1",
                        "fieldsV1": { "f:status": { "f:loadBalancer": { "f:ingress": {} } } },
                    },
                ],
                "finalizers": ["foreign/x", "x/y"],
            },
            "spec": {
                "clusterIP": "10.0.0.1", "selector": { "app": "a" },
                "ports": [
                    { "port": 443, "protocol": "TCP", "name": "foreign" },
                    { "port": 80, "protocol": "TCP", "name": "http", "targetPort": 80, "nodePort": 30000 },
                ],
            },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
        }))
        .unwrap()
    }

    fn desired() -> Value {
        json!({
            "metadata": { "name": "a", "namespace": "n", "labels": { "app": "a" }, "finalizers": ["x/y"], "annotations": null },
            "spec": { "selector": { "app": "a" }, "ports": [{ "port": 80, "protocol": "TCP", "name": "http" }] },
        })
    }

    fn is_shown(desired: &Value, subresource: Option<&str>) -> bool {
        MANAGER.shows(&observed(), &body::<Service>(desired).unwrap(), subresource).unwrap()
    }

    #[test]
    fn an_object_with_the_owned_fields_and_values_shows_it() {
        assert!(is_shown(&desired(), None));
        let mut with_uid = desired();
        with_uid["metadata"]["uid"] = "1".into();
        assert!(is_shown(&with_uid, None));
        let mut with_empty = desired();
        with_empty["metadata"]["annotations"] = json!({});
        with_empty["metadata"]["ownerReferences"] = json!([]);
        assert!(is_shown(&with_empty, None));
    }

    #[test]
    fn a_field_that_is_changed_added_or_no_longer_desired_is_not_shown() {
        for (pointer, value) in [
            ("/metadata/labels/app", json!("b")),
            ("/metadata/labels", json!({ "app": "a", "new": "x" })),
            // Present with this value, but not owned.
            ("/metadata/labels", json!({ "app": "a", "other": "x" })),
            ("/metadata/labels", json!({})),
            ("/metadata/labels", Value::Null),
            ("/metadata/finalizers", json!(["x/z"])),
            ("/metadata/finalizers", json!(["x/y", "foreign/x"])),
            ("/metadata/annotations", json!({ "a": "b" })),
            ("/metadata/name", json!("b")),
            ("/spec/selector", json!({ "app": "a", "tier": "b" })),
            ("/spec/selector", json!({})),
            ("/spec/ports/0/name", json!("web")),
            ("/spec/ports/0/port", json!(81)),
            ("/spec/ports/0/nodePort", json!(30000)),
            ("/spec/ports/0/name", Value::Null),
            ("/spec/ports", json!([])),
        ] {
            let mut other = desired();
            // A pointer of serde_json finds only fields that exist.
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            other.pointer_mut(parent).unwrap()[field] = value.clone();
            assert!(!is_shown(&other, None), "{pointer} {value}");
        }
        let mut recreated = desired();
        recreated["metadata"]["uid"] = "2".into();
        assert!(!is_shown(&recreated, None));
        assert!(
            !FieldManager::new("another")
                .shows(&observed(), &body::<Service>(&desired()).unwrap(), None)
                .unwrap()
        );
    }

    #[test]
    fn a_status_is_compared_with_the_fields_of_its_subresource() {
        let status = |ip: &str| json!({ "metadata": { "name": "a" }, "status": { "loadBalancer": { "ingress": [{ "ip": ip }] } } });
        assert!(is_shown(&status("192.0.2.1"), Some("status")));
        assert!(!is_shown(&status("192.0.2.2"), Some("status")));
        assert!(!is_shown(&json!({ "metadata": { "name": "a" }, "status": {} }), Some("status")));
    }

    #[test]
    fn the_body_has_its_type_and_no_managed_fields() {
        let map: ConfigMap =
            serde_json::from_value(json!({ "metadata": { "name": "a", "managedFields": [] } })).unwrap();
        assert_eq!(
            body::<ConfigMap>(&map).unwrap(),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } })
        );
        assert!(body::<ConfigMap>(&"text").is_err());
    }
}
