//! A Node without a machine, and a kubelet for its pods as the test decides.
//!
//! kwok does this at scale, by rules for all pods. Here a test decides the outcome of each Job, disconnects a node at a chosen moment
//! and reboots it. The API server gets what a real kubelet reports: a Lease and conditions, the phases of each pod, and the
//! confirmation that a deleted pod is gone, which a disconnected node never sends.
//!
//! It has the permissions of its client, not those of `system:node:NAME`.

mod kubelet;
mod node;
mod pod;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub use pod::Outcome;

use kubelet::{Kubelet, Policy};
use node::Machine;

/// The settings of a node before it starts.
#[must_use = "a node starts with start()"]
pub struct Builder {
    machine: Machine,
    policy: Policy,
    heartbeat: Duration,
}

/// A running node. When it is dropped, it stops to report; [`HollowNode::remove`] deletes the Node too.
pub struct HollowNode {
    kubelet: Arc<Kubelet>,
    tasks: JoinSet<()>,
}

impl Builder {
    /// `spec.providerID`, such as `hcloud://1`.
    pub fn provider_id(mut self, id: impl Into<String>) -> Self {
        self.machine.provider_id = Some(id.into());
        self
    }

    /// The address that the node and all its pods have; 192.0.2.1 if not set.
    pub fn internal_ip(mut self, ip: impl Into<IpAddr>) -> Self {
        self.machine.internal_ip = ip.into();
        self
    }

    /// An ExternalIP; none if not set.
    pub fn external_ip(mut self, ip: impl Into<IpAddr>) -> Self {
        self.machine.external_ip = Some(ip.into());
        self
    }

    /// Labels beside those of a kubelet.
    pub fn labels<K: Into<String>, V: Into<String>>(
        mut self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.machine.labels.extend(labels.into_iter().map(|(key, value)| (key.into(), value.into())));
        self
    }

    /// Annotations.
    pub fn annotations<K: Into<String>, V: Into<String>>(
        mut self,
        annotations: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.machine
            .annotations
            .extend(annotations.into_iter().map(|(key, value)| (key.into(), value.into())));
        self
    }

    /// The interval of its heartbeat: 10 s if not set, as a kubelet's.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = interval;
        self
    }

    /// Decides each pod's outcome; all hang if not set.
    pub fn on_pod(mut self, policy: impl Fn(&Pod) -> Outcome + Send + Sync + 'static) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// Registers the Node, or takes over one of this name, and returns when the API server has it.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn start(self, client: Client) -> Result<HollowNode> {
        let name = self.machine.name.clone();
        let (kubelet, run) = Kubelet::new(client, self.machine, self.policy, self.heartbeat);
        kubelet.register().await.with_context(|| format!("hollow node {name}"))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(run);
        kubelet.pods().wait_until_ready().await?;
        Ok(HollowNode { kubelet, tasks })
    }
}

impl HollowNode {
    /// A node of this name.
    pub fn builder(name: impl Into<String>) -> Builder {
        let machine = Machine {
            name: name.into(),
            provider_id: None,
            internal_ip: Ipv4Addr::new(192, 0, 2, 1).into(),
            external_ip: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            boot_id: new_boot_id(),
            ready: true,
        };
        Builder { machine, policy: Arc::new(|_| Outcome::Hang), heartbeat: Duration::from_secs(10) }
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.kubelet.machine().name.clone()
    }

    /// Its boot ID.
    pub fn boot_id(&self) -> String {
        self.kubelet.machine().boot_id.clone()
    }

    /// Disconnects it: it reports nothing more, and its pods continue. Once this returns, nothing more arrives. The controller
    /// manager marks it as lost after its grace period.
    pub async fn silence(&self) {
        self.kubelet.silence().await;
    }

    /// Connects it again: it reports what happened meanwhile.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn resume(&self) -> Result<()> {
        self.kubelet.resume().await
    }

    /// Restarts the machine: a new boot ID, and containers that ran exit with 255. A disconnected node reports it after
    /// [`HollowNode::resume`].
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn reboot(&self) -> Result<()> {
        self.kubelet.lose_pods();
        self.kubelet.change(|machine| machine.boot_id = new_boot_id()).await
    }

    /// Reports Ready or NotReady; the heartbeat continues.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn set_ready(&self, ready: bool) -> Result<()> {
        self.kubelet.change(|machine| machine.ready = ready).await
    }

    /// Marks the Node (un)schedulable, as an administrator does.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn cordon(&self, cordoned: bool) -> Result<()> {
        self.patch(json!({ "spec": { "unschedulable": cordoned } })).await
    }

    /// Sets or removes a label, as an administrator does.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn label(&self, key: &str, value: Option<&str>) -> Result<()> {
        self.patch(json!({ "metadata": { "labels": { key: value } } })).await
    }

    /// Sets or removes an annotation, as an administrator does.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn annotate(&self, key: &str, value: Option<&str>) -> Result<()> {
        self.patch(json!({ "metadata": { "annotations": { key: value } } })).await
    }

    /// Decides the outcome of the pods that start from now on.
    pub fn on_pod(&self, policy: impl Fn(&Pod) -> Outcome + Send + Sync + 'static) {
        self.kubelet.set_policy(Arc::new(policy));
    }

    /// Ends the containers of a pod now with this exit code, whatever was decided. A disconnected node reports it after
    /// [`HollowNode::resume`].
    ///
    /// # Errors
    /// The node has seen no pod of this name.
    pub fn finish(&self, pod: &str, code: i32) -> Result<()> {
        self.kubelet.finish(pod, code)
    }

    /// The pods that are bound to it, from its cache.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.kubelet.pods().state()
    }

    /// The first pod that matches, as soon as there is one.
    ///
    /// # Errors
    /// The time is up.
    pub async fn wait_for_pod(&self, matches: impl Fn(&Pod) -> bool, within: Duration) -> Result<Arc<Pod>> {
        let find = async {
            loop {
                let mut changed = std::pin::pin!(self.kubelet.changed());
                changed.as_mut().enable();
                if let Some(pod) = self.kubelet.pods().find(|pod| matches(pod)) {
                    return pod;
                }
                changed.await;
            }
        };
        let found = tokio::time::timeout(within, find).await;
        found.with_context(|| format!("no such pod on {} within {within:?}", self.name()))
    }

    /// The Node as the API server has it.
    ///
    /// # Errors
    /// It is gone, or the API server refuses.
    pub async fn get(&self) -> Result<Node> {
        Ok(self.kubelet.nodes().get(&self.name()).await?)
    }

    /// Disconnects the machine and deletes the Node, as a cloud controller does for a deleted server.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn remove(mut self) -> Result<()> {
        self.silence().await;
        self.tasks.shutdown().await;
        let name = self.name();
        let gone = |result: kube::Result<()>| match result {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other,
        };
        gone(self.kubelet.nodes().delete(&name, &DeleteParams::default()).await.map(drop))?;
        gone(self.kubelet.leases().delete(&name, &DeleteParams::default()).await.map(drop))?;
        Ok(())
    }

    async fn patch(&self, body: Value) -> Result<()> {
        let nodes = self.kubelet.nodes();
        nodes.patch(&self.name(), &PatchParams::default(), &Patch::Merge(body)).await?;
        Ok(())
    }
}

/// In the form of /proc/sys/kernel/random/boot_id.
fn new_boot_id() -> String {
    let (high, low) = (RandomState::new().hash_one("boot"), RandomState::new().hash_one("id"));
    let hex = format!("{high:016x}{low:016x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}
