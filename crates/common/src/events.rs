//! Log lines and Events of a controller: one of each for every action and every new problem, from the same value.
//!
//! Events are published in the background, in order. They never fail or delay the action that they report: the queue is
//! bounded, and an Event that does not fit is dropped and counted. A process that ends drains the queue for a limited time.
//!
//! Events of one action on one object for one reason become a series of one Event within six minutes, with the text of the
//! first. Where one object stands for many, action and reason name the second object ([`Action::related`],
//! [`Reason::related`]). An action that fails again and again is in the log each time, and an Event every five minutes, because the
//! retries of a thousand objects are hundreds a minute. It is an Event at once where the reason is another one, and after a
//! success. Required rights: `create` and `patch` on `events.k8s.io/events`; where these are missing, the same on
//! core `events` are used.

mod core;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::{ExponentialBuilder, Retryable};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use self::core::CoreRecorder;
use crate::{
    cluster::error_chain,
    metrics::{EventResult, Metrics},
    names,
    plan::{Action, Problem, Reason, Regarding, Related, Step},
};

/// The API server responds to such a write in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// An Event is sent again this often where the API server does not respond or has an error: with the waits of one and two seconds it
/// survives the restart of one API server of several.
const RETRIES: usize = 2;

/// Waits before the second and the third try.
const BACKOFF: Duration = Duration::from_secs(1);

/// How many Events wait at most: more than the actions of one large reconciliation. An Event takes about a kilobyte.
const QUEUE: usize = 1024;

/// How many Events the recorder keeps at most, to make series of them: about a mebibyte.
const RECORDED: usize = 512;

/// An action that still fails for the same reason becomes an Event again after this time. It is the interval at which client-go allows one
/// more Event of an object that has had too many (its EventSourceObjectSpamFilter), and shorter than the six minutes of a series.
const REPEAT: Duration = Duration::from_secs(5 * 60);

/// The API's limit of a note, in bytes.
const NOTE_BYTES: usize = 1024;

/// Writes the log lines and Events of one controller. Clones share the queue and the reported problems.
#[derive(Clone, Debug)]
pub struct Events {
    shared: Arc<Shared>,
    reported: Arc<Mutex<HashSet<Reported>>>,
    published: Published,
}

/// There is an [`Events`] for each object of a controller, which has to be small.
#[derive(Debug)]
struct Shared {
    queue: mpsc::Sender<Message>,
    metrics: Metrics,
    /// When the failure of an action became an Event last, by its reason. It keeps the last five minutes.
    failures: Mutex<HashMap<Failing, HashMap<&'static str, Instant>>>,
}

/// The log lines that are Events too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Published {
    All,
    Warnings,
    None,
}

