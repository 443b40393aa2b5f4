//! The tenants' Services: the cache, and the writes of a plan to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::cache::{Cache, ObjectKey};
use common::events::Events;
use common::executor::Executor;
use common::names::field_manager;
use common::plan::Step;
use common::runtime::Runtime;
use futures::future::join_all;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::error::Error;
use super::metrics::Metrics;
use super::plan::{self, Cause, Publication, Snapshot, Tenant, Write};
use super::service::{IngressSettings, Service};
use crate::api::Vip;
use crate::api::service::Carried;
use crate::names::CONTROLLER;

/// The index of the cache by VIP.
pub const BY_VIP: &str = "vip";

/// The index of the cache by the VIPs in `status.loadBalancer`.
pub const BY_INGRESS: &str = "ingress";

/// How often a Service that other clients change at the same time is read again.
const CONFLICTS: u32 = 5;

/// Reads and writes tenants' Services.
pub struct Services {
    runtime: Runtime,
    /// All Services of the cluster.
    pub cache: Cache<Service>,
    /// How VIPs are shown to Kubernetes.
    pub ingress: IngressSettings,
    metrics: Metrics,
    patches: Semaphore,
}

/// The Events that remain of one flip. Each one is a write, which delays the others; all updates are logged.
#[derive(Debug)]
pub struct EventBudget(AtomicUsize);

impl Default for EventBudget {
    fn default() -> Self {
        EventBudget(AtomicUsize::new(100))
    }
}

impl EventBudget {
    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// The Services that were written, and those whose write failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// As `namespace/name`, sorted.
    pub updated: Vec<String>,
    /// The same, with the error in the log.
    pub failed: Vec<String>,
}

impl Updated {
    /// Adds the other one.
    pub fn extend(&mut self, other: Updated) {
        self.updated.extend(other.updated);
        self.failed.extend(other.failed);
    }
}

impl Services {
    /// Writes through the runtime's client.
    #[must_use]
    pub fn new(
        runtime: &Runtime,
        cache: Cache<Service>,
        ingress: IngressSettings,
        metrics: Metrics,
        max_concurrent_patches: usize,
    ) -> Services {
        let patches = Semaphore::new(max_concurrent_patches.max(1));
        Services { runtime: runtime.clone(), cache, ingress, metrics, patches }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.runtime.client.clone()
    }

