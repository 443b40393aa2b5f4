//! One slim, reflected cache of one kind.
//!
//! Guarantees: the store is filled from a streaming list, or from pages where the server does not stream; it follows the
//! API server until the future is dropped; an error turns the readiness check red and is counted, until the next success.
//! `changed` is told of each object that came, went or differs in more than its resourceVersion, and of each full list.

use std::{fmt::Debug, pin::pin, sync::Arc};

use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::{
    metrics::Metrics,
    readiness::{Check, Readiness},
};

/// A kind that can be cached: comparable, so that a write which changed nothing that we read wakes nobody.
pub trait Cached:
    Resource<DynamicType = ()> + Clone + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Cached for K where
    K: Resource<DynamicType = ()> + Clone + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
}

/// A cache and the future that keeps it. `name` is the name of its readiness check, `nodes` say.
///
/// The check stands, red, when this returns; the store is empty until the future has been polled up to the first list.
/// The future never ends by itself. It must be polled (or spawned) for as long as the store is read.
pub fn cache<K: Cached>(
    api: Api<K>,
    config: watcher::Config,
    name: &'static str,
    readiness: &Readiness,
    metrics: &Metrics,
    changed: Arc<Notify>,
) -> (Store<K>, impl Future<Output = ()> + Send + 'static + use<K>) {
    let (store, writer) = reflector::store();
    let keeper = Keeper { name, writer, check: readiness.check(name), metrics: metrics.clone(), changed };
    (store, keeper.keep(api, config))
}

struct Keeper<K: Cached> {
    name: &'static str,
    writer: Writer<K>,
    check: Check,
    metrics: Metrics,
    changed: Arc<Notify>,
}

impl<K: Cached> Keeper<K> {
    async fn keep(mut self, api: Api<K>, config: watcher::Config) {
        let mut strategy = config.clone().streaming_lists();
        loop {
            let mut events = pin!(watcher::watcher(api.clone(), strategy.clone()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => self.follow(&event),
                    Err(error) if refuses_streaming(&error) => {
                        tracing::info!(
                            cache = self.name,
                            "the API server streams no lists: listing in pages"
                        );
                        strategy = config.clone();
                        break;
                    }
                    Err(error) => self.broken(&error),
                }
            }
        }
    }

    fn follow(&mut self, event: &Event<K>) {
        let news = match event {
            Event::Apply(object) => self.differs(object),
            Event::Delete(_) | Event::InitDone => true,
            Event::Init | Event::InitApply(_) => false,
        };
        self.writer.apply_watcher_event(event);
        // During a list the store still holds the former state: green only when the new one stands.
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            self.check.ready();
        }
        if news {
            self.changed.notify_one();
        }
    }

    /// Whether more than the resourceVersion is new.
    fn differs(&self, object: &K) -> bool {
        let Some(cached) = self.writer.as_reader().get(&ObjectRef::from_obj(object)) else { return true };
        let mut object = object.clone();
        object.meta_mut().resource_version.clone_from(&cached.meta().resource_version);
        *cached != object
    }

    fn broken(&self, error: &watcher::Error) {
        self.metrics.watch_error(&K::kind(&()), reason(error));
        self.check.failing(error.to_string());
        tracing::warn!(cache = self.name, error = %error, "watch is broken; trying again");
    }
}

/// The API server answers a request for a streamed list with 422 (or 400) while its feature gate WatchList is off.
fn refuses_streaming(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            matches!(status.code, 400 | 422) && status.message.contains("sendInitialEvents")
        }
        _ => false,
    }
}

/// A closed set of words for the metric.
fn reason(error: &watcher::Error) -> &'static str {
    let code = match error {
        watcher::Error::WatchError(status) => status.code,
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error {
            kube::Error::Api(status) => status.code,
            kube::Error::SerdeError(_) => return "decode",
            _ => return "transport",
        },
        watcher::Error::NoResourceVersion => return "decode",
    };
    match code {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        410 => "gone",
        429 => "too_many_requests",
        500.. => "server_error",
        _ => "other",
    }
}
