//! The fields of a Cluster that are read, from the API server's response.

use common::api::deorbit_binding::PROTECT_ANNOTATION;
use serde_json::Value;

use super::super::snapshot::{ObjectId, lasting};
use crate::names::{self, INFRASTRUCTURE_GROUP};

/// The kind of the OpenStack provider.
pub const OPENSTACK: &str = "OpenStackCluster";

/// A Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The Cluster's API version, kind, namespace, name and UID.
    pub object: ObjectId,
    /// It is being deleted.
    pub terminating: bool,
    /// It has the protection annotation.
    pub protected: bool,
    /// Its infrastructure.
    pub infrastructure: Option<Infrastructure>,
}

/// A reference to an infrastructure object: spec.infrastructureRef of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infrastructure {
    /// API group.
    pub group: String,
    /// Version; contract v1beta2 has none in the reference.
    pub version: Option<String>,
    /// `OpenStackCluster`.
    pub kind: String,
    /// Its name, in the namespace of the Cluster.
    pub name: String,
}

impl Infrastructure {
    /// Whether it is OpenStack's.
    #[must_use]
    pub fn is_openstack(&self) -> bool {
        self.group == INFRASTRUCTURE_GROUP && self.kind == OPENSTACK
    }
}

/// Reads a Cluster; None for an object without name, namespace or UID, which no API server serves.
#[must_use]
pub fn read(api_version: &str, cluster: &Value) -> Option<Cluster> {
    let text = |pointer: &str| cluster.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let metadata = cluster.get("metadata")?;
    let protection =
        metadata.get("annotations").and_then(|all| all.get(PROTECT_ANNOTATION)).and_then(Value::as_str);
    let infrastructure = text("/spec/infrastructureRef/name").and_then(|name| {
        let (group, version) =
            match (text("/spec/infrastructureRef/apiGroup"), text("/spec/infrastructureRef/apiVersion")) {
                (Some(group), _) => (group, None),
                (None, Some(both)) => {
                    let (group, version) = both.split_once('/')?;
                    (group.to_owned(), Some(version.to_owned()))
                }
                (None, None) => return None,
            };
        Some(Infrastructure { group, version, kind: text("/spec/infrastructureRef/kind")?, name })
    });
    Some(Cluster {
        object: ObjectId {
            api_version: lasting(api_version),
            kind: "Cluster",
            namespace: Some(text("/metadata/namespace")?),
            name: text("/metadata/name")?,
            uid: text("/metadata/uid")?,
        },
        terminating: metadata.get("deletionTimestamp").is_some_and(Value::is_string),
        protected: protection.is_some_and(names::protects),
        infrastructure,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_of_both_contracts_are_read() {
        let cluster = |reference: Value| {
            let cluster = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "u" }, "spec": { "infrastructureRef": reference } });
            read("cluster.x-k8s.io/v1beta1", &cluster).unwrap().infrastructure
        };
        let old = cluster(json!({ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": OPENSTACK, "name": "i" })).unwrap();
        assert_eq!((old.is_openstack(), old.version.as_deref()), (true, Some("v1beta1")));
        let new =
            cluster(json!({ "apiGroup": INFRASTRUCTURE_GROUP, "kind": OPENSTACK, "name": "i" })).unwrap();
        assert_eq!((new.is_openstack(), new.version), (true, None));
        let other =
            cluster(json!({ "apiGroup": INFRASTRUCTURE_GROUP, "kind": "AWSCluster", "name": "i" })).unwrap();
        assert!(!other.is_openstack());
        assert_eq!(cluster(Value::Null), None);
    }
}
