//! References to OpenStack credentials, in the shape of Cluster API Provider OpenStack.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Secret with OpenStack credentials: key `clouds.yaml` (and `cacert`, if the cloud has its own CA), key `cloud.conf` as the
/// cloud controller manager reads it, or the keys `openstack-auth-url` and so on of a Kluster of Kubernikus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityRef {
    /// Kind of the object that names the credentials: Secret, or ClusterIdentity for an OpenStackClusterIdentity of Cluster API
    /// Provider OpenStack.
    #[serde(rename = "type", default)]
    pub kind: IdentityKind,
    /// Name of the Secret, in the namespace of this object, or of the OpenStackClusterIdentity.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Entry of `clouds.yaml`. Ignored for the other formats.
    #[serde(default = "openstack")]
    #[schemars(length(min = 1, max = 253))]
    pub cloud_name: String,
    /// Region of the service catalogue. It overrides the region in the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub region: Option<String>,
}

/// Kind of the object that names credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IdentityKind {
    /// A Secret in the namespace of the object.
    #[default]
    Secret,
    /// An OpenStackClusterIdentity: a Secret of any namespace, and the namespaces that may use it.
    ClusterIdentity,
}

/// The name that python-openstackclient's documentation, and Cluster API's, use.
fn openstack() -> String {
    "openstack".to_owned()
}

/// One key of a Secret in the namespace of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of the Secret; Cluster API writes a kubeconfig under `value`.
    #[serde(default = "value")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn value() -> String {
    "value".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_fields_have_the_usual_defaults() {
        let identity: IdentityRef = serde_json::from_str(r#"{"name": "cloud-config"}"#).unwrap();
        assert_eq!((identity.kind, identity.cloud_name.as_str()), (IdentityKind::Secret, "openstack"));
        assert_eq!(identity.region, None);
        let key: SecretKeyRef = serde_json::from_str(r#"{"name": "prod-kubeconfig"}"#).unwrap();
        assert_eq!(key.key, "value");
    }
}
