//! Jobs on Nodes. Repeatable: a Job's name is a hash of the decision that made it, so it cannot be created twice; it is deleted
//! by UID, so that a later one of the same name is not meant.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{
    Job, JobSpec as BatchJobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, HostPathVolumeSource, PodSpec, PodTemplateSpec, SecurityContext, Toleration, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};

use crate::config::{Config, Jobs};
use crate::error::Error;
use crate::names;
use crate::plan::action::{JobSpec, NodeRef};
use crate::plan::jobs::node_hash;
use crate::task::{Kind, Role};

/// Retries of the pod inside one Job: a Job that fails four times in a row needs a person or a pause.
const BACKOFF_LIMIT: i32 = 3;
/// Seconds for all tries of one Job together; the image may have to be pulled first.
const ACTIVE_DEADLINE_SECONDS: i64 = 300;

/// The exit code of a verify script that has found a difference.
const DIFFERS: i32 = 5;

/// Creates the Job, if the Node has no other.
///
/// # Errors
/// [`Error::Outdated`] if the API server has a Job of this Node that the plan did not have, also this one: the cache is behind.
/// [`Error::Kubernetes`] otherwise.
pub async fn create(
    client: &kube::Client,
    config: &Config,
    node: &NodeRef,
    spec: &JobSpec,
) -> Result<(), Error> {
    let api = Api::<Job>::namespaced(client.clone(), &config.namespace);
    // Not from the cache: a Job that a predecessor made a moment ago must not run beside this one.
    let of_node = format!("{},{}={}", managed_by(), names::NODE_LABEL, node_hash(&node.name));
    let others = api
        .list_metadata(&ListParams::default().labels(&of_node))
        .await
        .map_err(|cause| Error::Kubernetes { what: "list Jobs".to_owned(), cause })?;
    if let Some(other) = others.items.iter().find_map(|job| job.metadata.name.as_ref()) {
        return Err(Error::Outdated(format!("Node {} has the Job {other} already", node.name)));
    }
    let params = PostParams { field_manager: Some(names::MANAGER.into()), ..PostParams::default() };
    match api.create(&params, &render(config, node, spec)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            Err(Error::Outdated(format!("the Job {} exists already", spec.name)))
        }
        Err(cause) => Err(Error::Kubernetes { what: format!("create Job {}", spec.name), cause }),
    }
}

/// Deletes the Job and, first, its pods: it is gone only when they are.
///
/// # Errors
/// [`Error::Kubernetes`]; a Job that is gone, or another of its name, is no error.
pub async fn delete(client: &kube::Client, config: &Config, name: &str, uid: &str) -> Result<(), Error> {
    let params = DeleteParams {
        // The default for Jobs of batch/v1 leaves the pods behind.
        preconditions: Some(Preconditions { uid: Some(uid.into()), resource_version: None }),
        ..DeleteParams::foreground()
    };
    match Api::<Job>::namespaced(client.clone(), &config.namespace).delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(cause) => Err(Error::Kubernetes { what: format!("delete Job {name}"), cause }),
    }
}

/// The label selector of all of natgw's Jobs.
#[must_use]
pub fn managed_by() -> String {
    format!("{}={}", common::names::MANAGED_BY, names::MANAGER)
}

fn script(jobs: &Jobs, kind: Kind) -> &str {
    match kind {
        Kind::Setup => &jobs.setup_script,
        Kind::Teardown => &jobs.teardown_script,
        Kind::ClientSetup => &jobs.client_setup_script,
        Kind::ClientTeardown => &jobs.client_teardown_script,
        Kind::Verify => &jobs.verify_script,
    }
}

