//! Reads the cluster.
//!
//! * [`kinds`]: the watched kinds, with the fields that are read. [`read`]: trims and reads them.
//! * [`inventory`]: the observed objects with their indexes, from which a snapshot is taken.
//!
//! Four watches: Services (tenants' and the store `binds`), Pods that have not finished, EndpointSlices with a Service, Nodes.
//! A watch that breaks keeps its objects, and a list is compared with them when it is complete: while the API server is away,
//! nothing is removed.

pub mod inventory;
pub mod kinds;
pub mod read;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use common::{
    cache::{Cache, Change, ObjectKey},
    runtime::Runtime,
};
use kube::{Api, runtime::watcher};

use self::inventory::{Inventory, Urgency};
use super::snapshot::Snapshot;

/// The watches, and what they have delivered.
#[derive(Debug)]
pub struct Observer {
    services: Cache<kinds::Service>,
    pods: Cache<kinds::Pod>,
    slices: Cache<kinds::EndpointSlice>,
    nodes: Cache<kinds::Node>,
    inventory: Arc<Mutex<Inventory>>,
}

impl Observer {
    /// Starts the watches for the agent of `node`; `store` is the store `binds`. `changed` is called for each change, by the task of a
    /// watch: it must be quick. Must be called inside of a tokio runtime.
    #[must_use]
    pub fn start(
        runtime: &Runtime,
        node: &str,
        store: &ObjectKey,
        changed: impl Fn(Urgency) + Clone + Send + Sync + 'static,
    ) -> Observer {
        let client = &runtime.client;
        let trimmed = store.clone();
        // A finished pod has no network, and its address may be another pod's: the API server reports it as deleted.
        let unfinished = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let of_services = watcher::Config::default().labels(read::SERVICE_NAME);
        let observer = Observer {
            services: runtime
                .cache(Api::<kinds::Service>::all(client.clone()))
                .packed()
                .trim(move |service| read::trim_service(service, &trimmed))
                .start(),
            pods: runtime
                .cache(Api::<kinds::Pod>::all(client.clone()))
                .packed()
                .config(unfinished)
                .trim(read::trim_pod)
                .start(),
            slices: runtime
                .cache(Api::<kinds::EndpointSlice>::all(client.clone()))
                .packed()
                .config(of_services)
                .trim(read::trim_slice)
                .start(),
            nodes: runtime
                .cache(Api::<kinds::Node>::all(client.clone()))
                .packed()
                .trim(read::trim_node)
                .start(),
            inventory: Arc::new(Mutex::new(Inventory::new(node))),
        };
        observer.subscribe(store, changed);
        observer
    }

    fn subscribe(&self, store: &ObjectKey, changed: impl Fn(Urgency) + Clone + Send + Sync + 'static) {
        let (inventory, report, store) = (Arc::clone(&self.inventory), changed.clone(), store.clone());
        self.services.subscribe(move |change| report(service_changed(&mut lock(&inventory), &store, change)));
        let (inventory, report) = (Arc::clone(&self.inventory), changed.clone());
        self.pods.subscribe(move |change| {
            let pod = current(change).map(read::pod).filter(|pod| !pod.finished);
            report(lock(&inventory).set_pod(&change.key(), pod));
        });
        let (inventory, report) = (Arc::clone(&self.inventory), changed.clone());
        self.slices.subscribe(move |change| report(slice_changed(&mut lock(&inventory), change)));
        let inventory = Arc::clone(&self.inventory);
        self.nodes.subscribe(move |change| {
            let node = current(change).map(read::node);
            changed(lock(&inventory).set_node(change.key().name(), node));
        });
    }

    /// Waits for the first complete list of every kind.
    pub async fn synced(&self) {
        tokio::join!(self.services.synced(), self.pods.synced(), self.slices.synced(), self.nodes.synced());
    }

    /// The same with a time limit, for a command.
    ///
    /// # Errors
    /// A list is not complete in time, with the cause if it is known.
    pub async fn synced_within(&self, limit: Duration) -> anyhow::Result<()> {
        if tokio::time::timeout(limit, self.synced()).await.is_ok() {
            return Ok(());
        }
        let problems = [
            ("services", self.services.health().borrow().clone()),
            ("pods", self.pods.health().borrow().clone()),
            ("endpointslices", self.slices.health().borrow().clone()),
            ("nodes", self.nodes.health().borrow().clone()),
        ];
        let causes: Vec<String> = problems
            .into_iter()
            .filter(|(_, health)| !health.synced)
            .map(|(kind, health)| {
                let cause =
                    health.problem.map_or_else(|| "no response".to_owned(), |problem| problem.message);
                format!("{kind}: {cause}")
            })
            .collect();
        anyhow::bail!("listing did not complete within {limit:?}: {}", causes.join("; "))
    }

