//! Follows the API server for one cache.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Resource,
    core::Status,
    runtime::{
        utils::Backoff,
        watcher::{self, DefaultBackoff, Event},
    },
};
use tokio::time::{Instant, sleep, timeout};

use super::{Events, Problem, Shared};
use crate::{cluster::error_chain, metrics::Metrics, readiness::Check};

/// A watch that was restarted and is silent for so long was accepted: a refusal or a missing response is an error after
/// 9 s, and after the client's three retries a few more. An accepted watch may be silent for hours.
const SETTLED: Duration = Duration::from_secs(20);

/// For a streamed list to be complete. An API server that does not know `sendInitialEvents` (before 1.27) sends the objects
/// without ever marking the end; where a list just needs longer, the fallback is right too, only heavier for the server.
pub(super) const STREAMED_LIST: Duration = Duration::from_secs(30);

/// The wait if the backoff has no value. `DefaultBackoff` always has one.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

pub(super) struct Keeper<K> {
    pub watch: Box<dyn Fn(watcher::Config) -> Events<K> + Send + Sync>,
    pub config: watcher::Config,
    pub kind: String,
    pub name: String,
    pub api: &'static str,
    pub since: Option<&'static str>,
    pub check: Option<Check>,
    pub metrics: Metrics,
    pub shared: Arc<Shared<K>>,
}

/// Why a watcher is replaced.
enum End {
    /// The API server does not stream lists.
    NotStreamed,
    /// A list could not be completed.
    Incomplete,
}

impl<K: Resource + Clone> Keeper<K> {
    /// Never ends.
    pub async fn keep(self) {
        let mut streamed = true;
        // client-go's: 0.8 s to 30 s with jitter; begins again after two minutes without a failure.
        let mut backoff = DefaultBackoff::default();
        loop {
            let config = self.config.clone();
            let events = (self.watch)(if streamed { config.streaming_lists() } else { config });
            match self.follow(events, &mut backoff, streamed).await {
                End::NotStreamed => {
                    tracing::info!(
                        cache = self.name,
                        "the API server does not stream lists: using list and watch"
                    );
                    streamed = false;
                }
                End::Incomplete => sleep(backoff.next().unwrap_or(LONGEST_BACKOFF)).await,
            }
        }
    }

    async fn follow(&self, mut events: Events<K>, backoff: &mut DefaultBackoff, streamed: bool) -> End {
        let mut listing: Option<Instant> = None;
        let mut failing = false;
        loop {
            let overdue = listing.filter(|_| streamed).map(|since| since + STREAMED_LIST);
            if overdue.is_some_and(|overdue| overdue <= Instant::now()) {
                return End::NotStreamed;
            }
            let wait = overdue.map_or(SETTLED, |overdue| overdue - Instant::now());
            match timeout(wait, events.next()).await {
                Ok(Some(Ok(event))) => {
                    match &event {
                        // kube restarts a stream that ended before the list was complete at once and without an error.
                        Event::Init if listing.is_some() => {
                            self.failed("incomplete_list", None, "the list ended early".to_owned());
                            return End::Incomplete;
                        }
                        Event::Init => listing = Some(Instant::now()),
                        // Part of a list is no success: a list that breaks midway each time must not be repeated each second.
                        Event::InitApply(_) => {}
                        Event::InitDone | Event::Apply(_) | Event::Delete(_) => {
                            listing = None;
                            failing = false;
                            backoff.reset();
                        }
                    }
                    self.take(event);
                }
                Ok(Some(Err(error))) if streamed && refuses_streaming(&error) => return End::NotStreamed,
                Ok(Some(Err(error))) => {
                    failing = true;
                    self.failed(reason(&error), code(&error), self.describe(&error));
                    // An object of the list was unreadable: it must not be taken for deleted when the list ends.
                    if listing.is_some() {
                        return End::Incomplete;
                    }
                    sleep(backoff.next().unwrap_or(LONGEST_BACKOFF)).await;
                }
                // kube's watcher has no end.
                Ok(None) => return End::Incomplete,
                Err(_) if failing && listing.is_none() && self.is_synced() => {
                    failing = false;
                    self.works();
                }
                Err(_) => {}
            }
        }
    }

    fn take(&self, event: Event<K>) {
        let trimmed = |object| self.shared.trimmed(object);
        match event {
            Event::Init => {
                return self.shared.change(|store| {
                    store.list_begins();
                    None
                });
            }
            Event::InitApply(object) => {
                let object = trimmed(object);
                return self.shared.change(|store| {
                    store.list_has(object);
                    None
                });
            }
            Event::InitDone => {
                self.shared.change(|store| store.list_ends());
                self.shared.health.send_if_modified(|health| !std::mem::replace(&mut health.synced, true));
            }
            Event::Apply(object) => {
                let object = trimmed(object);
                self.shared.change(|store| store.apply(object));
            }
            Event::Delete(object) => self.shared.change(|store| store.delete(&object)),
        }
        self.works();
    }

    fn is_synced(&self) -> bool {
        self.shared.health.borrow().synced
    }

    /// The cache has synced, and the watch works.
    fn works(&self) {
        self.shared.health.send_if_modified(|health| health.problem.take().is_some());
        if let Some(check) = &self.check {
            check.ready();
        }
    }

    fn describe(&self, error: &watcher::Error) -> String {
        match self.since {
            Some(since) if code(error) == Some(404) => {
                format!(
                    "404: the API server does not serve {}; {since} is the first version that does",
                    self.kind
                )
            }
            _ => describe(error),
        }
    }

    fn failed(&self, reason: &'static str, code: Option<u16>, message: String) {
        tracing::warn!(cache = self.name, error = message, "watch failed");
        self.metrics.watch_error(self.api, &self.kind, reason);
        if let Some(check) = &self.check {
            check.failing(message.clone());
        }
        let problem = Some(Problem { code, message });
        self.shared.health.send_if_modified(|health| {
            let is_new = health.problem != problem;
            health.problem = problem;
            is_new
        });
    }
}

/// The response to a streamed list while the feature gate WatchList is off. Where the reason is another one, the list that
/// follows meets it too and reports it.
fn refuses_streaming(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

/// The label `reason` of the metric: a closed set.
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

fn code(error: &watcher::Error) -> Option<u16> {
    match cause(error) {
        Cause::Api(status) => Some(status.code).filter(|code| *code != 0),
        Cause::Other(_) | Cause::None => None,
    }
}

/// One line for a person: `403 nodes is forbidden: ...`, or why there is no response, down to the first cause.
fn describe(error: &watcher::Error) -> String {
    match cause(error) {
        Cause::Api(status) if is_unreadable(status) => {
            "an object cannot be decoded: is this program older than the CustomResourceDefinition of the kind?"
                .to_owned()
        }
        Cause::Api(status) => format!("{} {}", status.code, status.message),
        Cause::Other(error) => error_chain(error),
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
