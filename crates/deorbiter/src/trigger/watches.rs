//! One watch for each kind that bindings name: metadata only, started when the first binding names it, stopped with the last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::cache::{Builder, Cache, Problem};
use common::metrics::Metrics;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::core::PartialObjectMeta;
use kube::discovery::{self, ApiCapabilities, Scope};
use kube::{Client, ResourceExt as _};

/// Metadata of an object of any kind.
pub type Meta = PartialObjectMeta<DynamicObject>;

/// kubectl writes it, deorbiter does not read it, and it is often longer than all the rest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A kind that its watch reports as gone is discovered again, but not before its watch is as old as this.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Called for each change of an object or of the health of a watch.
pub type OnChange = Arc<dyn Fn() + Send + Sync>;

/// The watches that run.
pub struct Watches {
    client: Client,
    metrics: Metrics,
    on_change: OnChange,
    kinds: BTreeMap<GroupVersionKindKey, Watch>,
}

/// `apiVersion` and kind.
pub type GroupVersionKindKey = (String, String);

/// One kind that the API server knows.
pub struct Watch {
    /// How it is requested.
    pub resource: ApiResource,
    /// Whether its objects have namespaces.
    pub namespaced: bool,
    cache: Cache<Meta>,
    since: Instant,
}

/// The objects of a kind, as far as they are known.
pub enum Known<'a> {
    /// Its objects.
    Objects(&'a Watch, Vec<Arc<Meta>>),
    /// The API server does not serve it.
    NotServed(String),
    /// It is served, but its objects are not known, or discovery failed.
    Unknown(Option<&'a Watch>, String),
}

impl Watches {
    /// No watch yet.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics, on_change: OnChange) -> Watches {
        Watches { client, metrics, on_change, kinds: BTreeMap::new() }
    }

    /// Stops the watches of all other kinds.
    pub fn retain(&mut self, kinds: &BTreeSet<GroupVersionKindKey>) {
        self.kinds.retain(|kind, _| kinds.contains(kind));
    }

    /// How a kind is requested, if its watch runs. A watch of another version than its binding names has objects of that version.
    #[must_use]
    pub fn resource(&self, kind: &GroupVersionKindKey) -> Option<&ApiResource> {
        let has = |watch: &&Watch| watch.resource.api_version == kind.0 && watch.resource.kind == kind.1;
        self.kinds.get(kind).or_else(|| self.kinds.values().find(has)).map(|watch| &watch.resource)
    }

    /// The objects of a kind, as far as they are known; its watch is started if it does not run. `any_version`: if the API server does not
    /// serve this version of the kind, another one counts.
    pub async fn known(&mut self, kind: &GroupVersionKindKey, any_version: bool) -> Known<'_> {
        self.kinds.retain(|one, watch| {
            let is_gone = || watch.refusal().is_some_and(|problem| problem.code == Some(404));
            one != kind || watch.since.elapsed() < POLL_INTERVAL || !is_gone()
        });
        if !self.kinds.contains_key(kind) {
            match self.discover(kind, any_version).await {
                Ok(watch) => drop(self.kinds.insert(kind.clone(), watch)),
                Err(known) => return known,
            }
        }
        let Some(watch) = self.kinds.get(kind) else {
            return Known::Unknown(None, "its watch has ended".to_owned());
        };
        if watch.resource.api_version != kind.0 && !any_version {
            return not_served(kind);
        }
        match watch.refusal() {
            Some(Problem { message, .. }) => {
                let ApiResource { plural, group, .. } = &watch.resource;
                let why = format!(
                    "cannot watch {plural}.{group}: {message}; deorbiter needs get, list, watch and patch on them (docs/deorbiter.md)"
                );
                Known::Unknown(Some(watch), why)
            }
            None if !watch.cache.health().borrow().synced => {
                Known::Unknown(Some(watch), "its objects are being listed".to_owned())
            }
            None => Known::Objects(watch, watch.cache.list()),
        }
    }

    async fn discover(&self, key: &GroupVersionKindKey, any_version: bool) -> Result<Watch, Known<'static>> {
        let (api_version, kind) = key;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let found = match discovery::pinned_kind(&self.client, &gvk).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if !is_not_served(&error) => Err(error),
            Err(_) if any_version => self.in_any_version(group, kind).await,
            Err(_) => Ok(None),
        };
        match found {
            Ok(Some((resource, capabilities))) => {
                Ok(self.start(resource, capabilities.scope == Scope::Namespaced))
            }
            Ok(None) => Err(not_served(key)),
            Err(error) => {
                let why = match &error {
                    kube::Error::Api(status) => status.message.clone(),
                    error => error.to_string(),
                };
                Err(Known::Unknown(None, format!("cannot discover {kind} of {api_version}: {why}")))
            }
        }
    }

    /// A kind in the most stable version that the API server serves. None: it serves no version.
    async fn in_any_version(
        &self,
        group: &str,
        kind: &str,
    ) -> Result<Option<(ApiResource, ApiCapabilities)>, kube::Error> {
        match discovery::group(&self.client, group).await {
            Ok(found) => {
                Ok(found.resources_by_stability().into_iter().find(|(resource, _)| resource.kind == kind))
            }
            Err(kube::Error::Discovery(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn start(&self, resource: ApiResource, namespaced: bool) -> Watch {
        let api: Api<Meta> = Api::all_with(self.client.clone(), &resource);
        let trim = |object: &mut Meta| drop(object.annotations_mut().remove(LAST_APPLIED));
        let cache = Builder::metadata(api, &resource, &self.metrics).trim(trim).start();
        let on_change = Arc::clone(&self.on_change);
        cache.subscribe(move |_| on_change());
        // An empty first list and a refusal change no object. The task ends with the cache.
        let (mut health, on_change) = (cache.health(), Arc::clone(&self.on_change));
        tokio::spawn(async move {
            while health.changed().await.is_ok() {
                on_change();
            }
        });
        Watch { resource, namespaced, cache, since: Instant::now() }
    }
}

fn is_not_served(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 404,
        error => matches!(error, kube::Error::Discovery(_)),
    }
}

fn not_served((api_version, kind): &GroupVersionKindKey) -> Known<'static> {
    Known::NotServed(format!(
        "the API server knows no {kind} of {api_version}: install its CustomResourceDefinition, or fix targetRef"
    ))
}

impl Watch {
    /// A problem of the watch that only a person can fix: a missing permission, or a kind that is gone. An outage ends
    /// by itself, and the cached objects are the last known ones meanwhile.
    fn refusal(&self) -> Option<Problem> {
        let health = self.cache.health();
        let problem = health.borrow().problem.clone();
        problem.filter(|problem| matches!(problem.code, Some(401 | 403 | 404)))
    }
}
