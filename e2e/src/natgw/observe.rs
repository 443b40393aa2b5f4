//! The observable state of a natgw environment: Jobs, pods, Events, writes, reconciliations.

use std::collections::{BTreeMap, HashSet};
use std::sync::PoisonError;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use natgw::names;
use serde_json::Value;

use super::{Gateway, TIMEOUT, TestEnv};
use crate::fault_proxy::Recorded;
use crate::program::{Launch, Program};

/// A floating IP's ID is that of its first server and this: all kinds of one project share their IDs in the stand-in.
pub(super) const FLOATING_IP_IDS: u64 = 500;

/// The prefix of natgw's annotations.
const OWN: &str = "natgw.perimeter.dev/";

/// natgw's annotations on a Node (a name without `natgw.perimeter.dev/`: its value) but the boot ID, which no two runs share, and
/// the hash of the script and the private address of the setup, which all setups of a run share.
pub fn persistent_annotations(node: &Node) -> BTreeMap<String, String> {
    let mut marks = marks(node);
    names::BOOT_ID_ANNOTATION.strip_prefix(OWN).and_then(|boot_id| marks.remove(boot_id));
    marks
}

fn marks(node: &Node) -> BTreeMap<String, String> {
    let own = |(key, value): (&String, &String)| Some((key.strip_prefix(OWN)?.to_owned(), value.clone()));
    let of_setup = [names::SETUP_HASH_ANNOTATION, names::PRIVATE_IP_ANNOTATION];
    let annotations = node.annotations().iter().filter(|(key, _)| !of_setup.contains(&key.as_str()));
    annotations.filter_map(own).collect()
}

/// `setup:198.51.100.1`, as natgw writes it into the labels of its Jobs and their pods; empty for other objects.
pub fn task_of<K: ResourceExt>(object: &K) -> String {
    let label = |key: &str| object.labels().get(key);
    match (label(names::TYPE_LABEL), label(names::IP_LABEL)) {
        (Some(kind), Some(ip)) => format!("{kind}:{ip}"),
        _ => String::new(),
    }
}

/// The actions in natgw's log, in order: the text of each step.
pub fn acts(natgw: &Program) -> Vec<String> {
    let lines = natgw.output().lines();
    let act = |line: &String| {
        let line: Value = serde_json::from_str(line).ok()?;
        // The level is warn if the reason is a problem, and error if the action failed.
        let done = line.get("level")? != "error" && line.get("action").is_some();
        done.then(|| line.get("msg")?.as_str().map(str::to_owned)).flatten()
    };
    lines.iter().filter_map(act).collect()
}

/// Runs a program to its end: its exit code and all that it wrote.
///
/// # Errors
/// It does not end within [`TIMEOUT`], or by a signal.
pub async fn run(launch: &Launch) -> Result<(i32, String)> {
    let program = launch.start()?;
    let status = program.wait_exit().await?;
    Ok((status.code().context("ended by a signal")?, program.output().lines().join("\n")))
}

impl Gateway {
    /// ID of the floating IP that its server was made with.
    #[must_use]
    pub fn floating_ip(&self) -> u64 {
        self.server + FLOATING_IP_IDS
    }

    /// Whether pods of this kind of Job (`setup`, `teardown`, …) that start from now on hang, instead of ending well.
    pub fn hang(&self, kind: &str, hangs: bool) {
        let mut hanging = self.jobs.hanging.lock().unwrap_or_else(PoisonError::into_inner);
        if hangs {
            hanging.insert(kind.to_owned());
        } else {
            hanging.remove(kind);
        }
    }

    /// Every Job pod that ran here so far, as `setup:198.51.100.1`, in order.
    #[must_use]
    pub fn tasks(&self) -> Vec<String> {
        self.jobs.started.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a pod for this task runs; its name.
    ///
    /// # Errors
    /// None does within [`TIMEOUT`].
    pub async fn wait_for_pod(&self, task: &str) -> Result<String> {
        let runs = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            task_of(pod) == task && phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        };
        Ok(self.node.wait_for_pod(runs, TIMEOUT).await?.name_any())
    }
}