    /// The snapshot for one node. Must not be used before [`Observer::synced`]: a part of a list is no state of the cluster.
    #[must_use]
    pub fn snapshot(&self, node: &str) -> Snapshot {
        lock(&self.inventory).snapshot(node)
    }
}

fn lock(inventory: &Mutex<Inventory>) -> MutexGuard<'_, Inventory> {
    // A panic ends the process.
    inventory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object, unless it is deleted.
fn current<K>(change: &Change<K>) -> Option<&K> {
    match change {
        Change::Added(object) | Change::Updated { new: object, .. } => Some(object),
        Change::Deleted(_) => None,
    }
}

fn service_changed(inventory: &mut Inventory, store: &ObjectKey, change: &Change<kinds::Service>) -> Urgency {
    let key = change.key();
    if key == *store {
        return inventory.set_store(current(change).map(read::store));
    }
    inventory.set_service(&key, current(change).and_then(read::service))
}

fn slice_changed(inventory: &mut Inventory, change: &Change<kinds::EndpointSlice>) -> Urgency {
    let key = change.key();
    let mut urgency = Urgency::Irrelevant;
    if let Change::Updated { old, new } = change {
        let before = read::service_of(old).filter(|before| Some(before) != read::service_of(new).as_ref());
        if let Some(before) = before {
            urgency = inventory.set_slice(&before, key.name(), None);
        }
    }
    let Some(service) = read::service_of(change.object()) else { return urgency };
    urgency.max(inventory.set_slice(&service, key.name(), current(change).and_then(read::slice)))
}

#[cfg(test)]
mod scale;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(service: &str) -> Arc<kinds::EndpointSlice> {
        let object = json!({
            "metadata": {"name": "s", "namespace": "n", "labels": {read::SERVICE_NAME: service}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.244.1.1"]}], "ports": [],
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn service(name: &str, vip: Option<&str>) -> Arc<kinds::Service> {
        let annotations = vip.map(|vip| json!({crate::names::VIP: vip})).unwrap_or_default();
        let object = json!({"metadata": {"name": name, "namespace": "n", "annotations": annotations},
            "spec": {"selector": {"app": "a"}}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn changes_of_services_and_slices_reach_the_inventory() {
        let mut inventory = Inventory::new("n1");
        let store = ObjectKey::new("n", "binds");
        let set = |inventory: &mut Inventory, change| service_changed(inventory, &store, &change);
        let (bare, carrying) = (service("a", None), service("a", Some("192.168.50.201")));
        assert_eq!(set(&mut inventory, Change::Added(Arc::clone(&bare))), Urgency::Irrelevant);
        let bound = Change::Updated { old: Arc::clone(&bare), new: Arc::clone(&carrying) };
        assert_eq!(set(&mut inventory, bound), Urgency::Now);
        assert_eq!(inventory.snapshot("n1").services.len(), 1);
        assert_eq!(set(&mut inventory, Change::Updated { old: carrying, new: bare }), Urgency::Now);
        assert_eq!(inventory.snapshot("n1").services.len(), 0);

        assert_eq!(inventory.snapshot("n1").store, None);
        assert_eq!(set(&mut inventory, Change::Added(service("binds", None))), Urgency::Soon);
        assert!(inventory.snapshot("n1").store.is_some());
        assert_eq!(set(&mut inventory, Change::Deleted(service("binds", None))), Urgency::Soon);
        assert_eq!(inventory.snapshot("n1").store, None);

        for name in ["a", "b"] {
            set(&mut inventory, Change::Added(service(name, Some("192.168.50.201"))));
        }
        assert_eq!(slice_changed(&mut inventory, &Change::Added(slice("a"))), Urgency::Soon);
        let moved = Change::Updated { old: slice("a"), new: slice("b") };
        assert_eq!(slice_changed(&mut inventory, &moved), Urgency::Soon);
        assert_eq!(
            inventory.set_slice(&ObjectKey::new("n", "a"), "s", None),
            Urgency::Irrelevant,
            "it was moved"
        );
        assert_eq!(slice_changed(&mut inventory, &Change::Deleted(slice("b"))), Urgency::Soon);
    }
}
