//! The stores: annotations of three Services of our namespace. Each entry is one annotation, written by a merge patch of its key.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use common::cache::{Cache, ObjectKey};
use kube::Api;
use serde_json::{Map, Value, json};

use super::error::Error;
use super::service::Service;
use super::services::merge_patch;
use crate::api::Vip;
use crate::api::stores::{self, ANNOTATIONS_MAX, Bind, EntryError, Host, Provider, VERSION};

/// The store Services.
#[derive(Clone, Debug)]
pub struct Names {
    /// Keepers that run.
    pub hosts: ObjectKey,
    /// Bindings.
    pub binds: ObjectKey,
    /// Status servers of VIPs.
    pub providers: ObjectKey,
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

    /// The size of the store with this entry, if it would be too large. A store that is too large already may shrink.
    fn overflow(&self, key: &str, value: &str) -> Option<usize> {
        let now = size(&self.annotations);
        let replaced = self.annotations.get(key).map_or(0, |old| key.len() + old.len());
        let bytes = now - replaced + key.len() + value.len();
        (bytes > ANNOTATIONS_MAX && bytes > now).then_some(bytes)
    }

    /// Refuses a VIP whose entry cannot be read: it would be overwritten.
    fn check(&self, vip: Vip, store: &ObjectKey) -> Result<(), Error> {
        let key = Bind::key(vip);
        match self.errors.iter().find(|error| error.key == key) {
            None => Ok(()),
            Some(error) => Err(Error::Entry { store: store.to_string(), error: error.to_string() }),
        }
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
    /// The Services.
    pub names: Names,
    cache: Cache<Service>,
    records: Parsed<Records>,
    hosts: Parsed<Hosts>,
}

impl Stores {
    /// The stores of `namespace`.
    #[must_use]
    pub fn new(client: kube::Client, namespace: &str, names: Names, cache: Cache<Service>) -> Stores {
        let api = Api::namespaced(client, namespace);
        Stores { api, names, cache, records: Mutex::default(), hosts: Mutex::default() }
    }

    async fn read(&self, store: &ObjectKey) -> Result<Service, Error> {
        let read = self.api.get_opt(store.name()).await;
        read.map_err(|cause| Error::Kubernetes { what: format!("read store Service {store}"), cause })?
            .ok_or_else(|| Error::NoStore(store.to_string()))
    }

    /// The records, from the API server. Refuses a VIP whose own entry cannot be read.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read_records(&self, vip: Vip) -> Result<Records, Error> {
        let records = Records::of(&self.read(&self.names.binds).await?);
        records.check(vip, &self.names.binds)?;
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
        store: &ObjectKey,
        parse: impl FnOnce(&Service) -> T,
        version_of: impl Fn(&T) -> &String,
    ) -> Arc<T> {
        let Some(service) = self.cache.get(store) else { return Arc::default() };
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
        let store = &self.names.binds;
        let value = bind.map(|bind| json!(bind).to_string());
        if let Some(bytes) = value.as_ref().and_then(|value| records.overflow(&Bind::key(vip), value)) {
            return Err(Error::StoreFull { store: store.to_string(), bytes });
        }
        let patch = json!({ "metadata": {
            "resourceVersion": records.version,
            "annotations": { Bind::key(vip): value },
        }});
        let what = format!("write the record of VIP {vip} to store Service {store}");
        self.patch(store, patch, what).await
    }

    /// Removes the entry of a keeper, if no entry has changed since `version` was read.
    ///
    /// # Errors
    /// [`Error::Conflict`] if one has.
    pub async fn remove_host(&self, host: &Host, version: &str) -> Result<(), Error> {
        let patch = json!({ "metadata": {
            "resourceVersion": version,
            "annotations": { host.key(): null },
        }});
        let store = &self.names.hosts;
        let keeper = host.status();
        let what = format!("remove the entry of keeper {keeper} from store Service {store}");
        self.patch(store, patch, what).await
    }

    async fn patch(&self, store: &ObjectKey, patch: Value, what: String) -> Result<(), Error> {
        let patched = merge_patch(&self.api, &self.cache, store.name(), patch, false).await;
        patched.map_err(|cause| Error::of_write(what, || format!("store Service {store}"), cause))
    }

