//! One watch for each kind that bindings name: metadata only, started when the first binding names it, ended with the last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::core::PartialObjectMeta;
use kube::discovery::{self, Scope};
use kube::runtime::reflector::{Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, ResourceExt as _};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Metadata of an object of any kind.
pub type Meta = PartialObjectMeta<DynamicObject>;

/// Written by kubectl, read by nobody here, and often longer than all the rest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A kind whose watch says that it is gone is looked up anew, and a watch that has just begun is not ended for that.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The watches that run.
pub struct Watches {
    client: Client,
    changed: Arc<Notify>,
    kinds: BTreeMap<GroupVersionKindKey, Watch>,
}

/// `apiVersion` and kind.
pub type GroupVersionKindKey = (String, String);

/// One kind that the API server knows.
pub struct Watch {
    /// How it is asked for.
    pub resource: ApiResource,
    /// Whether its objects have namespaces.
    pub namespaced: bool,
    store: Store<Meta>,
    state: Arc<Mutex<State>>,
    since: Instant,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    /// A first list is complete.
    filled: bool,
    /// Why the objects cannot be listed.
    refused: Option<String>,
    /// Whether that is because the API server serves the kind no more.
    gone: bool,
}

/// What is known of a kind.
pub enum Known<'a> {
    /// Its objects.
    Objects(&'a Watch, Vec<Arc<Meta>>),
    /// The API server does not serve it.
    NotServed(String),
    /// It is served, but its objects are not known, or it cannot be found out.
    Unknown(Option<&'a Watch>, String),
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watches {
    /// No watch yet. `changed` is told of every change of an object.
    #[must_use]
    pub fn new(client: Client, changed: Arc<Notify>) -> Watches {
        Watches { client, changed, kinds: BTreeMap::new() }
    }

    /// Ends the watches of kinds that are not wanted any more.
    pub fn keep(&mut self, wanted: &BTreeSet<GroupVersionKindKey>) {
        self.kinds.retain(|kind, _| wanted.contains(kind));
    }

    /// How a kind is asked for, if its watch runs.
    #[must_use]
    pub fn resource(&self, kind: &GroupVersionKindKey) -> Option<&ApiResource> {
        self.kinds.get(kind).map(|watch| &watch.resource)
    }

    /// What is known of a kind; its watch is started if it does not run.
    pub async fn look(&mut self, kind: &GroupVersionKindKey) -> Known<'_> {
        let gone = |watch: &Watch| {
            watch.since.elapsed() >= POLL_INTERVAL
                && watch.state.lock().unwrap_or_else(PoisonError::into_inner).gone
        };
        if self.kinds.get(kind).is_some_and(gone) {
            self.kinds.remove(kind);
        }
        if !self.kinds.contains_key(kind) {
            match self.discover(kind).await {
                Ok(watch) => {
                    self.kinds.insert(kind.clone(), watch);
                }
                Err(known) => return known,
            }
        }
        let Some(watch) = self.kinds.get(kind) else {
            return Known::Unknown(None, "its watch has ended".to_owned());
        };
        let state = watch.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.refused {
            Some(why) => Known::Unknown(Some(watch), why.clone()),
            None if !state.filled => Known::Unknown(Some(watch), "its objects are being listed".to_owned()),
            None => Known::Objects(watch, watch.store.state()),
        }
    }

    async fn discover(&self, (api_version, kind): &GroupVersionKindKey) -> Result<Watch, Known<'static>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        match discovery::pinned_kind(&self.client, &gvk).await {
            Ok((resource, capabilities)) => Ok(self.start(resource, capabilities.scope == Scope::Namespaced)),
            Err(kube::Error::Api(status)) if status.code != 404 => Err(Known::Unknown(
                None,
                format!("cannot discover {kind} of {api_version}: {}", status.message),
            )),
            Err(kube::Error::Api(_) | kube::Error::Discovery(_)) => Err(Known::NotServed(format!(
                "the API server knows no {kind} of {api_version}: install its CustomResourceDefinition, or fix targetRef"
            ))),
            Err(error) => {
                Err(Known::Unknown(None, format!("cannot discover {kind} of {api_version}: {error}")))
            }
        }
    }

    fn start(&self, resource: ApiResource, namespaced: bool) -> Watch {
        let api: Api<Meta> = Api::all_with(self.client.clone(), &resource);
        let writer = Writer::new(resource.clone());
        let store = writer.as_reader();
        let state = Arc::new(Mutex::new(State::default()));
        let what = format!("{}.{}", resource.plural, resource.group);
        let keeper = keep(api, writer, Arc::clone(&state), Arc::clone(&self.changed), what);
        Watch { resource, namespaced, store, state, since: Instant::now(), task: tokio::spawn(keeper) }
    }
}

async fn keep(
    api: Api<Meta>,
    mut writer: Writer<Meta>,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    what: String,
) {
    let mut events = std::pin::pin!(watch(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let event = event.modify(slim);
                writer.apply_watcher_event(&event);
                if !matches!(event, Event::Init | Event::InitApply(_)) {
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    *state = State { filled: true, ..State::default() };
                    drop(state);
                    changed.notify_one();
                }
            }
            Err(error) => {
                tracing::warn!(kind = what, %error, "watch failed; retrying");
                if let Some((code, why)) = refusal(&error) {
                    let text = format!(
                        "cannot watch {what}: {why}; deorbiter needs get, list, watch and patch on them (docs/deorbiter.md)"
                    );
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    (state.refused, state.gone) = (Some(text), code == 404);
                    drop(state);
                    changed.notify_one();
                }
            }
        }
    }
}

fn slim(object: &mut Meta) {
    object.metadata.managed_fields = None;
    object.annotations_mut().remove(LAST_APPLIED);
}

/// What only a person can change: no right, or a kind that is gone.
fn refusal(error: &watcher::Error) -> Option<(u16, String)> {
    let status = match error {
        watcher::Error::WatchError(status) => status,
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status,
        _ => return None,
    };
    matches!(status.code, 401 | 403 | 404).then(|| (status.code, status.message.clone()))
}