impl TestEnv {
    /// natgw's Jobs in this environment.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        Ok(self.job_api().list(&ListParams::default()).await?.items)
    }

    /// The Jobs' API in natgw's namespace.
    #[must_use]
    pub fn job_api(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The pods' API in natgw's namespace.
    #[must_use]
    pub fn pod_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The Jobs of one Node.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn jobs_of(&self, gateway: &Gateway) -> Result<Vec<Job>> {
        let mut jobs = self.jobs().await?;
        jobs.retain(|job| job.annotations().get(names::NODE_NAME_ANNOTATION) == Some(&gateway.name));
        Ok(jobs)
    }

    /// Waits until a Job for this task is on the Node.
    ///
    /// # Errors
    /// There is none within [`TIMEOUT`].
    pub async fn wait_for_job(&self, gateway: &Gateway, task: &str) -> Result<Job> {
        let find =
            async || anyhow::Ok(self.jobs_of(gateway).await?.into_iter().find(|job| task_of(job) == task));
        self.wait(&format!("a Job {task} on {}", gateway.name), || async { Ok(find().await?.is_some()) })
            .await?;
        find().await?.context("the Job is gone")
    }

    /// Changes a Job as an administrator does.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn patch_job(&self, name: &str, body: Value) -> Result<()> {
        self.job_api().patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
        Ok(())
    }

    /// natgw's annotations on a Node, by the last part of their keys.
    ///
    /// # Errors
    /// The Node is not there.
    pub async fn annotations_of(&self, gateway: &Gateway) -> Result<BTreeMap<String, String>> {
        Ok(marks(&self.get(&gateway.name).await?))
    }

    /// Waits until the Node is annotated as set up for this IP since its last boot, and nothing is pending.
    ///
    /// # Errors
    /// It is not within [`TIMEOUT`].
    pub async fn wait_for_setup(&self, gateway: &Gateway, ip: &str) -> Result<()> {
        let desired = BTreeMap::from([
            ("nat-gateway".to_owned(), ip.to_owned()),
            ("setup-boot-id".to_owned(), gateway.node.boot_id()),
        ]);
        self.wait(&format!("{} to be set up for {ip}", gateway.name), || async {
            Ok(self.annotations_of(gateway).await? == desired)
        })
        .await
    }

    /// Waits until the Node is annotated as a client, and nothing is pending.
    ///
    /// # Errors
    /// It is not within [`TIMEOUT`].
    pub async fn wait_for_client(&self, node: &Gateway) -> Result<()> {
        self.wait(&format!("{} to be set up as a client", node.name), || async {
            let marks = self.annotations_of(node).await?;
            Ok(marks.contains_key("client") && !marks.contains_key("pending"))
        })
        .await
    }

    /// Waits until none of natgw's annotations is on the Node.
    ///
    /// # Errors
    /// Some are left after [`TIMEOUT`].
    pub async fn wait_for_no_annotations(&self, gateway: &Gateway) -> Result<()> {
        self.wait(&format!("{} without annotations", gateway.name), || async {
            Ok(self.annotations_of(gateway).await?.is_empty())
        })
        .await
    }

    /// Waits until the Node has the annotation and the taints that kube-controller-manager gives it, and until the API server's cache,
    /// where natgw's first list comes from, has it so. natgw's patch of the Node as it was before is refused.
    ///
    /// # Errors
    /// It has not within [`TIMEOUT`].
    pub async fn wait_for_taints(&self, gateway: &Gateway) -> Result<()> {
        self.wait(&format!("the taints of {}", gateway.name), || async {
            let node = self.get(&gateway.name).await?;
            let named = ListParams::default().fields(&format!("metadata.name={}", gateway.name));
            let cached = Api::<Node>::all(self.client.clone()).list(&named.match_any()).await?.items;
            let cached = cached.iter().any(|cached| cached.resource_version() == node.resource_version());
            let annotated = node.annotations().contains_key("node.alpha.kubernetes.io/ttl");
            let spec = node.spec.unwrap_or_default();
            let taints = spec.taints.unwrap_or_default();
            let has = |key: &str| taints.iter().any(|taint| taint.key == key);
            let cordoned = spec.unschedulable.unwrap_or_default();
            let current = has("node.kubernetes.io/unschedulable") == cordoned;
            Ok(cached && annotated && current && !has("node.kubernetes.io/not-ready"))
        })
        .await
    }

    /// Waits until so many more reconciliations have ended well. After two of them natgw has processed the state
    /// of the time of this call.
    ///
    /// # Errors
    /// It does not happen within [`TIMEOUT`].
    pub async fn reconciles(&self, natgw: &Program, more: u32) -> Result<()> {
        let ended = async || {
            let metrics = natgw.metrics().await?;
            let ended = metrics.sum("controller_runtime_reconcile_total", &[("result", "success")]);
            anyhow::Ok(ended.unwrap_or_default())
        };
        let target = ended().await? + f64::from(more);
        self.wait("more reconciles of natgw", || async { Ok(ended().await? >= target) }).await
    }

    /// Waits until the only sample of a metric has this value.
    ///
    /// # Errors
    /// It has not within [`TIMEOUT`].
    pub async fn wait_for_metric(
        &self,
        natgw: &Program,
        name: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<()> {
        self.wait(&format!("{name} {value}"), || async {
            Ok(natgw.metrics().await?.sum(name, labels) == Some(value))
        })
        .await
    }

    /// natgw's writes to both servers in the order in which they were forwarded, but those of Leases and Events.
    #[must_use]
    pub fn writes_in_order(&self) -> Vec<Recorded> {
        let mut writes = self.api_proxy.writes();
        writes.extend(self.cloud_proxy.writes());
        writes.sort_by_key(|write| write.write);
        writes
    }

    /// The accepted ones of [`TestEnv::writes_in_order`]. A list of Nodes may be a moment old, if the API server reads it from its
    /// cache. natgw's patch of such a Node is refused, because it carries the version of the list. Repetitions count once: where the
    /// event of a write is late, natgw repeats the write, which changes nothing.
    #[must_use]
    pub fn accepted_writes(&self) -> Vec<Recorded> {
        let mut seen = HashSet::new();
        let mut writes = self.writes_in_order();
        writes.retain(|write| {
            let mut body = write.json();
            if let Some(Value::Object(metadata)) = body.as_mut().and_then(|body| body.get_mut("metadata")) {
                metadata.remove("resourceVersion");
            }
            write.status.is_some_and(|code| code < 300)
                && seen.insert((write.method.clone(), write.path.clone(), body.map(|body| body.to_string())))
        });
        writes
    }

    /// Events about an object.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn events_about(&self, kind: &str, name: &str) -> Result<Vec<Event>> {
        let list = ListParams::default().fields(&format!("regarding.kind={kind},regarding.name={name}"));
        Ok(Api::<Event>::all(self.client.clone()).list(&list).await?.items)
    }

    /// Waits for an Event with this reason about an object.
    ///
    /// # Errors
    /// There is none within [`TIMEOUT`].
    pub async fn wait_for_event(&self, kind: &str, name: &str, reason: &str) -> Result<Event> {
        let find = async || {
            let events = self.events_about(kind, name).await?;
            anyhow::Ok(events.into_iter().find(|event| event.reason.as_deref() == Some(reason)))
        };
        let what = format!("an Event {reason} about {kind} {name}");
        self.wait(&what, || async { Ok(find().await?.is_some()) }).await?;
        find().await?.context(what)
    }
}