/// A problem as a person sees it: object, second object, reason and text.
type Reported = (Regarding, Option<Related>, &'static str, String);

/// An action on its objects. The error is not compared, because a cloud's errors have another request ID each time.
type Failing = (Regarding, Option<Related>, &'static str);

enum Message {
    Publish(Box<Publication>),
    /// Everything before it is published.
    Drained(oneshot::Sender<()>),
}

struct Publication {
    event: Event,
    regarding: ObjectReference,
}

impl Events {
    /// Starts the task that publishes; it ends with the last clone. `instance` is the Pod's name, to distinguish replicas. Must be
    /// called inside a tokio runtime.
    #[must_use]
    pub fn new(client: Client, metrics: &Metrics, controller: &'static str, instance: String) -> Self {
        let reporter = Reporter { controller: names::field_manager(controller), instance: Some(instance) };
        let (queue, messages) = mpsc::channel(QUEUE);
        tokio::spawn(publish(messages, client, reporter, metrics.clone()));
        let shared = Arc::new(Shared { queue, metrics: metrics.clone(), failures: Mutex::default() });
        Events { shared, reported: Arc::default(), published: Published::All }
    }

    /// The same queue with reported problems of its own: for a controller that plans one object at a time, so that the problems
    /// of one object do not count as gone when another object is reconciled.
    #[must_use]
    pub fn scoped(&self) -> Self {
        Events { reported: Arc::default(), ..self.clone() }
    }

    /// The same log lines without Events, each of which is a write: for the rest of many actions of one kind.
    #[must_use]
    pub fn log_only(&self) -> Self {
        Events { published: Published::None, ..self.clone() }
    }

    /// The same log lines, with Events for problems and failed actions only: for a controller with thousands of routine actions.
    #[must_use]
    pub fn warnings_only(&self) -> Self {
        Events { published: Published::Warnings, ..self.clone() }
    }

    /// Reports an action that succeeded: a log line at info and a Normal Event; a log line at warn and a Warning Event where
    /// its reason is trouble.
    pub fn done<A: Action>(&self, step: &Step<A>) {
        let (action, reason) = (step.action.name(), step.because.code());
        let (because, regarding) = (step.because.to_string(), step.action.regarding());
        let type_ = if step.because.is_trouble() {
            tracing::warn!(action, reason, because, %regarding, "{}", step.action);
            EventType::Warning
        } else {
            tracing::info!(action, reason, because, %regarding, "{}", step.action);
            EventType::Normal
        };
        let failing = (regarding, related(step), action);
        self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&failing);
        let (regarding, related, _) = failing;
        let note = format!("{}: {because}", step.action);
        self.enqueue(type_, action, reason, note, (&regarding, related));
    }

    /// Reports an action that failed: a log line at error, and a Warning Event unless one reported the same failure within the last
    /// five minutes.
    pub fn failed<A: Action>(&self, step: &Step<A>, error: &(dyn Error + Sync + 'static)) {
        let (action, reason) = (step.action.name(), step.because.code());
        let error = error_chain(error);
        tracing::error!(action, reason, because = step.because.to_string(), regarding = %step.action.regarding(), error,
            "failed: {}", step.action);
        let (regarding, related) = (step.action.regarding(), related(step));
        let failing = (regarding.clone(), related.clone(), action);
        if self.published == Published::None || !self.shared.is_due(failing, reason) {
            return;
        }
        let note = format!("failed: {}: {error} ({})", step.action, step.because);
        self.enqueue(EventType::Warning, action, reason, note, (&regarding, related));
    }

    /// Reports the problems of one reconciliation: each one that the reconciliation before did not have gets a log line at warn
    /// and a Warning Event. A problem that disappears and comes back is reported again.
    pub fn found<R: Reason>(&self, problems: &[Problem<R>]) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = HashSet::new();
        for problem in problems {
            let text = problem.because.to_string();
            let (reason, related) = (problem.because.code(), problem.because.related());
            let key = (problem.regarding.clone(), related.clone(), reason, text.clone());
            let known = reported.contains(&key);
            if now.insert(key) && !known {
                tracing::warn!(reason, regarding = %problem.regarding, "{text}");
                self.enqueue(EventType::Warning, "Find", reason, text, (&problem.regarding, related));
            }
        }
        *reported = now;
    }

    /// Waits until everything that was reported before is published, for at most `limit`.
    pub async fn drain(&self, limit: Duration) {
        let (done, drained) = oneshot::channel();
        let Shared { queue, .. } = &*self.shared;
        let drain = async { queue.send(Message::Drained(done)).await.is_ok() && drained.await.is_ok() };
        if !tokio::time::timeout(limit, drain).await.unwrap_or(false) {
            let waiting = queue.max_capacity().saturating_sub(queue.capacity());
            tracing::warn!(waiting, "not all Events could be published before the exit");
        }
    }

    fn enqueue(
        &self,
        type_: EventType,
        action: &str,
        reason: &str,
        note: String,
        (regarding, related): (&Regarding, Option<Related>),
    ) {
        match (self.published, type_) {
            (Published::All, _) | (Published::Warnings, EventType::Warning) => {}
            _ => return,
        }
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(cut(note)),
            action: action.to_owned(),
            secondary: related.map(|related| ObjectReference {
                kind: Some(related.kind),
                namespace: related.namespace,
                name: Some(related.name),
                ..ObjectReference::default()
            }),
        };
        let object = ObjectReference {
            api_version: Some(regarding.api_version.to_owned()),
            kind: Some(regarding.kind.to_owned()),
            namespace: regarding.namespace.clone(),
            name: Some(regarding.name.clone()),
            uid: regarding.uid.clone(),
            ..ObjectReference::default()
        };
        let publication = Box::new(Publication { event, regarding: object });
        if self.shared.queue.try_send(Message::Publish(publication)).is_err() {
            self.shared.metrics.event(EventResult::Dropped);
            tracing::warn!(reason, %regarding, "an Event is dropped: the queue of Events is full");
        }
    }
}

impl Shared {
    /// Whether a failure is to become an Event. If so, it counts as one from now on.
    fn is_due(&self, failing: Failing, reason: &'static str) -> bool {
        let now = Instant::now();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|_, reasons| {
            reasons.retain(|_, published| now.duration_since(*published) < REPEAT);
            !reasons.is_empty()
        });
        match failures.entry(failing).or_default().entry(reason) {
            Entry::Vacant(entry) => {
                entry.insert(now);
                true
            }
            Entry::Occupied(_) => false,
        }
    }
}

