//! The two loops of a hollow node: heartbeats, and pods. Neither writes while the node is disconnected.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::reflector::{Store, reflector, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::{Notify, RwLock};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::node::Machine;
use super::pod::{Course, Outcome, Step};
use crate::wait;

/// A call that takes longer is dropped, as by a kubelet; the next heartbeat retries.
const CALL: Duration = Duration::from_secs(10);

const FIELD_MANAGER: &str = "hollow-kubelet";

pub(super) type Policy = Arc<dyn Fn(&Pod) -> Outcome + Send + Sync>;

/// The state that the loops and the test share.
pub(super) struct Kubelet {
    client: Client,
    heartbeat: Duration,
    machine: Mutex<Machine>,
    policy: Mutex<Policy>,
    courses: Mutex<HashMap<String, Course>>,
    /// Held for reading during a write; true while the node is disconnected. Once [`Kubelet::silence`] returns, nothing more
    /// arrives.
    cut: RwLock<bool>,
    /// Held during a report: one that began earlier would overwrite a later one with what the machine was.
    reporting: tokio::sync::Mutex<()>,
    wake: Notify,
    changed: Notify,
    pods: Store<Pod>,
}

impl Kubelet {
    /// Both loops, to be run as tasks.
    pub(super) fn new(
        client: Client,
        machine: Machine,
        policy: Policy,
        heartbeat: Duration,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + 'static) {
        let (pods, writer) = store();
        let api: Api<Pod> = Api::all(client.clone());
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", machine.name));
        let kubelet = Arc::new(Self {
            client,
            heartbeat,
            machine: Mutex::new(machine),
            policy: Mutex::new(policy),
            courses: Mutex::default(),
            cut: RwLock::new(false),
            reporting: tokio::sync::Mutex::default(),
            wake: Notify::new(),
            changed: Notify::new(),
            pods,
        });
        let (heartbeat_loop, pod_loop, watching) = (kubelet.clone(), kubelet.clone(), kubelet.clone());
        let watch = async move {
            let mut events = std::pin::pin!(reflector(writer, watcher(api, mine)).default_backoff());
            while let Some(event) = events.next().await {
                if let Err(error) = event {
                    tracing::debug!(%error, "hollow node: watch of pods");
                }
                watching.wake.notify_one();
                watching.changed.notify_waiters();
            }
        };
        let run = async move {
            futures::join!(watch, heartbeat_loop.heartbeats(), pod_loop.pod_steps());
        };
        (kubelet, run)
    }

