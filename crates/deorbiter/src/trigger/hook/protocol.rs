//! The wire format of Cluster API's runtime hooks, `hooks.runtime.cluster.x-k8s.io/v1alpha1`: JSON over HTTPS, POST, the status
//! is always 200. Facts: Cluster API's `api/runtime/hooks/v1alpha1` and `exp/runtime/server`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Group and version of the hooks.
pub const API_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";
/// The path of discovery.
pub const DISCOVERY_PATH: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery";
/// The path of the hook, which ends with the handler's name.
pub const DELETE_PATH: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterdelete/deorbit";
/// Name of the handler: a DNS label. Cluster API shows it as `deorbit.<name of the ExtensionConfig>`.
const HANDLER: &str = "deorbit";
/// How long Cluster API waits for a response, in seconds: enough for four requests to an API server. At most 30 are allowed.
const TIMEOUT: u32 = 15;
/// After how many seconds Cluster API calls again at the latest; it also calls when the Cluster changes.
pub const RETRY_SECONDS: u32 = 10;

/// The type of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `DiscoveryRequest`, `BeforeClusterDeleteRequest`.
    pub kind: String,
    /// The Cluster, for BeforeClusterDelete.
    pub cluster: Named,
}

/// The Cluster of a request, as far as it identifies one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Named {
    /// `cluster.x-k8s.io/v1beta1`; empty from Cluster API 1.11 on, which sends a Cluster that it has converted.
    pub api_version: String,
    /// `Cluster`; empty in the same way.
    pub kind: String,
    /// Its metadata.
    pub metadata: Metadata,
}

/// Part of its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// metadata.namespace
    pub namespace: String,
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
}

/// The response of BeforeClusterDelete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    api_version: &'static str,
    kind: &'static str,
    status: &'static str,
    message: String,
    retry_after_seconds: u32,
}

impl Response {
    /// The deletion goes on.
    #[must_use]
    pub fn go_on(message: String) -> Response {
        Response::new("Success", message, 0)
    }

    /// The deletion waits. The text becomes a condition of the Cluster: it must not change with each call.
    #[must_use]
    pub fn wait(message: String) -> Response {
        Response::new("Success", message, RETRY_SECONDS)
    }

    /// The deletion does not go on, and the message says why. Cluster API calls again with a growing backoff.
    #[must_use]
    pub fn refuse(message: String) -> Response {
        Response::new("Failure", message, 0)
    }

    /// One of `wait`, `go_on`, `refused`: for the metric.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.status, self.retry_after_seconds) {
            ("Success", 0) => "go_on",
            ("Success", _) => "wait",
            _ => "refused",
        }
    }

    fn new(status: &'static str, message: String, retry_after_seconds: u32) -> Response {
        let kind = "BeforeClusterDeleteResponse";
        Response { api_version: API_VERSION, kind, status, message, retry_after_seconds }
    }
}

/// The response of discovery. A failure of the hook stops the deletion: failurePolicy Fail.
#[must_use]
pub fn discovery() -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "DiscoveryResponse",
        "status": "Success",
        "message": "",
        "handlers": [{
            "name": HANDLER,
            "requestHook": { "apiVersion": API_VERSION, "hook": "BeforeClusterDelete" },
            "timeoutSeconds": TIMEOUT,
            "failurePolicy": "Fail",
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_as_cluster_api_makes_them() {
        assert_eq!(DISCOVERY_PATH, format!("/{API_VERSION}/{}", "Discovery".to_lowercase()));
        assert_eq!(DELETE_PATH, format!("/{API_VERSION}/{}/{HANDLER}", "BeforeClusterDelete".to_lowercase()));
    }

    #[test]
    fn unknown_fields_of_a_request_are_ignored() {
        let request: Request = serde_json::from_value(json!({
            "apiVersion": API_VERSION, "kind": "BeforeClusterDeleteRequest", "settings": { "a": "b" },
            "cluster": {
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
                "metadata": { "name": "prod", "namespace": "team", "uid": "u", "labels": {} },
                "spec": { "topology": { "class": "c" } },
            },
        }))
        .unwrap();
        assert_eq!(request.cluster.metadata.name, "prod");
    }

    #[test]
    fn responses_have_the_documented_fields() {
        assert_eq!(
            serde_json::to_value(Response::wait("m".into())).unwrap(),
            json!({ "apiVersion": API_VERSION, "kind": "BeforeClusterDeleteResponse", "status": "Success",
                "message": "m", "retryAfterSeconds": RETRY_SECONDS })
        );
        assert_eq!(serde_json::to_value(Response::refuse("m".into())).unwrap()["status"], "Failure");
    }
}
