//! Slim views of built-in kinds: only the fields that a controller reads are decoded and kept.
//!
//! A full object costs about ten times its JSON in memory, more than half of it `managedFields`; these cost a tenth of
//! that. They also hold no heartbeat times, so that a heartbeat does not look like a change.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};

pub mod job;
pub mod node;

pub use job::Job;
pub use node::Node;

/// The part of `metadata` that controllers read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

/// Decodes `metadata` without `managedFields`, owner references and the rest, for a field with serde's `deserialize_with`. kube wants
/// the full type: its absent fields take a few hundred bytes of memory for each object.
///
/// # Errors
/// It is not the metadata of an object.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = SlimMeta::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        labels: slim.labels,
        annotations: slim.annotations,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        ..ObjectMeta::default()
    })
}

/// Decodes a field, for serde's `deserialize_with`: an explicit `null`, which Go writes for an empty list without `omitempty`, is the
/// default.
///
/// # Errors
/// The value is of another type.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