/// The Job as it is sent. It is rendered from the configuration each time, so that no value of another Job is in it.
#[must_use]
pub fn render(config: &Config, node: &NodeRef, spec: &JobSpec) -> Job {
    let labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), names::PROGRAM.to_owned()),
        ("app.kubernetes.io/component".to_owned(), spec.task.kind.word().to_owned()),
        (common::names::MANAGED_BY.to_owned(), names::MANAGER.to_owned()),
        (names::TYPE_LABEL.to_owned(), spec.task.kind.word().to_owned()),
        (names::NODE_LABEL.to_owned(), node_hash(&node.name)),
        (names::IP_LABEL.to_owned(), spec.task.ip.to_string()),
        (names::GENERATION_LABEL.to_owned(), spec.generation.clone()),
    ]);
    let annotations = BTreeMap::from([
        (names::NODE_NAME_ANNOTATION.to_owned(), node.name.clone()),
        (names::ATTEMPT_ANNOTATION.to_owned(), spec.attempt.to_string()),
    ]);
    Job {
        metadata: ObjectMeta {
            name: Some(spec.name.clone()),
            namespace: Some(config.namespace.clone()),
            labels: Some(labels.clone()),
            annotations: Some(annotations.clone()),
            // A deleted Node takes its Jobs with it. Without blockOwnerDeletion, which would need rights on Nodes' finalizers.
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: node.name.clone(),
                uid: node.uid.clone(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(BatchJobSpec {
            backoff_limit: Some(BACKOFF_LIMIT),
            active_deadline_seconds: Some(ACTIVE_DEADLINE_SECONDS),
            // The next pod only when the last one has really ended: never two at work on one Node.
            pod_replacement_policy: Some("Failed".into()),
            // A difference is a result, and the reason of the Job's condition reports it. Other failures are tried again.
            pod_failure_policy: (spec.task.kind == Kind::Verify).then(|| PodFailurePolicy {
                rules: vec![PodFailurePolicyRule {
                    action: "FailJob".into(),
                    on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                        operator: "In".into(),
                        values: vec![DIFFERS],
                        ..PodFailurePolicyOnExitCodesRequirement::default()
                    }),
                    ..PodFailurePolicyRule::default()
                }],
            }),
            ttl_seconds_after_finished: i32::try_from(
                Duration::from(config.jobs.ttl_after_finished).as_secs(),
            )
            .ok(),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    annotations: Some(annotations),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(config, node, spec)),
            },
            ..BatchJobSpec::default()
        }),
        status: None,
    }
}

fn pod(config: &Config, node: &NodeRef, spec: &JobSpec) -> PodSpec {
    PodSpec {
        // Not by the scheduler: a cordoned or tainted Node has to be set up and torn down as well.
        node_name: Some(node.name.clone()),
        tolerations: Some(vec![Toleration { operator: Some("Exists".into()), ..Toleration::default() }]),
        host_network: Some(true),
        // With OnFailure the pod, and its log with it, is removed when the Job gives up.
        restart_policy: Some("Never".into()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        containers: vec![Container {
            name: spec.task.kind.word().to_owned(),
            image: Some(config.jobs.image.clone()),
            command: Some(vec![
                "/bin/chroot".into(),
                "/host".into(),
                "/bin/bash".into(),
                "-c".into(),
                // The kubelet expands $(NAME) and $$ in commands (core/v1 Container); the script must arrive unchanged.
                script(&config.jobs, spec.task.kind).replace('$', "$$"),
            ]),
            env: Some(environment(config, node, spec)),
            security_context: Some(SecurityContext {
                privileged: Some(true),
                // Against the user of the image: chroot(2) and the script need root.
                run_as_user: Some(0),
                run_as_group: Some(0),
                ..SecurityContext::default()
            }),
            volume_mounts: Some(vec![VolumeMount {
                name: "host".into(),
                mount_path: "/host".into(),
                ..VolumeMount::default()
            }]),
            ..Container::default()
        }],
        volumes: Some(vec![Volume {
            name: "host".into(),
            host_path: Some(HostPathVolumeSource { path: "/".into(), type_: Some("Directory".into()) }),
            ..Volume::default()
        }]),
        ..PodSpec::default()
    }
}

fn environment(config: &Config, node: &NodeRef, spec: &JobSpec) -> Vec<EnvVar> {
    let floating_ip =
        (spec.task.kind.role() == Role::Gateway).then(|| ("FLOATING_IP", spec.task.ip.to_string()));
    let own = [
        floating_ip,
        Some(("JOB_TYPE", spec.task.kind.word().to_owned())),
        Some(("NODE_NAME", node.name.clone())),
        spec.private_ip.map(|ip| ("PRIVATE_IP", ip.to_string())),
        Some(("NETWORK_CIDR", spec.network_cidr.to_string())),
        Some(("NETWORK_GATEWAY", spec.network_gateway.to_string())),
    ];
    let variable =
        |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    own.into_iter()
        .flatten()
        .map(|(name, value)| variable(name, value))
        .chain(config.jobs.env.iter().map(|(name, value)| variable(name, value.clone())))
        .collect()
}

#[cfg(test)]
mod tests;