    /// Registers the Node, new or existing, with the first heartbeat.
    pub(super) async fn register(&self) -> Result<()> {
        let machine = self.machine().clone();
        let body = machine.registration(Timestamp::now());
        let node: Node = serde_json::from_value(body.clone())?;
        match self.nodes().create(&Default::default(), &node).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let metadata = json!({ "metadata": body.get("metadata"), "spec": body.get("spec") });
                self.nodes().patch(&machine.name, &PatchParams::default(), &Patch::Merge(metadata)).await?;
            }
            other => drop(other?),
        }
        let heartbeat = async || anyhow::Ok((self.report().await?, self.renew_lease().await?));
        repeated(&format!("the first heartbeat of {}", machine.name), heartbeat).await.map(drop)
    }

    /// Disconnects the node.
    pub(super) async fn silence(&self) {
        *self.cut.write().await = true;
    }

    /// Connects the node again, and reports what changed meanwhile.
    pub(super) async fn resume(&self) -> Result<()> {
        *self.cut.write().await = false;
        self.wake.notify_one();
        let heartbeat = async || anyhow::Ok((self.renew_lease().await?, self.report().await?));
        repeated("a heartbeat after a silence", heartbeat).await.map(drop)
    }

    /// Changes the machine, and reports it if connected.
    pub(super) async fn change(&self, change: impl FnOnce(&mut Machine)) -> Result<()> {
        change(&mut self.machine());
        let report = async || self.report().await;
        repeated("the report of a change", report).await
    }

    /// The containers that ran are lost.
    pub(super) fn lose_pods(&self) {
        let now = Instant::now();
        self.courses().values_mut().for_each(|course| course.lose(now));
        self.wake.notify_one();
    }

    /// Ends the containers of a pod.
    pub(super) fn finish(&self, pod: &str, code: i32) -> Result<()> {
        let found = self.pods.find(|candidate| candidate.name_any() == pod);
        let found = found.with_context(|| format!("no pod {pod} on this node"))?;
        let now = Instant::now();
        self.course(&found, |course| course.end(code, now));
        self.wake.notify_one();
        Ok(())
    }

    pub(super) fn pods(&self) -> &Store<Pod> {
        &self.pods
    }

    /// The next change of a pod in the cache; to be called before the pods are read.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    pub(super) fn set_policy(&self, policy: Policy) {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(super) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "kube-node-lease")
    }

    async fn heartbeats(&self) {
        let mut heartbeat = interval(self.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            heartbeat.tick().await;
            let reported = async {
                self.renew_lease().await?;
                self.report().await
            };
            if let Err(error) = reported.await {
                tracing::debug!(%error, "hollow node: heartbeat");
            }
        }
    }

    async fn pod_steps(&self) {
        loop {
            let due = self.take_steps().await;
            // Also after a failed step: it is retried with the next heartbeat.
            let due = due.unwrap_or_else(|| Instant::now() + self.heartbeat);
            tokio::select! {
                () = self.wake.notified() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// Takes the next step of each pod; returns the time of the next one.
    async fn take_steps(&self) -> Option<Instant> {
        let pods = self.pods.state();
        self.courses().retain(|uid, _| pods.iter().any(|pod| pod.uid().as_ref() == Some(uid)));
        let mut failed = false;
        for pod in &pods {
            loop {
                let now = Instant::now();
                let Some(step) = self.course(pod, |course| course.next(pod, now)) else { break };
                match self.take(pod, step).await {
                    Ok(true) => self.course(pod, |course| course.took(step, || self.decide(pod), now)),
                    Ok(false) => return None,
                    Err(error) => {
                        tracing::debug!(%error, pod = pod.name_any(), ?step, "hollow node");
                        failed = true;
                        break;
                    }
                }
            }
        }
        self.courses().values().filter_map(Course::due).min().filter(|_| !failed)
    }

    /// Writes a step; false if the node is disconnected.
    async fn take(&self, pod: &Pod, step: Step) -> Result<bool> {
        let cut = self.cut.read().await;
        if *cut {
            return Ok(false);
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let (name, host, uid): (_, IpAddr, _) = (pod.name_any(), self.machine().internal_ip, pod.uid());
        let call = async {
            if step == Step::Confirm {
                let preconditions = Some(Preconditions { uid, resource_version: None });
                let params =
                    DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
                return api.delete(&name, &params).await.map(drop);
            }
            let status = self.course(pod, |course| course.status(step, pod, host, Timestamp::now()));
            // The UID, because a pod of the same name may have replaced it.
            let body = json!({ "metadata": { "uid": uid }, "status": status });
            api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(body)).await.map(drop)
        };
        match timeout(CALL, call).await? {
            // The pod is gone: there is nothing to report.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(true),
            other => other.map(|()| true).map_err(Into::into),
        }
    }

    async fn renew_lease(&self) -> Result<()> {
        let cut = self.cut.read().await;
        if *cut {
            return Ok(());
        }
        let machine = self.machine().clone();
        let call = async {
            let Some(node) = self.nodes().get_metadata_opt(&machine.name).await? else { return Ok(()) };
            let lease = machine.lease(&node.uid().unwrap_or_default(), Timestamp::now());
            let params = PatchParams::apply(FIELD_MANAGER).force();
            self.leases().patch(&machine.name, &params, &Patch::Apply(lease)).await.map(drop)
        };
        Ok(timeout(CALL, call).await??)
    }

    async fn report(&self) -> Result<()> {
        let _reporting = self.reporting.lock().await;
        let cut = self.cut.read().await;
        if *cut {
            return Ok(());
        }
        let machine = self.machine().clone();
        let call = async {
            let Some(node) = self.nodes().get_opt(&machine.name).await? else { return Ok(()) };
            let Some(status) = machine.report(&node, Timestamp::now()) else { return Ok(()) };
            let body = Patch::Strategic(json!({ "status": status }));
            self.nodes().patch_status(&machine.name, &PatchParams::default(), &body).await.map(drop)
        };
        Ok(timeout(CALL, call).await??)
    }

    fn decide(&self, pod: &Pod) -> Outcome {
        let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        policy(pod)
    }

    fn course<T>(&self, pod: &Pod, with: impl FnOnce(&mut Course) -> T) -> T {
        let now = Instant::now();
        let mut courses = self.courses();
        let course = courses.entry(pod.uid().unwrap_or_default());
        with(course.or_insert_with(|| Course::of(pod, || self.decide(pod), now)))
    }

    fn courses(&self) -> MutexGuard<'_, HashMap<String, Course>> {
        self.courses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a call again after each that takes too long, as on a busy machine.
async fn repeated<T>(what: &str, call: impl AsyncFn() -> Result<T>) -> Result<T> {
    wait::until(what, async || match call().await {
        Err(error) if error.is::<Elapsed>() => Ok(None),
        other => other.map(Some),
    })
    .await
}
