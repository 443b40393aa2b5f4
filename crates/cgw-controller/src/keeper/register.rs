//! The entry of this keeper in the store `hosts`.

use std::collections::BTreeSet;
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
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::config::Router;
use super::node::Observed;
use super::report::Reporter;
use crate::api::stores::{Host, VERSION};
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
    /// The key that was written last, and those of writes without a response.
    pub written: BTreeSet<String>,
}

impl Registration {
    /// The entry for a configuration and an address.
    #[must_use]
    pub fn entry(&self, router: &Router, ip: IpAddr) -> Host {
        Host {
            v: VERSION,
            ip,
            port: router.status_port,
            node: router.node.clone(),
            vrid: router.vrid,
            vips: router.vips.clone(),
            boot: self.boot.clone(),
        }
    }

    /// Writes the entry if the store does not have it. Entries for earlier addresses of this node are removed in the same write.
    async fn refresh(&mut self, entry: &Host) -> Result<(), String> {
        let (key, store) = (entry.key(), &self.store);
        let text = serde_json::to_string(entry).map_err(|error| error.to_string())?;
        let read = self.services.get_metadata(store).await;
        let read =
            read.map_err(|error| format!("reading the Service {store} failed: {}", error_chain(&error)))?;
        let old: Vec<String> = self.written.iter().filter(|old| **old != key).cloned().collect();
        let is_written = read.metadata.annotations.as_ref().and_then(|all| all.get(&key)) == Some(&text);
        if is_written && old.is_empty() {
            self.written.insert(key);
            return Ok(());
        }
        let mut annotations: Map<String, Value> = old.into_iter().map(|old| (old, Value::Null)).collect();
        annotations.insert(key.clone(), Value::String(text));
        // The write may be executed without a response, also if the keeper ends meanwhile.
        self.written.insert(key.clone());
        self.patch(&json!({ "metadata": { "annotations": annotations } }))
            .await
            .map_err(|error| format!("writing to the Service {store} failed: {}", error_chain(&error)))?;
        tracing::info!(store, key, "registered");
        self.written.retain(|written| *written == key);
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

    /// The end of the keeper. An entry that cannot be removed does not keep the others.
    pub async fn remove(&self) {
        let removal = async {
            let mut removed = Vec::new();
            for key in &self.written {
                match self.remove_entry(key).await {
                    Ok(()) => removed.push(key),
                    Err(error) => tracing::warn!(key, "the entry of this keeper stays: {error}"),
                }
            }
            removed
        };
        match timeout(REMOVAL, removal).await {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => tracing::info!(store = self.store, keys = ?removed, "unregistered"),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http_body_util::BodyExt as _;
    use kube::client::Body;

    use super::*;

    type Annotations = Arc<Mutex<BTreeMap<String, String>>>;

    fn host(ip: &str) -> Host {
        let (ip, vips) = (ip.parse().unwrap(), vec!["192.168.50.201".parse().unwrap()]);
        Host { v: VERSION, ip, port: 63051, node: "g1".to_owned(), vrid: 51, vips, boot: "b".to_owned() }
    }

    /// The store refuses to change the entry of this address.
    const REFUSED: &str = "192.168.50.19";

    /// In a store that executes each other write, and responds to it only if `responds`.
    fn registration(annotations: &Annotations, responds: &Arc<AtomicBool>) -> Registration {
        let (annotations, responds) = (Arc::clone(annotations), Arc::clone(responds));
        let api = tower::service_fn(move |request: http::Request<Body>| {
            let (annotations, responds) = (Arc::clone(&annotations), Arc::clone(&responds));
            async move {
                let is_write = request.method() == http::Method::PATCH;
                let body = request.into_body().collect().await.unwrap().to_bytes();
                if is_write {
                    let patch: Value = serde_json::from_slice(&body).unwrap();
                    if patch.to_string().contains(REFUSED) {
                        return Ok(http::Response::builder().status(403).body(Body::empty()).unwrap());
                    }
                    for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
                        let mut all = annotations.lock().unwrap();
                        match value.as_str() {
                            Some(text) => all.insert(key.clone(), text.to_owned()),
                            None => all.remove(key),
                        };
                    }
                    if !responds.load(Ordering::Relaxed) {
                        std::future::pending::<()>().await;
                    }
                }
                let all = annotations.lock().unwrap().clone();
                let metadata = json!({ "name": "cgw-hosts", "resourceVersion": "1", "annotations": all });
                let object = json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata
                });
                Ok::<_, Infallible>(http::Response::new(Body::from(object.to_string().into_bytes())))
            }
        });
        let services = Api::namespaced(kube::Client::new(api, "default"), "cgw");
        let (store, boot) = ("cgw-hosts".to_owned(), "b".to_owned());
        Registration { services, store, boot, written: BTreeSet::new() }
    }

    #[tokio::test]
    async fn an_entry_is_removed_also_if_its_write_had_no_response() {
        let (annotations, responds) = (Annotations::default(), Arc::new(AtomicBool::new(false)));
        let mut registration = registration(&annotations, &responds);
        let keys = || annotations.lock().unwrap().keys().cloned().collect::<Vec<_>>();
        let (first, second) = (host("192.168.50.21"), host("192.168.50.22"));
        // SIGTERM ends the keeper before the API server responds.
        let executed = async {
            while keys().is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            result = registration.refresh(&first) => panic!("{result:?}"),
            () = executed => {}
        }
        assert_eq!(keys(), [first.key()]);
        responds.store(true, Ordering::Relaxed);
        registration.clone().remove().await;
        assert_eq!(keys(), [""; 0]);
        // The address of the node has changed instead.
        annotations.lock().unwrap().insert(first.key(), serde_json::to_string(&first).unwrap());
        registration.refresh(&second).await.unwrap();
        assert_eq!(keys(), [second.key()]);
        registration.remove().await;
        assert_eq!(keys(), [""; 0]);
    }

    #[tokio::test]
    async fn an_entry_that_cannot_be_removed_does_not_keep_the_others() {
        let (annotations, responds) = (Annotations::default(), Arc::new(AtomicBool::new(true)));
        let mut registration = registration(&annotations, &responds);
        let (refused, other) = (host(REFUSED), host("192.168.50.21"));
        for host in [&refused, &other] {
            annotations.lock().unwrap().insert(host.key(), serde_json::to_string(host).unwrap());
            registration.written.insert(host.key());
        }
        assert_eq!(registration.written.first(), Some(&refused.key()), "it is removed first");
        registration.remove().await;
        let keys: Vec<String> = annotations.lock().unwrap().keys().cloned().collect();
        assert_eq!(keys, [refused.key()]);
    }
}
