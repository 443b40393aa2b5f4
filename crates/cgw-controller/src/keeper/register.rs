//! The entry of this keeper in the store `hosts`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use common::backoff::Backoff;
use common::cluster::error_chain;
use common::names::field_manager;
use common::readiness::Check;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::config::Router;
use super::node::Observed;
use super::report::Reporter;
use crate::api::stores::Host;
use crate::names::CONTROLLER;

/// An entry that vanished is written again after this time. One read of one object for each keeper.
const REFRESH: Duration = Duration::from_secs(10);

/// Delays after failures.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), max: Duration::from_secs(10) };

/// For the removal, before the kubelet kills the process.
const REMOVAL: Duration = Duration::from_secs(5);

/// Conflicting writes during the removal: other keepers that start or end at the same time.
const CONFLICTS: usize = 10;

/// Writes and removes the entry.
#[derive(Clone, Debug)]
pub struct Registration {
    /// In the namespace of the program.
    pub services: Api<Service>,
    /// Name of the store Service.
    pub store: String,
    /// Unique for this start of the keeper.
    pub boot: String,
    /// The key that was written last.
    pub written: Option<String>,
}

impl Registration {
    /// The entry for a configuration and an address.
    #[must_use]
    pub fn entry(&self, router: &Router, ip: IpAddr) -> Host {
        Host {
            v: Host::VERSION,
            ip,
            port: router.status_port,
            node: router.node.clone(),
            vrid: router.vrid,
            vips: router.vips.clone(),
            boot: self.boot.clone(),
        }
    }

    /// Writes the entry if the store does not have it. An entry for an earlier address of this node is removed in the same write.
    async fn refresh(&mut self, entry: &Host) -> Result<(), String> {
        let (key, store) = (entry.key(), &self.store);
        let text = serde_json::to_string(entry).map_err(|error| error.to_string())?;
        let read = self.services.get_metadata(store).await;
        let read =
            read.map_err(|error| format!("reading the Service {store} failed: {}", error_chain(&error)))?;
        if read.metadata.annotations.as_ref().and_then(|all| all.get(&key)) == Some(&text) {
            self.written = Some(key);
            return Ok(());
        }
        let mut annotations = json!({ key.as_str(): text });
        if let (Some(old), Some(fields)) =
            (self.written.as_ref().filter(|old| **old != key), annotations.as_object_mut())
        {
            fields.insert(old.clone(), Value::Null);
        }
        self.patch(&json!({ "metadata": { "annotations": annotations } }))
            .await
            .map_err(|error| format!("writing to the Service {store} failed: {}", error_chain(&error)))?;
        tracing::info!(store, key, "registered");
        self.written = Some(key);
        Ok(())
    }

    async fn patch(&self, patch: &Value) -> kube::Result<()> {
        let params = PatchParams { field_manager: Some(field_manager(CONTROLLER)), ..PatchParams::default() };
        self.services.patch_metadata(&self.store, &params, &Patch::Merge(patch)).await.map(|_| ())
    }

    /// Removes the entry, unless a successor has replaced it.
    async fn remove_entry(&self, key: &str) -> Result<(), String> {
        let store = &self.store;
        for _ in 0..CONFLICTS {
            let read = self.services.get_metadata(store).await;
            let read =
                read.map_err(|error| format!("reading the Service {store} failed: {}", error_chain(&error)))?;
            let text = read.metadata.annotations.as_ref().and_then(|all| all.get(key));
            let ours = text
                .and_then(|text| serde_json::from_str::<Host>(text).ok())
                .is_some_and(|host| host.boot == self.boot);
            if !ours {
                return Ok(());
            }
            let version = read.metadata.resource_version;
            let patch = json!({ "metadata": { "resourceVersion": version, "annotations": { key: null } } });
            match self.patch(&patch).await {
                Ok(()) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    return Err(format!("writing to the Service {store} failed: {}", error_chain(&error)));
                }
            }
        }
        Err(format!("{CONFLICTS} writes to the Service {store} conflicted"))
    }

    /// The end of the keeper.
    pub async fn remove(&self) {
        let Some(key) = &self.written else { return };
        match timeout(REMOVAL, self.remove_entry(key)).await {
            Ok(Ok(())) => tracing::info!(store = self.store, key, "unregistered"),
            Ok(Err(error)) => tracing::warn!("the entry of this keeper stays: {error}"),
            Err(_) => tracing::warn!("the entry of this keeper stays: no response within {REMOVAL:?}"),
        }
    }

    /// Keeps the entry in the store for as long as it is polled.
    pub async fn run(
        &mut self,
        mut router: watch::Receiver<Arc<Router>>,
        mut observed: watch::Receiver<Observed>,
        readiness: Check,
        reporter: Reporter,
    ) {
        let mut failures = 0;
        loop {
            let ip = observed.borrow_and_update().node_ip;
            let entry = self.entry(&router.borrow_and_update(), ip);
            let result = self.refresh(&entry).await;
            reporter.registered(result.is_ok());
            let delay = match result {
                Ok(()) => {
                    failures = 0;
                    readiness.ready();
                    REFRESH
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!("registering failed: {error}");
                    readiness.failing(error);
                    BACKOFF.delay(failures)
                }
            };
            tokio::select! {
                () = sleep(delay) => {}
                changed = router.changed() => if changed.is_err() { return },
                changed = observed.wait_for(|now| now.node_ip != ip) => if changed.is_err() { return },
            }
        }
    }
}
