//! The stores: annotations of three Services of our namespace. Each entry is one annotation, written by a merge patch of its key.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use common::cache::{Cache, ObjectKey};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::error::Error;
use super::service::Service;
use crate::api::Vip;
use crate::api::stores::{self, ANNOTATIONS_MAX, Bind, EntryError, Host, Provider};

/// Field manager of every write.
pub const MANAGER: &str = "cgw-controller.perimeter.dev";

/// The names of the store Services.
#[derive(Clone, Debug)]
pub struct Names {
    /// Keepers that run.
    pub hosts: String,
    /// Bindings.
    pub binds: String,
    /// Status servers of VIPs.
    pub providers: String,
}

/// The records as they were read.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// By VIP.
    pub binds: Arc<BTreeMap<Vip, Bind>>,
    /// Entries that have no effect.
    pub errors: Vec<EntryError>,
    /// Of the store Service: the precondition of a change.
    pub version: String,
    annotations: BTreeMap<String, String>,
}

impl Records {
    fn of(service: &Service) -> Records {
        let annotations = service.annotations().clone();
        let (binds, errors) = stores::binds(&annotations);
        Records { binds: Arc::new(binds), errors, version: version(service), annotations }
    }

    /// Refuses a VIP whose entry cannot be read: it would be overwritten.
    fn check(&self, vip: Vip, store: String) -> Result<(), Error> {
        let key = Bind::key(vip);
        let is_unread =
            self.annotations.get(&key).is_some_and(|text| !text.is_empty()) && !self.binds.contains_key(&vip);
        if !is_unread {
            return Ok(());
        }
        let error = self.errors.iter().map(ToString::to_string).find(|error| error.contains(&key));
        Err(Error::Entry { store, error: error.unwrap_or(key) })
    }
}

/// The keepers as they were read.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// All of them.
    pub hosts: Vec<Host>,
    /// Entries that have no effect.
    pub errors: Vec<EntryError>,
    /// Of the store Service.
    pub version: String,
}

impl Hosts {
    fn of(service: &Service) -> Hosts {
        let (hosts, errors) = stores::hosts(service.annotations());
        Hosts { hosts, errors, version: version(service) }
    }

    /// The status servers of a VIP, sorted.
    #[must_use]
    pub fn endpoints(&self, vip: Vip) -> Vec<SocketAddr> {
        let mut endpoints: Vec<_> =
            self.hosts.iter().filter(|host| host.serves(vip)).map(Host::status).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints
    }
}

fn version(service: &Service) -> String {
    service.metadata.resource_version.clone().unwrap_or_default()
}