    fn api(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client(), namespace)
    }

    /// The Services that carry the VIP, from the cache.
    #[must_use]
    pub fn carriers(&self, vip: Vip) -> Vec<Arc<Service>> {
        self.cache.indexed(BY_VIP, &vip.to_string())
    }

    /// The Services whose `status.loadBalancer` shows the VIP, from the cache.
    #[must_use]
    pub fn showing(&self, vip: Vip) -> Vec<Arc<Service>> {
        self.cache.indexed(BY_INGRESS, &vip.to_string())
    }

    /// One Service, from the API server.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read(&self, name: &ObjectKey) -> Result<Option<Service>, Error> {
        let read = self.api(name.namespace()).get_opt(name.name()).await;
        read.map_err(|cause| Error::Kubernetes { what: format!("read Service {name}"), cause })
    }

    /// The Services of a namespace, from the API server.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn list(&self, namespace: &str) -> Result<Vec<Service>, Error> {
        let list = self.api(namespace).list(&ListParams::default()).await;
        let what = || format!("list the Services of namespace {namespace}");
        list.map(|list| list.items).map_err(|cause| Error::Kubernetes { what: what(), cause })
    }

    /// Executes a write to a Service, with one metric, log line and Event.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it has changed since `observed`, or is gone.
    pub async fn write(
        &self,
        write: &Write,
        cause: &Cause,
        observed: &Service,
        events: &Events,
    ) -> Result<(), Error> {
        let executor =
            Executor { leadership: &self.runtime.leadership, metrics: &self.runtime.metrics, events };
        let step = Step { action: write.clone(), because: cause.clone() };
        let result = executor.execute(&step, self.patch(write, observed)).await;
        let word = match &result {
            Ok(()) => "done",
            Err(Error::Conflict(_)) => "conflict",
            Err(_) => "failed",
        };
        self.metrics.patched.with_label_values(&[word]).inc();
        result
    }

    async fn patch(&self, write: &Write, observed: &Service) -> Result<(), Error> {
        let Some(name) = write.service() else { return Ok(()) };
        let (patch, is_status) = body(write, observed, self.ingress);
        let api = self.api(name.namespace());
        let patched = merge_patch(&api, &self.cache, name.name(), patch, is_status).await;
        patched.map_err(|cause| Error::of_write(write.to_string(), || format!("Service {name}"), cause))
    }

    /// Writes the gateway in force to every Service that carries the VIP and has another one, several at a time. `snapshot` has the
    /// records and the master; its Services are not read.
    pub async fn refresh(&self, snapshot: &Snapshot, cause: &Cause, budget: &EventBudget) -> Updated {
        let is_stale = |service: &Arc<Service>| {
            self.tenant(service).is_some_and(|tenant| plan::refresh(snapshot, &tenant).is_some())
        };
        let stale = self.carriers(snapshot.vip).into_iter().filter(is_stale);
        let results = join_all(stale.map(async |service| {
            // It is never closed.
            let _permit = self.patches.acquire().await;
            // Another refresh of the VIP may have written it meanwhile.
            let service = self.cache.get(&service.key()).unwrap_or(service);
            // On the heap, and only once it may run: a thousand that wait would take megabytes.
            Box::pin(self.refresh_one(snapshot, cause, service, budget)).await
        }))
        .await;
        let mut updated = Updated::default();
        for (name, result) in results {
            match result {
                Ok(true) => updated.updated.push(name),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(service = name, %error, "the gateway of a Service is not updated");
                    updated.failed.push(name);
                }
            }
        }
        updated.updated.sort_unstable();
        updated.failed.sort_unstable();
        updated
    }

    /// Whether it was written.
    async fn refresh_one(
        &self,
        snapshot: &Snapshot,
        cause: &Cause,
        service: Arc<Service>,
        budget: &EventBudget,
    ) -> (String, Result<bool, Error>) {
        let name = service.key();
        let events = match budget.take() {
            true => self.runtime.events.clone(),
            false => self.runtime.events.warnings_only(),
        };
        let (mut service, mut conflicts) = (service, 0);
        loop {
            let write = self.tenant(&service).and_then(|tenant| plan::refresh(snapshot, &tenant));
            let Some(write) = write else { return (name.to_string(), Ok(false)) };
            match self.write(&write, cause, &service, &events).await {
                Ok(()) => return (name.to_string(), Ok(true)),
                Err(Error::Conflict(what)) if conflicts >= CONFLICTS => {
                    return (name.to_string(), Err(Error::Conflicts { what, times: conflicts }));
                }
                Err(Error::Conflict(_)) => conflicts += 1,
                Err(error) => return (name.to_string(), Err(error)),
            }
            service = match self.read(&name).await {
                Ok(Some(service)) => Arc::new(service),
                Ok(None) => return (name.to_string(), Ok(false)),
                Err(error) => return (name.to_string(), Err(error)),
            };
        }
    }

    /// As the plan reads it.
    #[must_use]
    pub fn tenant(&self, service: &Service) -> Option<Tenant> {
        service.tenant(self.ingress)
    }
}

/// Patches a Service, or its status. The cache has the result at once.
///
/// # Errors
/// The API server refuses, or does not respond.
pub async fn merge_patch(
    api: &Api<Service>,
    cache: &Cache<Service>,
    name: &str,
    patch: Value,
    is_status: bool,
) -> kube::Result<()> {
    let params = PatchParams { field_manager: Some(field_manager(CONTROLLER)), ..PatchParams::default() };
    let patch = Patch::Merge(patch);
    let writing = cache.writing();
    let service = match is_status {
        true => api.patch_status(name, &params, &patch).await?,
        false => api.patch(name, &params, &patch).await?,
    };
    cache.written(writing, service);
    Ok(())
}

