//! Our custom resources: each kind a file, as complete types. The schema that the API server enforces, the texts
//! of `kubectl explain` and the columns of `kubectl get` are generated from them into `manifests/<controller>/crds` (`make generate`).
//!
//! No IO, no client, no clock: a plan may read these types.
//!
//! | file | kind |
//! |---|---|
//! | [`mod@deorbit`] | `Deorbit`: one clean-up of one cluster before it dies |
//! | [`deorbit_binding`] | `DeorbitBinding`: a finalizer on a kind of object, and a Deorbit when one is deleted |
//! | [`mod@routegc`] | `RouteGC`: removes the routes of one router whose next hop no longer exists |
//!
//! Several kinds share [`identity`] (references to OpenStack credentials), [`period`] (a length of time), [`schema`].

pub mod deorbit;
pub mod deorbit_binding;
pub mod identity;
pub mod period;
pub mod routegc;
pub mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use self::identity::{IdentityRef, SecretKeyRef};
pub use self::period::Period;

/// Every kind of ours, in the order of the files. A new one is one line here; `make generate` writes it.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    [deorbit::Deorbit::crd(), deorbit_binding::DeorbitBinding::crd(), routegc::RouteGC::crd()]
        .into_iter()
        .map(schema::with_known_formats)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kubectl explain` describes every field.
    #[test]
    fn every_field_is_explained() {
        for definition in definitions() {
            let name = definition.metadata.name.clone().unwrap_or_default();
            for version in &definition.spec.versions {
                let schema = serde_json::to_value(&version.schema).unwrap();
                let root = &schema["openAPIV3Schema"];
                for part in ["spec", "status"] {
                    explained(&format!("{name}: {part}"), &root["properties"][part]);
                }
            }
        }
    }

    fn explained(path: &str, schema: &serde_json::Value) {
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{field}");
            assert!(schema["description"].as_str().is_some_and(|text| text.len() > 10), "{path}");
            explained(&path, schema);
            explained(&path, &schema["items"]);
        }
    }

    /// kube-apiserver warns of each format that it does not know, whenever the kind is applied.
    #[test]
    fn no_format_is_one_that_kubernetes_does_not_know() {
        for definition in definitions() {
            let text = serde_json::to_string(&definition).unwrap();
            assert!(!text.contains("\"format\":\"uint"), "{}", definition.spec.names.kind);
        }
    }

    #[test]
    fn kinds_belong_to_our_domain_and_have_a_status_of_their_own() {
        for definition in definitions() {
            assert!(definition.spec.group.ends_with(&format!(".{}", crate::names::DOMAIN)));
            for version in definition.spec.versions {
                let subresources = version.subresources.unwrap_or_default();
                assert!(subresources.status.is_some(), "{}", definition.spec.names.kind);
                assert!(!version.additional_printer_columns.unwrap_or_default().is_empty());
            }
        }
    }
}
