//! The objects of one kind in memory, kept by one watch.
//!
//! * One cache serves all controllers of a process: each subscribes to changes and reads by key or by index.
//! * A handler gets [`Change::Added`], [`Change::Updated`] and [`Change::Deleted`]. A relist is compared with what was
//!   cached, so a deletion that happened while the watch was broken is delivered too.
//! * A write that changes only `resourceVersion`, `managedFields` or what `trim` removes is no change: no handler is called.
//! * A failing watch keeps the cached objects, is counted in `perimeter_watch_errors_total` and shown in
//!   `/readyz?verbose`. A cache that has synced once stays ready.

mod builder;
mod packing;
mod store;
mod watch;

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
};

use futures::stream::BoxStream;
use kube::{
    Resource,
    runtime::watcher::{self, Event},
};
use tokio::{sync, task::AbortHandle};

use crate::apply::FieldManager;
use packing::Packing;
use store::{Replaced, Store};

pub use builder::{Builder, Cacheable};

/// Namespace and name of an object: `namespace/name`, or `name` where the kind has no namespaces. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// `namespace` is empty where the kind has none.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> ObjectKey {
        match namespace {
            "" => ObjectKey(name.into()),
            namespace => ObjectKey(format!("{namespace}/{name}").into()),
        }
    }

    /// The key of an object. The API server serves no object without a name; such an object has an empty one here.
    #[must_use]
    pub fn of<K: Resource>(object: &K) -> ObjectKey {
        let metadata = object.meta();
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        ObjectKey::new(&part(&metadata.namespace), &part(&metadata.name))
    }

    /// Empty where the kind has no namespaces.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name without the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One change of the cached objects. The cache already contains it when a handler gets it.
#[derive(Debug)]
pub enum Change<K> {
    /// The object was created, or is in the first list, or existed when the handler subscribed.
    Added(Arc<K>),
    /// The object changed.
    Updated {
        /// As it was cached before.
        old: Arc<K>,
        /// As it is now.
        new: Arc<K>,
    },
    /// The object is gone; this is its last known state. An object that was recreated under the same name, with another
    /// UID, is first Deleted and then Added.
    Deleted(Arc<K>),
}

impl<K: Resource> Change<K> {
    /// The object: as it is now, or the last known state of a deleted one.
    #[must_use]
    pub fn object(&self) -> &Arc<K> {
        let (Change::Added(object) | Change::Updated { new: object, .. } | Change::Deleted(object)) = self;
        object
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(&**self.object())
    }
}

/// Whether the watch works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The first list is complete. Never becomes false again.
    pub synced: bool,
    /// Why list or watch failed, until either succeeds again.
    pub problem: Option<Problem>,
}

/// Why list or watch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status of the API server's response, where there was one: 403 for a missing right, 404 for a kind that is not served.
    pub code: Option<u16>,
    /// One line for a person.
    pub message: String,
}

/// A write that is sent after this moment; see [`Cache::written`].
#[derive(Clone, Copy, Debug)]
pub struct Writing(u64);

type Events<K> = BoxStream<'static, Result<Event<K>, watcher::Error>>;
type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// See the module. Clones share one watch and its objects.
pub struct Cache<K> {
    shared: Arc<Shared<K>>,
    _task: Arc<AbortOnDrop>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Cache { shared: Arc::clone(&self.shared), _task: Arc::clone(&self._task) }
    }
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("health", &*self.shared.health.borrow()).finish_non_exhaustive()
    }
}

impl<K: Resource + Clone + Send + Sync + 'static> Cache<K> {
    /// The object, if it is cached. Before the first list is complete nothing is.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.shared.store().get(key)
    }

    /// All objects, in no particular order. [`Cache::objects`] needs less memory where they are [packed](Builder::packed).
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.objects().collect()
    }

    /// The same, decoded one after the other. An object that is gone before its turn is left out.
    pub fn objects(&self) -> impl Iterator<Item = Arc<K>> {
        self.keys().into_iter().filter_map(|key| self.get(&key))
    }

    /// The keys of all objects, in no particular order.
    #[must_use]
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.shared.store().keys()
    }

    /// The objects under one value of an index, by key. Empty where no object has the value, and where [`Builder::index`] did not add
    /// the index.
    #[must_use]
    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.shared.store().indexed(index, value)
    }

    /// Must be called before the request of a write. [`Cache::written`] takes the result, with the response.
    #[must_use]
    pub fn writing(&self) -> Writing {
        Writing(self.shared.store().lists())
    }

    /// Puts the API server's response to a write of this process into the cache, so that the next reconciliation reads it although
    /// the watch has not delivered it yet. Handlers get the change now, and not again from the watch. What the watch delivers
    /// meanwhile of an older version is ignored. Does nothing where the watch has delivered the write already, or may have.
    pub fn written(&self, Writing(lists): Writing, object: K) {
        let object = self.shared.trimmed(object);
        self.shared.change(|store| store.write(lists, object));
    }

    /// The same for an object that this process has deleted, and that has no finalizers.
    pub fn deleted(&self, object: &K) {
        self.shared.change(|store| store.write_deletion(object));
    }

    /// How many objects are cached.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.store().len()
    }

    /// Whether no object is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the first complete list.
    pub fn synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut health = self.health();
        async move {
            // Without a sender the cache was dropped, and it never syncs.
            if health.wait_for(|health| health.synced).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Follows whether the watch works, for a controller that reports it somewhere else than in `/readyz`.
    #[must_use]
    pub fn health(&self) -> sync::watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    /// Calls `handler` with every change from now on, one after the other, and first with [`Change::Added`] for each object
    /// that is cached already. The handler runs in the task of the watch: it must be quick, may read this cache, and must not
    /// subscribe to it. It stays until the cache is dropped; so it must not own a clone of this cache.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.shared.handlers();
        self.objects().for_each(|object| handler(&Change::Added(object)));
        handlers.push(Box::new(handler));
    }
}

/// The state that the watch writes and the cache reads.
struct Shared<K> {
    store: RwLock<Store<K>>,
    packing: Packing<K>,
    /// Locked while a change is applied and delivered: a handler that subscribes misses none and gets none twice.
    handlers: Mutex<Vec<Handler<K>>>,
    health: sync::watch::Sender<Health>,
    manager: Option<FieldManager>,
    trim: Box<dyn Fn(&mut K) + Send + Sync>,
}

impl<K> Shared<K> {
    // A panic of a handler or of an index function ends the watch; what is in the store stays readable.
    fn store(&self) -> RwLockReadGuard<'_, Store<K>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn handlers(&self) -> MutexGuard<'_, Vec<Handler<K>>> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Resource> Shared<K> {
    /// Changes the store, then calls the handlers.
    fn change<C: IntoIterator<Item = Replaced<K>>>(&self, change: impl FnOnce(&mut Store<K>) -> C) {
        let handlers = self.handlers();
        let replaced = change(&mut self.store.write().unwrap_or_else(PoisonError::into_inner));
        for change in replaced.into_iter().flat_map(|one| one.changes(self.packing)) {
            handlers.iter().for_each(|handler| handler(&change));
        }
    }

    /// The object as it is cached.
    fn trimmed(&self, mut object: K) -> K {
        let fields = &mut object.meta_mut().managed_fields;
        *fields = self.manager.and_then(|manager| manager.own(fields.take().unwrap_or_default()));
        (self.trim)(&mut object);
        object
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
