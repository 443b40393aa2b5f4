//! Writes to Nodes. They can be repeated: each is a merge patch to a fixed content, with the resourceVersion of the plan, so that
//! the API server refuses it (409) if the Node has changed since. Before the route is moved to a Node, it is compared with the
//! API server's.

use common::plan::Action as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::config::Config;
use crate::error::Error;
use crate::names;
use crate::observe::nodes;
use crate::observe::snapshot::{self, Server};
use crate::plan::Action;
use crate::plan::action::NodeRef;
use crate::task::Role;

/// The annotations and labels that an act changes; a null removes.
fn content(config: &Config, action: &Action) -> Option<Value> {
    let labels = |key: &str, value: Value| json!({"labels": {key: value}});
    let annotations = |entries: Vec<(&str, Value)>| {
        let entries: serde_json::Map<String, Value> =
            entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        json!({ "annotations": entries })
    };
    let settled = [
        (names::PENDING_ANNOTATION, Value::Null),
        (names::FAILURES_ANNOTATION, Value::Null),
        (names::RETRY_AFTER_ANNOTATION, Value::Null),
    ];
    let part = |role| match role {
        Role::Gateway => config.setup_annotation.as_str(),
        Role::Client => names::CLIENT_ANNOTATION,
    };
    Some(match action {
        Action::SetRole { .. } => labels(&config.role_label, json!("")),
        Action::ClearRole { .. } => labels(&config.role_label, Value::Null),
        Action::LabelFloatingIP { ip, .. } => labels(&config.floating_ip_label, json!(ip)),
        Action::RecordPending { task, failures, .. } => annotations(vec![
            (names::PENDING_ANNOTATION, json!(task)),
            (
                names::FAILURES_ANNOTATION,
                if *failures == 0 { Value::Null } else { json!(failures.to_string()) },
            ),
            (names::RETRY_AFTER_ANNOTATION, Value::Null),
        ]),
        Action::RecordSetup { task, boot_id, private_ip, hash, .. } => {
            let mut entries = settled.to_vec();
            entries.push((part(task.kind.role()), json!(task.ip)));
            entries.push((names::BOOT_ID_ANNOTATION, json!(boot_id)));
            entries.push((names::PRIVATE_IP_ANNOTATION, json!(private_ip)));
            entries.push((names::SETUP_HASH_ANNOTATION, json!(hash)));
            annotations(entries)
        }
        Action::RecordTeardown { task, .. } => {
            let mut entries = settled.to_vec();
            entries.push((part(task.kind.role()), Value::Null));
            entries.push((names::BOOT_ID_ANNOTATION, Value::Null));
            entries.push((names::PRIVATE_IP_ANNOTATION, Value::Null));
            entries.push((names::SETUP_HASH_ANNOTATION, Value::Null));
            annotations(entries)
        }
        Action::RecordFailure { failures, retry_after, .. } => annotations(vec![
            (names::FAILURES_ANNOTATION, json!(failures.to_string())),
            (names::RETRY_AFTER_ANNOTATION, json!(retry_after.to_string())),
        ]),
        Action::Forget { .. } => {
            let mut entries = settled.to_vec();
            entries.extend(
                [
                    &config.setup_annotation,
                    names::CLIENT_ANNOTATION,
                    names::BOOT_ID_ANNOTATION,
                    names::PRIVATE_IP_ANNOTATION,
                    names::SETUP_HASH_ANNOTATION,
                    names::FORGET_ANNOTATION,
                ]
                .map(|key| (key, Value::Null)),
            );
            annotations(entries)
        }
        Action::MoveRoute { .. }
        | Action::RemoveRoute { .. }
        | Action::DeleteJob { .. }
        | Action::CreateJob { .. } => {
            return None;
        }
    })
}

/// Patches the Node of an act. Returns its new resourceVersion, for a later step of the same plan.
///
/// # Errors
/// [`Error::Outdated`] if the Node has changed or is another of the same name, [`Error::Kubernetes`] otherwise.
pub async fn patch(
    client: &kube::Client,
    config: &Config,
    action: &Action,
    node: &NodeRef,
    resource_version: &str,
) -> Result<String, Error> {
    let Some(mut metadata) = content(config, action) else {
        return Err(Error::Outdated(format!("{} writes to no Node", action.name())));
    };
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("uid".into(), json!(node.uid));
        metadata.insert("resourceVersion".into(), json!(resource_version));
    }
    let params = PatchParams { field_manager: Some(names::MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    match Api::<Node>::all(client.clone()).patch_metadata(&node.name, &params, &patch).await {
        Ok(patched) => Ok(patched.metadata.resource_version.unwrap_or_default()),
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {
            Err(Error::Outdated(format!("Node {} has changed", node.name)))
        }
        Err(cause) => Err(Error::Kubernetes { what: format!("patch Node {}", node.name), cause }),
    }
}

/// Reads the Node again, for a step that writes to the cloud: a cache whose watch hangs misses a cordon, and the cloud has no
/// precondition for it. Returns its newest resourceVersion.
///
/// `resource_version` is that of the last write of this plan, or of the plan; `seen` is the Node of the plan. A write of another
/// program that changed nothing that decisions depend on, as the kubelet's every few minutes, is ignored.
///
/// # Errors
/// [`Error::Outdated`] if the Node has changed, is gone or is another of the same name, [`Error::Kubernetes`] otherwise.
pub async fn check(
    client: &kube::Client,
    config: &Config,
    node: &NodeRef,
    seen: Option<&snapshot::Node>,
    resource_version: &str,
) -> Result<String, Error> {
    // A list of one: the right to list Nodes is there for the cache.
    let by_name = ListParams::default().fields(&format!("metadata.name={}", node.name));
    let found = Api::<common::k8s::Node>::all(client.clone()).list(&by_name).await;
    let found = found.map_err(|cause| Error::Kubernetes { what: "list Nodes".to_owned(), cause })?.items;
    let newest = found.iter().find_map(|found| {
        let now = nodes::read(config, found, |_, _| seen.map_or(Server::Unknown, |seen| seen.server))?;
        (now.uid == node.uid).then_some(now)
    });
    let outdated = || Error::Outdated(format!("Node {} has changed", node.name));
    let mut newest = newest.ok_or_else(outdated)?;
    let version = std::mem::take(&mut newest.resource_version);
    let is_the_same =
        seen.is_some_and(|seen| newest == snapshot::Node { resource_version: String::new(), ..seen.clone() });
    if is_the_same || version == resource_version { Ok(version) } else { Err(outdated()) }
}

#[cfg(test)]
mod tests;
