//! One slim, reflected cache of one kind.
//!
//! Guarantees: the store is filled from a streaming list, or from pages where the server does not stream; it follows the
//! API server until the future is dropped; an error is counted and turns the readiness check red, until the next success.
//! The store keeps what it had while the watch is broken.
//! `changed` is told of each object that came, went or differs in more than its resourceVersion, and of each full list.

use std::{fmt::Debug, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Resource,
    core::Status,
    runtime::{
        reflector::{self, ObjectRef, Store, store::Writer},
        utils::Backoff,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::{
    metrics::Metrics,
    readiness::{Check, Readiness},
};

/// A watch that was begun again and is silent for so long was accepted: a refusal, or no answer at all, is an error after
/// 9 s, and after the client's three retries a few more. An accepted one may have nothing to say for hours.
const SETTLED: Duration = Duration::from_secs(20);

/// A kind that can be cached: comparable, so that a write which changed nothing that we read wakes nobody.
pub trait Cached:
    Resource<DynamicType = ()> + Clone + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Cached for K where
    K: Resource<DynamicType = ()> + Clone + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
}

/// A cache and the future that keeps it. `name` is the name of its readiness check, `nodes` say. `trim` takes from each object
/// what its reader never looks at, before it is kept or compared: what is not there costs no memory and wakes nobody.
///
/// The check stands, red, when this returns; the store is empty until the future has been polled up to the first list.
/// The future never ends by itself. It must be polled (or spawned) for as long as the store is read.
pub fn cache<K: Cached>(
    api: Api<K>,
    config: watcher::Config,
    name: &'static str,
    trim: impl Fn(&mut K) + Send + 'static,
    readiness: &Readiness,
    metrics: &Metrics,
    changed: Arc<Notify>,
) -> (Store<K>, impl Future<Output = ()> + Send + 'static) {
    let (store, writer) = reflector::store();
    let keeper = Keeper {
        name,
        writer,
        trim,
        check: readiness.check(name),
        metrics: metrics.clone(),
        changed,
        filled: false,
    };
    (store, keeper.keep(api, config))
}

struct Keeper<K: Cached, T> {
    name: &'static str,
    writer: Writer<K>,
    trim: T,
    check: Check,
    metrics: Metrics,
    changed: Arc<Notify>,
    /// Whether a first list is complete.
    filled: bool,
}

impl<K: Cached, T: Fn(&mut K)> Keeper<K, T> {
    async fn keep(mut self, api: Api<K>, config: watcher::Config) {
        let mut strategy = config.clone().streaming_lists();
        loop {
            let mut events = pin!(watcher::watcher(api.clone(), strategy.clone()));
            let mut backoff = watcher::DefaultBackoff::default();
            let mut broken = false;
            // The watcher recovers by itself; its stream has no end.
            loop {
                let event = match tokio::time::timeout(SETTLED, events.next()).await {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(_) => {
                        if broken && self.filled {
                            self.check.ready();
                            broken = false;
                        }
                        continue;
                    }
                };
                match event {
                    Ok(event) => {
                        // A list in pages says that it begins before it asks.
                        if !matches!(event, Event::Init) {
                            backoff.reset();
                            broken = false;
                        }
                        self.follow(event.modify(&self.trim));
                    }
                    Err(error) if refuses_streaming(&error) => {
                        tracing::info!(
                            cache = self.name,
                            "the API server streams no lists: listing in pages"
                        );
                        strategy = config.clone();
                        break;
                    }
                    Err(error) => {
                        broken = true;
                        self.broken(&error);
                        tokio::time::sleep(backoff.next().unwrap_or(SETTLED)).await;
                    }
                }
            }
        }
    }

    fn follow(&mut self, event: Event<K>) {
        let news = match &event {
            Event::Apply(object) => self.differs(object),
            Event::Delete(_) | Event::InitDone => true,
            Event::Init | Event::InitApply(_) => false,
        };
        self.writer.apply_watcher_event(&event);
        // During a list the store still holds the former state: green only when the new one stands.
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            self.filled = true;
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
        let text = describe(error);
        tracing::warn!(cache = self.name, error = text, "watch is broken; trying again");
        self.metrics.watch_error(&K::kind(&()), reason(error));
        self.check.failing(text);
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
    let code = match cause(error) {
        Cause::Api(status) if is_unreadable(status) => return "decode",
        Cause::Api(status) => status.code,
        Cause::Other(kube::Error::SerdeError(_)) | Cause::None => return "decode",
        Cause::Other(_) => return "transport",
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

/// One line for a person: `403 nodes is forbidden: ...`.
fn describe(error: &watcher::Error) -> String {
    match cause(error) {
        Cause::Api(status) if is_unreadable(status) => {
            "an object cannot be read: is this program older than the CustomResourceDefinition of the kind?"
                .to_owned()
        }
        Cause::Api(status) => format!("{} {}", status.code, status.message),
        Cause::Other(error) => error.to_string(),
        Cause::None => error.to_string(),
    }
}

/// kube takes a line of a watch that is no object of the kind for a Status, all of whose fields are optional.
fn is_unreadable(status: &Status) -> bool {
    status.code == 0 && status.message.is_empty()
}

enum Cause<'a> {
    Api(&'a Status),
    Other(&'a kube::Error),
    None,
}

fn cause(error: &watcher::Error) -> Cause<'_> {
    match error {
        watcher::Error::WatchError(status) => Cause::Api(status),
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error {
            kube::Error::Api(status) => Cause::Api(status),
            other => Cause::Other(other),
        },
        watcher::Error::NoResourceVersion => Cause::None,
    }
}

#[cfg(test)]
mod tests;