/// The merge patch, and whether it is one of the status.
fn body(write: &Write, observed: &Service, settings: IngressSettings) -> (Value, bool) {
    let publication = observed.tenant(settings).map_or(Publication::None, |tenant| tenant.publication);
    let (ours, version) = (write.vip().address(), &observed.metadata.resource_version);
    let annotated = |annotations: Value| json!({ "metadata": { "resourceVersion": version, "annotations": annotations } });
    let unchanged = || json!({ "metadata": { "resourceVersion": version } });
    match write {
        Write::Carry { carried, .. } => (annotated(json!(carried.annotations())), false),
        Write::Release { .. } => (annotated(json!(Carried::unbound())), false),
        Write::Publish { .. } | Write::Retract { .. } => {
            let is_added = matches!(write, Write::Publish { .. });
            match publication {
                Publication::ExternalIps => {
                    let is_ours = |ip: &String| ip.parse().is_ok_and(|ip: std::net::IpAddr| ip == ours);
                    let mut ips: Vec<String> =
                        observed.spec.external_ips.iter().filter(|ip| !is_ours(ip)).cloned().collect();
                    ips.extend(is_added.then(|| ours.to_string()));
                    (
                        json!({ "metadata": { "resourceVersion": version }, "spec": { "externalIPs": ips } }),
                        false,
                    )
                }
                Publication::Status(mode) => {
                    let is_ours = |entry: &Value| {
                        let ip = entry.get("ip").and_then(Value::as_str);
                        ip.and_then(|ip| ip.parse().ok()).is_some_and(|ip: std::net::IpAddr| ip == ours)
                    };
                    let ingress = &observed.status.load_balancer.ingress;
                    let mut ingress: Vec<Value> =
                        ingress.iter().filter(|entry| !is_ours(entry)).cloned().collect();
                    ingress.extend(is_added.then(|| json!({ "ip": ours, "ipMode": mode })));
                    (
                        json!({ "metadata": { "resourceVersion": version }, "status": { "loadBalancer": { "ingress": ingress } } }),
                        true,
                    )
                }
                // The type has changed since the plan was made: the patch changes nothing, and the state is read again.
                Publication::None => (unchanged(), false),
            }
        }
        Write::Record { .. } | Write::Erase { .. } => (unchanged(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::plan::IpMode;
    use crate::names::LOAD_BALANCER_CLASS;

    const SETTINGS: IngressSettings = IngressSettings { ip_mode: IpMode::Vip, external_ips: true };

    fn write(is_added: bool) -> Write {
        let vip = "192.168.50.201".parse().unwrap();
        let (service, uid) = (ObjectKey::new("x", "a"), String::new());
        match is_added {
            true => Write::Publish { vip, service, uid },
            false => Write::Retract { vip, service, uid },
        }
    }

    #[test]
    fn foreign_entries_stay() {
        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": "a" },
            "spec": { "type": "ClusterIP", "externalIPs": ["192.0.2.1", "192.168.50.201"] },
        }))
        .unwrap();
        let ips = |is_added| body(&write(is_added), &service, SETTINGS).0["spec"]["externalIPs"].clone();
        assert_eq!(ips(true), json!(["192.0.2.1", "192.168.50.201"]));
        assert_eq!(ips(false), json!(["192.0.2.1"]));

        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": "a" },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS },
            "status": { "loadBalancer": { "ingress": [
                { "hostname": "h", "ports": [{ "port": 80, "protocol": "TCP" }] },
                { "ip": "192.168.50.201", "ipMode": "Proxy" },
            ] } },
        }))
        .unwrap();
        let ingress = |is_added| {
            let (patch, is_status) = body(&write(is_added), &service, SETTINGS);
            assert!(is_status);
            patch["status"]["loadBalancer"]["ingress"].clone()
        };
        let foreign = json!({ "hostname": "h", "ports": [{ "port": 80, "protocol": "TCP" }] });
        assert_eq!(ingress(true), json!([foreign, { "ip": "192.168.50.201", "ipMode": "VIP" }]));
        assert_eq!(ingress(false), json!([foreign]));
    }
}