/// Bytes of annotations as Kubernetes counts them.
fn size(annotations: &BTreeMap<String, String>) -> usize {
    annotations.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// A parsed store, kept for as long as its resourceVersion is the same.
type Parsed<T> = Mutex<Option<Arc<T>>>;

/// Reads and writes the stores. The cache has all Services, of which three are the stores.
pub struct Stores {
    api: Api<Service>,
    namespace: String,
    names: Names,
    cache: Cache<Service>,
    records: Parsed<Records>,
    hosts: Parsed<Hosts>,
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stores").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Stores {
    /// The stores of `namespace`.
    #[must_use]
    pub fn new(client: kube::Client, namespace: &str, names: Names, cache: Cache<Service>) -> Stores {
        let api = Api::namespaced(client, namespace);
        let namespace = namespace.to_owned();
        Stores { api, namespace, names, cache, records: Mutex::default(), hosts: Mutex::default() }
    }

    /// The names of the store Services.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }

    /// Whether this object of the cache is the store `name`.
    #[must_use]
    pub fn is(&self, key: &ObjectKey, name: &str) -> bool {
        key.namespace() == self.namespace && key.name() == name
    }

    async fn read(&self, name: &str) -> Result<Service, Error> {
        let store = || format!("{}/{name}", self.namespace);
        let read = self.api.get_opt(name).await;
        read.map_err(|cause| Error::Kubernetes { what: format!("read store Service {}", store()), cause })?
            .ok_or_else(|| Error::NoStore(store()))
    }

    /// The records, from the API server. Refuses a VIP whose own entry cannot be read.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read_records(&self, vip: Vip) -> Result<Records, Error> {
        let records = Records::of(&self.read(&self.names.binds).await?);
        records.check(vip, format!("{}/{}", self.namespace, self.names.binds))?;
        Ok(records)
    }

    /// The records, from the cache. Empty where the store does not exist.
    #[must_use]
    pub fn records(&self) -> Arc<Records> {
        self.parsed(&self.records, &self.names.binds, Records::of, |records| &records.version)
    }

    /// The keepers, from the cache. Empty where the store does not exist.
    #[must_use]
    pub fn hosts(&self) -> Arc<Hosts> {
        self.parsed(&self.hosts, &self.names.hosts, Hosts::of, |hosts| &hosts.version)
    }

    /// The keepers, from the API server.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read_hosts(&self) -> Result<Hosts, Error> {
        Ok(Hosts::of(&self.read(&self.names.hosts).await?))
    }

    fn parsed<T: Default>(
        &self,
        kept: &Parsed<T>,
        name: &str,
        parse: impl FnOnce(&Service) -> T,
        version_of: impl Fn(&T) -> &String,
    ) -> Arc<T> {
        let Some(service) = self.cache.get(&self.key(name)) else { return Arc::default() };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(parsed) if *version_of(parsed) == version(&service) => Arc::clone(parsed),
            _ => Arc::clone(kept.insert(Arc::new(parse(&service)))),
        }
    }

    /// Writes the record of a VIP, or removes it, if no record has changed since `records` was read.
    ///
    /// # Errors
    /// [`Error::Conflict`] if one has; [`Error::StoreFull`].
    pub async fn write_record(&self, vip: Vip, bind: Option<&Bind>, records: &Records) -> Result<(), Error> {
        let store = format!("{}/{}", self.namespace, self.names.binds);
        let value = bind.map(|bind| json!(bind).to_string());
        let mut annotations = records.annotations.clone();
        match &value {
            Some(value) => annotations.insert(Bind::key(vip), value.clone()),
            None => annotations.remove(&Bind::key(vip)),
        };
        let bytes = size(&annotations);
        // A store that is full already can be emptied.
        if value.is_some() && bytes > ANNOTATIONS_MAX && bytes > size(&records.annotations) {
            return Err(Error::StoreFull { store, bytes });
        }
        let patch = json!({ "metadata": {
            "resourceVersion": records.version,
            "annotations": { Bind::key(vip): value },
        }});
        let what = format!("write the record of VIP {vip} to store Service {store}");
        self.patch(&self.names.binds, patch, what).await
    }

    async fn patch(&self, name: &str, patch: Value, what: String) -> Result<(), Error> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let writing = self.cache.writing();
        match self.api.patch(name, &params, &Patch::Merge(patch)).await {
            Ok(service) => {
                self.cache.written(writing, service);
                Ok(())
            }
            Err(cause) => {
                let object = || format!("store Service {}/{name}", self.namespace);
                Err(Error::of_write(what, object, cause))
            }
        }
    }

    /// The status servers of a VIP. The entry of the store `providers` is used while the store `hosts` has the version that it was
    /// made from; otherwise, and with `rebuild`, it is made from `hosts`, which is read from the API server.
    ///
    /// # Errors
    /// A store cannot be read.
    pub async fn endpoints(&self, vip: Vip, rebuild: bool) -> Result<Vec<SocketAddr>, Error> {
        let providers = self.cache.get(&self.key(&self.names.providers));
        let hosts = self.cache.get(&self.key(&self.names.hosts));
        let entry = providers.as_ref().and_then(|providers| {
            let text = providers.annotations().get(&Provider::key(vip))?;
            serde_json::from_str::<Provider>(text).ok().filter(|provider| provider.v == Provider::VERSION)
        });
        let is_current = |provider: &Provider| {
            hosts.as_ref().is_some_and(|hosts| provider.hosts_version == version(hosts))
        };
        if let Some(provider) = entry.as_ref().filter(|provider| !rebuild && is_current(provider)) {
            return Ok(provider.endpoints.clone());
        }
        let hosts = self.read_hosts().await?;
        let endpoints = hosts.endpoints(vip);
        let provider =
            Provider { v: Provider::VERSION, endpoints: endpoints.clone(), hosts_version: hosts.version };
        if entry.as_ref() != Some(&provider) {
            let annotations = providers.as_ref().map(|providers| providers.annotations());
            self.write_provider(vip, &provider, annotations).await;
        }
        Ok(endpoints)
    }

    /// The store is a cache: where it cannot be written, the next request reads `hosts` again. Entries that are stale are removed, so
    /// that the store does not grow with VIPs that are not in use.
    async fn write_provider(&self, vip: Vip, provider: &Provider, stored: Option<&BTreeMap<String, String>>) {
        let (key, text) = (Provider::key(vip), json!(provider).to_string());
        let is_stale = |text: &String| {
            serde_json::from_str::<Provider>(text)
                .is_ok_and(|entry| entry.hosts_version != provider.hosts_version)
        };
        let mut annotations = stored.cloned().unwrap_or_default();
        let mut patch = Map::new();
        for (stale, _) in stored.into_iter().flatten().filter(|(_, text)| is_stale(text)) {
            annotations.remove(stale);
            patch.insert(stale.clone(), Value::Null);
        }
        // A VIP that no host serves needs no entry.
        if !provider.endpoints.is_empty() {
            annotations.insert(key.clone(), text.clone());
            patch.insert(key, text.into());
        }
        if patch.is_empty() {
            return;
        }
        let bytes = size(&annotations);
        let store = &self.names.providers;
        if bytes > ANNOTATIONS_MAX {
            tracing::warn!(%vip, bytes, "store Service {}/{store} is full: the status servers of a VIP are not stored", self.namespace);
            return;
        }
        let what =
            format!("write the status servers of VIP {vip} to store Service {}/{store}", self.namespace);
        if let Err(error) = self.patch(store, json!({ "metadata": { "annotations": patch } }), what).await {
            tracing::warn!(%error, "the status servers of a VIP are not stored");
        }
    }
}