    /// The status servers of a VIP. The entry of the store `providers` is used while the store `hosts` has the version that it was
    /// made from; otherwise, and with `rebuild`, it is made from `hosts`, which is read from the API server.
    ///
    /// # Errors
    /// A store cannot be read.
    pub async fn endpoints(&self, vip: Vip, rebuild: bool) -> Result<Vec<SocketAddr>, Error> {
        let providers = self.cache.get(&self.names.providers);
        let hosts = self.cache.get(&self.names.hosts);
        let entry = providers.as_ref().and_then(|providers| {
            providers.annotations().get(&Provider::key(vip)).and_then(|text| Provider::read(text))
        });
        let is_current = |provider: &Provider| {
            hosts.as_ref().is_some_and(|hosts| provider.hosts_version == version(hosts))
        };
        if let Some(provider) = entry.as_ref().filter(|provider| !rebuild && is_current(provider)) {
            return Ok(provider.endpoints.clone());
        }
        let hosts = self.read_hosts().await?;
        let endpoints = hosts.endpoints(vip);
        let provider = Provider { v: VERSION, endpoints: endpoints.clone(), hosts_version: hosts.version };
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
            Provider::read(text).is_some_and(|entry| entry.hosts_version != provider.hosts_version)
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
            tracing::warn!(%vip, bytes, "store Service {store} is full: the status servers of a VIP are not stored");
            return;
        }
        let what = format!("write the status servers of VIP {vip} to store Service {store}");
        if let Err(error) = self.patch(store, json!({ "metadata": { "annotations": patch } }), what).await {
            tracing::warn!(%error, "the status servers of a VIP are not stored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TunId;
    use crate::api::stores::Owner;

    fn records(entries: impl IntoIterator<Item = (String, String)>) -> Records {
        let mut service = Service::default();
        service.metadata.annotations = Some(entries.into_iter().collect());
        Records::of(&service)
    }

    fn bind(number: u32, unbinding: bool) -> String {
        let owner = Owner::Namespace { namespace: "n".repeat(63) };
        json!(Bind { v: 1, owner, tun_id: TunId::new(number).unwrap(), unbinding }).to_string()
    }

    #[test]
    fn a_store_takes_a_thousand_bindings_and_refuses_more_than_kubernetes_allows() {
        let vip = |number: u32| Vip::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()).unwrap();
        let entry = |number: u32| (Bind::key(vip(number)), bind(number, false));
        let mut full = Records::default();
        let mut number = 1;
        while full.overflow(&entry(number).0, &entry(number).1).is_none() {
            full.annotations.extend([entry(number)]);
            number += 1;
        }
        assert!(number > 1000, "{number}");
        // A record of the same size can be replaced, and one in a store that is too large can be shortened.
        assert_eq!(full.overflow(&Bind::key(vip(1)), &bind(7, false)), None);
        let mut too_large = full;
        too_large.annotations.extend((number..number + 10).map(entry));
        assert_eq!(too_large.overflow(&Bind::key(vip(1)), "{}"), None);
        assert!(too_large.overflow(&Bind::key(vip(1)), &bind(1, true)).is_some());
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_not_overwritten() {
        let (vip, other): (Vip, Vip) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let newer = bind(1, false).replace(r#""v":1"#, r#""v":2"#);
        let records = records([(Bind::key(vip), newer), (Bind::key(other), bind(2, false))]);
        let store = ObjectKey::new("cgw", "cgw-binds");
        let error = records.check(vip, &store).unwrap_err().to_string();
        assert!(error.contains("cgw/cgw-binds") && error.contains("version 2"), "{error}");
        assert!(records.check(other, &store).is_ok());
    }

    #[test]
    fn status_servers_are_sorted_and_only_of_hosts_that_serve_the_vip() {
        let host = |ip: &str, vips: &str| {
            let value = json!({ "v": 1, "ip": ip, "port": 63051, "node": "g", "vrid": 51, "vips": [vips], "boot": "b" });
            (format!("cgw-controller.perimeter.dev/host.{ip}-63051"), value.to_string())
        };
        let mut service = Service::default();
        let entries = [
            host("10.0.0.9", "10.9.0.1-10.9.0.9"),
            host("10.0.0.10", "10.9.0.5"),
            host("10.0.0.11", "10.8.0.1"),
        ];
        service.metadata.annotations = Some(entries.into_iter().collect());
        let hosts = Hosts::of(&service);
        let endpoints = |vip: &str| {
            let endpoints = hosts.endpoints(vip.parse().unwrap());
            endpoints.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(endpoints("10.9.0.5"), ["10.0.0.9:63051", "10.0.0.10:63051"]);
        assert_eq!(endpoints("10.9.0.10"), [""; 0]);
    }
}
