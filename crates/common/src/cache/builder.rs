//! Describes a cache, and starts it.

use std::{
    fmt,
    sync::{Arc, Mutex, RwLock},
};

use futures::StreamExt as _;
use kube::{Api, Resource, core::PartialObjectMeta, runtime::watcher};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync;

use super::{
    AbortOnDrop, Cache, Events, Shared,
    packing::Packing,
    store::{Index, Store},
    watch,
};
use crate::{apply::FieldManager, metrics::Metrics, readiness::Readiness};

/// A kind with a type of its own that a cache can hold.
pub trait Cacheable:
    Resource<DynamicType = ()> + Clone + fmt::Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Cacheable for K where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
}

/// Describes a cache; [`Builder::start`] starts it.
pub struct Builder<K> {
    watch: Box<dyn Fn(watcher::Config) -> Events<K> + Send + Sync>,
    is_equal: fn(&K, &K) -> bool,
    packing: Packing<K>,
    config: watcher::Config,
    kind: String,
    name: String,
    api: &'static str,
    since: Option<&'static str>,
    manager: Option<FieldManager>,
    trim: Box<dyn Fn(&mut K) + Send + Sync>,
    indexes: Vec<Index<K>>,
    metrics: Metrics,
    readiness: Option<Readiness>,
}

impl<K> fmt::Debug for Builder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K> Builder<K>
where
    K: Resource + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// A cache of what `api` lists. `dynamic` is `&()` for a static type, or the `ApiResource` that `api` was made with.
    pub fn new(api: Api<K>, dynamic: &K::DynamicType, metrics: &Metrics) -> Builder<K>
    where
        K: PartialEq,
    {
        let watch = move |config| watcher::watcher(api.clone(), config).boxed();
        Builder::of(Box::new(watch), |a, b| a == b, K::kind(dynamic), K::plural(dynamic), metrics)
    }
}

impl<M> Builder<PartialObjectMeta<M>>
where
    M: Resource + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// A cache of metadata: the API server sends nothing else. `dynamic` as in [`Builder::new`].
    pub fn metadata(api: Api<PartialObjectMeta<M>>, dynamic: &M::DynamicType, metrics: &Metrics) -> Self {
        let watch = move |config| watcher::watcher(api.clone(), config).boxed();
        Builder::of(
            Box::new(watch),
            |a, b| a.metadata == b.metadata,
            M::kind(dynamic),
            M::plural(dynamic),
            metrics,
        )
    }
}

impl<K: Resource + Clone + Send + Sync + 'static> Builder<K> {
    fn of(
        watch: Box<dyn Fn(watcher::Config) -> Events<K> + Send + Sync>,
        is_equal: fn(&K, &K) -> bool,
        kind: impl Into<String>,
        plural: impl Into<String>,
        metrics: &Metrics,
    ) -> Self {
        Builder {
            watch,
            is_equal,
            packing: Packing::none(),
            config: watcher::Config::default(),
            kind: kind.into(),
            name: plural.into(),
            api: crate::cluster::MAIN,
            since: None,
            manager: None,
            trim: Box::new(|_| {}),
            indexes: Vec::new(),
            metrics: metrics.clone(),
            readiness: None,
        }
    }

    /// Selectors. The default is every object.
    #[must_use]
    pub fn config(mut self, config: watcher::Config) -> Self {
        self.config = config;
        self
    }

    /// The name of the readiness check and in log lines. The default is the plural of the kind; needed where one process has
    /// two caches of the same kind in one cluster.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The first version of the API server that serves the kind, for the report of an older one.
    #[must_use]
    pub fn served_since(mut self, version: &'static str) -> Self {
        self.since = Some(version);
        self
    }

    /// A cache of a further cluster, for its metrics and readiness check; see [`crate::cluster::Cluster::attach`].
    #[must_use]
    pub(crate) fn of_cluster(mut self, cluster: &'static str) -> Self {
        self.name = format!("{cluster}/{}", self.name);
        self.api = cluster;
        self
    }

    /// Removes from each object what no reader uses, before it is compared and cached: it costs no memory, and its change
    /// calls no handler. `managedFields` is removed too; see [`Builder::owned_by`]. `trim` must not change name, namespace, UID or resourceVersion.
    #[must_use]
    pub fn trim(mut self, trim: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.trim = Box::new(trim);
        self
    }

    /// Keeps of `managedFields` the entries of this manager, without their times: [`FieldManager::apply`] compares with them.
    #[must_use]
    pub fn owned_by(mut self, manager: FieldManager) -> Self {
        self.manager = Some(manager);
        self
    }

    /// Adds an index for [`Cache::indexed`]: `values` gives the values under which an object is found.
    #[must_use]
    pub fn index(
        mut self,
        name: &'static str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.indexes.push(Index::new(name, Box::new(values)));
        self
    }

    /// Keeps each object as JSON, which is a fraction of the memory of its type, and decodes it for each read: some microseconds.
    /// For kinds of which there can be a hundred thousand.
    #[must_use]
    pub fn packed(mut self) -> Self
    where
        K: Serialize + DeserializeOwned + PartialEq,
    {
        self.packing = Packing::json();
        self
    }

    /// Adds a readiness check that succeeds once the cache has synced.
    #[must_use]
    pub fn readiness(mut self, readiness: &Readiness) -> Self {
        self.readiness = Some(readiness.clone());
        self
    }

    /// Starts the watch in a task of its own; it ends with the last clone of the returned cache. Must be called inside a
    /// tokio runtime.
    #[must_use]
    pub fn start(self) -> Cache<K> {
        let shared = Arc::new(Shared {
            store: RwLock::new(Store::new(self.is_equal, self.packing, self.indexes)),
            packing: self.packing,
            handlers: Mutex::default(),
            health: sync::watch::Sender::default(),
            manager: self.manager,
            trim: self.trim,
        });
        let keeper = watch::Keeper {
            watch: self.watch,
            config: self.config,
            kind: self.kind,
            check: self.readiness.map(|readiness| readiness.check(&self.name)),
            name: self.name,
            api: self.api,
            since: self.since,
            metrics: self.metrics,
            shared: Arc::clone(&shared),
        };
        let task = tokio::spawn(keeper.keep()).abort_handle();
        Cache { shared, _task: Arc::new(AbortOnDrop(task)) }
    }
}
