//! Nodes of the cluster as a Snapshot has them.

use common::conditions::Status;
use common::k8s;
use kube::core::SelectorExt as _;

use super::network::View;
use super::snapshot::{Node, Ready};
use crate::config::Config;
use crate::names;

/// Reduces a Node to what a decision needs. None for an object without name or UID, which no API server serves.
#[must_use]
pub fn read(config: &Config, node: &k8s::Node, cloud: &View) -> Option<Node> {
    let metadata = &node.metadata;
    let name = metadata.name.clone()?;
    let annotation = |key: &str| node.annotation(key).map(str::to_owned);
    let labels = metadata.labels.clone().unwrap_or_default();
    Some(Node {
        uid: metadata.uid.clone()?,
        resource_version: metadata.resource_version.clone()?,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default(),
        terminating: metadata.deletion_timestamp.is_some(),
        selected: config.node_selector.matches(&labels),
        ready: match node.ready() {
            Status::True => Ready::True,
            Status::False => Ready::False,
            Status::Unknown => Ready::Unknown,
        },
        cordoned: node.spec.unschedulable,
        boot_id: node.status.node_info.boot_id.clone(),
        label: node.label(&config.floating_ip_label).map(str::to_owned),
        setup: annotation(&config.setup_annotation),
        client: annotation(names::CLIENT_ANNOTATION),
        setup_boot_id: annotation(names::BOOT_ID_ANNOTATION),
        pending: annotation(names::PENDING_ANNOTATION),
        // A number or time that a person has mangled only makes the next try come sooner.
        failures: annotation(names::FAILURES_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or(0),
        retry_after: annotation(names::RETRY_AFTER_ANNOTATION).and_then(|text| text.parse().ok()),
        forget: node.annotation(names::FORGET_ANNOTATION) == Some("true"),
        role: node.label(&config.role_label).is_some(),
        server: cloud.server_of(&name, &node.spec.provider_id),
        name,
    })
}