/// Publishes one Event after the other.
async fn publish(
    mut messages: mpsc::Receiver<Message>,
    client: Client,
    reporter: Reporter,
    metrics: Metrics,
) {
    let events = || Publisher::Events(Recorder::new(client.clone(), reporter.clone()));
    let core = || Publisher::Core(CoreRecorder::new(client.clone(), reporter.clone()));
    let new = |of_api: &Publisher| match of_api {
        Publisher::Events(_) => events(),
        Publisher::Core(_) => core(),
    };
    let mut publisher = events();
    let mut recorded = 0;
    while let Some(message) = messages.recv().await {
        let Publication { event, regarding } = match message {
            Message::Publish(publication) => *publication,
            Message::Drained(done) => {
                // The waiting side may have given up.
                let _late = done.send(());
                continue;
            }
        };
        // The recorder keeps each Event for six minutes. A new one only begins new series.
        if recorded == RECORDED {
            publisher = new(&publisher);
            recorded = 0;
        }
        recorded += 1;
        let mut published = publisher.publish(&event, &regarding).await;
        // The Event of the series was deleted, by a user or after a short --event-ttl of the API server: a new series begins.
        if matches!(published, Err(Failure { is_missing: true, .. })) {
            publisher = new(&publisher);
            recorded = 1;
            published = publisher.publish(&event, &regarding).await;
        }
        if matches!((&publisher, &published), (Publisher::Events(_), Err(Failure { is_forbidden: true, .. })))
        {
            // A namespace that is being deleted, or a quota, refuses Events of both APIs: then the right is not missing.
            let other = core();
            if other.publish(&event, &regarding).await.is_ok() {
                tracing::info!("events.k8s.io is forbidden; publishing core Events");
                publisher = other;
                published = Ok(());
            }
        }
        match published {
            Ok(()) => metrics.event(EventResult::Published),
            Err(Failure { text: error, .. }) => {
                metrics.event(EventResult::Failed);
                let (kind, name) = (regarding.kind.as_deref(), regarding.name.as_deref());
                tracing::warn!(reason = event.reason, kind, name, error, "an Event cannot be published");
            }
        }
    }
}

/// Why an Event is not published.
struct Failure {
    /// The same Event may be accepted later. A missing right is no such case.
    is_transient: bool,
    is_forbidden: bool,
    /// The Event that counts up does not exist, or the namespace.
    is_missing: bool,
    text: String,
}

/// Writes Events of one of the APIs.
enum Publisher {
    Events(Recorder),
    Core(CoreRecorder),
}

impl Publisher {
    async fn publish(&self, event: &Event, regarding: &ObjectReference) -> Result<(), Failure> {
        let attempt = async || {
            let published = async {
                match self {
                    Publisher::Events(recorder) => recorder.publish(event, regarding).await,
                    Publisher::Core(recorder) => recorder.publish(event, regarding).await,
                }
            };
            match tokio::time::timeout(TIMEOUT, published).await {
                Ok(result) => result.map_err(|error| Failure::of(&error)),
                Err(_) => Err(Failure {
                    is_transient: true,
                    is_forbidden: false,
                    is_missing: false,
                    text: format!("no response within {} s", TIMEOUT.as_secs()),
                }),
            }
        };
        let policy = ExponentialBuilder::default().with_min_delay(BACKOFF).with_max_times(RETRIES);
        attempt.retry(policy).when(|failure| failure.is_transient).await
    }
}

impl Failure {
    fn of(error: &kube::Error) -> Failure {
        let code = match error {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        };
        Failure {
            is_transient: code.is_none_or(|code| code == 429 || code >= 500),
            is_forbidden: code == Some(403),
            is_missing: code == Some(404),
            text: error_chain(error),
        }
    }
}

/// The second object of a step.
fn related<A: Action>(step: &Step<A>) -> Option<Related> {
    step.action.related().or_else(|| step.because.related())
}

/// At most what the API takes, cut between characters.
fn cut(mut note: String) -> String {
    if note.len() > NOTE_BYTES {
        const MARK: &str = "...";
        let mut end = NOTE_BYTES - MARK.len();
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        note.truncate(end);
        note.push_str(MARK);
    }
    note
}

#[cfg(test)]
mod tests;
