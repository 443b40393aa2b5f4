//! The fields of a Node that controllers of the network read.

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};

use super::{metadata, or_default};
use crate::conditions::Status;

/// `v1/Node`. `metadata` has name, uid, resourceVersion, labels, annotations and the two timestamps; nothing else.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = core::Node)]
pub struct Node {
    /// See above.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: Spec,
    /// The state that its kubelet reports.
    #[serde(default, deserialize_with = "or_default")]
    pub status: NodeStatus,
}

/// The read part of `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// `hcloud://123`; empty until the cloud's controller has seen the Node.
    #[serde(
        rename = "providerID",
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub provider_id: String,
    /// Cordoned.
    #[serde(deserialize_with = "or_default")]
    pub unschedulable: bool,
}

/// The read part of `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// `Ready` alone, without heartbeat and transition times.
    #[serde(deserialize_with = "only_ready")]
    pub conditions: Vec<Condition>,
    /// Of the running system.
    #[serde(deserialize_with = "or_default")]
    pub node_info: NodeInfo,
}

/// One condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// `Ready`
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: Status,
}

/// The read part of `status.nodeInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    /// Changes with every boot; empty where the kubelet does not know it.
    #[serde(rename = "bootID", deserialize_with = "or_default")]
    pub boot_id: String,
}

/// The other conditions (memory, disks and so on) take most of the memory of a slim Node, and no controller reads them.
fn only_ready<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let mut conditions: Vec<Condition> = or_default(deserializer)?;
    conditions.retain(|condition| condition.kind == "Ready");
    conditions.shrink_to_fit();
    Ok(conditions)
}

impl Node {
    /// Whether its kubelet says that it is Ready; `Unknown` also where the condition is missing.
    #[must_use]
    pub fn ready(&self) -> Status {
        let ready = self.status.conditions.iter().find(|condition| condition.kind == "Ready");
        ready.map_or(Status::Unknown, |condition| condition.status)
    }

    /// One annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// One label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(json: serde_json::Value) -> Node {
        serde_json::from_value(json).unwrap()
    }

    fn full(heartbeat: &str, version: &str) -> serde_json::Value {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "node-1", "uid": "u", "resourceVersion": version, "labels": {"a": "b"},
                "creationTimestamp": "2026-11-21T12:00:00Z", "annotations": {"x": "y"},
                "managedFields": [{"manager": "kubelet", "operation": "Update", "time": heartbeat,
                    "fieldsV1": {"f:status": {"f:conditions": {}}}}],
            },
            "spec": {"providerID": "hcloud://7", "unschedulable": true, "podCIDR": "10.0.0.0/24"},
            "status": {
                "conditions": [
                    {"type": "DiskPressure", "status": "False", "lastHeartbeatTime": heartbeat},
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat, "lastTransitionTime": heartbeat,
                     "reason": "KubeletReady", "message": "ok"},
                ],
                "nodeInfo": {"bootID": "boot", "machineID": "m", "kernelVersion": "6"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
                "images": [{"names": ["a"], "sizeBytes": 1}],
            },
        })
    }

    #[test]
    fn only_what_is_read_is_kept() {
        let node = decode(full("2026-11-21T12:00:00Z", "5"));
        assert_eq!(node.spec, Spec { provider_id: "hcloud://7".into(), unschedulable: true });
        assert_eq!(node.status.node_info.boot_id, "boot");
        assert_eq!(node.status.conditions.len(), 1);
        assert_eq!(node.ready(), Status::True);
        assert_eq!((node.label("a"), node.annotation("x"), node.label("z")), (Some("b"), Some("y"), None));
        assert!(node.metadata.managed_fields.is_none());
    }

    #[test]
    fn a_heartbeat_is_no_change_but_its_version() {
        let (before, mut after) =
            (decode(full("2026-11-21T12:00:00Z", "5")), decode(full("2026-11-21T12:05:00Z", "6")));
        assert_ne!(before, after);
        after.metadata.resource_version = before.metadata.resource_version.clone();
        assert_eq!(before, after);
    }

    #[test]
    fn absent_and_null_are_the_same() {
        let bare = decode(serde_json::json!({"metadata": {"name": "n"}}));
        let null = decode(
            serde_json::json!({"metadata": {"name": "n", "labels": null}, "spec": {"providerID": null},
            "status": {"conditions": null, "nodeInfo": null}}),
        );
        assert_eq!(bare, null);
        assert_eq!(bare.ready(), Status::Unknown);
        assert!(bare.metadata.labels.is_none());
    }

    #[test]
    fn the_view_names_the_real_kind() {
        assert_eq!(Node::url_path(&(), None), "/api/v1/nodes");
        assert_eq!(Node::kind(&()), "Node");
    }
}
