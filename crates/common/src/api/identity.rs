//! Which OpenStack, as which project: the shape that Cluster API's OpenStack provider gave such references.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Secret with the login to OpenStack: key `clouds.yaml` (and `cacert`, if the cloud has its own CA), or key `cloud.conf`
/// as the cloud controller manager reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityRef {
    /// What holds the login. Secret is the only kind.
    #[serde(rename = "type", default)]
    pub kind: IdentityKind,
    /// Name of the Secret, in the namespace of this object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Which entry of `clouds.yaml`. Not looked at for a `cloud.conf`.
    #[serde(default = "openstack")]
    #[schemars(length(min = 1, max = 253))]
    pub cloud_name: String,
    /// Region of the service catalogue, where the login itself names none or another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub region: Option<String>,
}

/// What holds a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IdentityKind {
    /// A Secret in the namespace of the object.
    #[default]
    Secret,
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
    /// Which of its keys; Cluster API writes a kubeconfig under `value`.
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
    fn what_is_left_out_has_the_usual_name() {
        let identity: IdentityRef = serde_json::from_str(r#"{"name": "cloud-config"}"#).unwrap();
        assert_eq!((identity.kind, identity.cloud_name.as_str()), (IdentityKind::Secret, "openstack"));
        assert_eq!(identity.region, None);
        let key: SecretKeyRef = serde_json::from_str(r#"{"name": "prod-kubeconfig"}"#).unwrap();
        assert_eq!(key.key, "value");
    }
}
