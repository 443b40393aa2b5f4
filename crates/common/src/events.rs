//! What a person sees of a controller's acts: for each one, one log line and one Event, out of the same value.
//!
//! An Event is a courtesy: one that cannot be published is logged and never fails, nor holds up, the act it tells of. Those
//! of one act on one object, for one reason, become a series of one Event within six minutes, with the words of the first:
//! where one object stands for many, act and reason say which of them they are about ([`Action::related`],
//! [`Reason::related`]). Needed rights: `create` and `patch` on `events.k8s.io/events`.

use std::{
    collections::HashSet,
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::{
    cluster::error_chain,
    names,
    plan::{Action, Problem, Reason, Regarding, Related, Step},
};

/// A pass must not wait long for a courtesy; the API server answers such a write in milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// After an Event that took too long, none is tried for so long: a pass with many of them would wait for each.
const SILENCE: Duration = Duration::from_secs(60);

/// How many Events are remembered at the most, to make series of them: about a mebibyte.
const REMEMBERED: usize = 512;

/// The API's limit of a note, in bytes.
const NOTE_BYTES: usize = 1024;

/// Writes the log lines and Events of one controller. Clones share what was already told.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    /// The recorder, and how many Events it may have in mind.
    recorder: Arc<Mutex<(Recorder, usize)>>,
    told: Arc<Mutex<HashSet<Told>>>,
    /// Until when nothing is published, after one that took too long.
    silent: Arc<Mutex<Option<Instant>>>,
}

/// A problem as a person sees it: where, about what, which, and in what words.
type Told = (Regarding, Option<Related>, &'static str, String);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("told", &self.told).finish_non_exhaustive()
    }
}

impl Events {
    /// `instance` is who of several replicas: the Pod's name.
    #[must_use]
    pub fn new(client: Client, controller: &'static str, instance: String) -> Self {
        let reporter = Reporter { controller: names::field_manager(controller), instance: Some(instance) };
        let recorder = Recorder::new(client.clone(), reporter.clone());
        let recorder = Arc::new(Mutex::new((recorder, 0)));
        Events { client, reporter, recorder, told: Arc::default(), silent: Arc::default() }
    }

    /// The recorder keeps each Event for six minutes, a kilobyte and more. One that has published so many gives way to a new one,
    /// which only begins its series anew.
    fn recorder(&self) -> Recorder {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        if recorder.1 == REMEMBERED {
            *recorder = (Recorder::new(self.client.clone(), self.reporter.clone()), 0);
        }
        recorder.1 += 1;
        recorder.0.clone()
    }

    /// A step was done: logged at info, a Normal Event; at warn, a Warning, where its reason is trouble.
    pub async fn done<A: Action>(&self, step: &Step<A>) {
        let (action, reason) = (step.action.name(), step.because.code());
        let (because, regarding) = (step.because.to_string(), step.action.regarding());
        let type_ = if step.because.is_trouble() {
            tracing::warn!(action, reason, because, %regarding, "{}", step.action);
            EventType::Warning
        } else {
            tracing::info!(action, reason, because, %regarding, "{}", step.action);
            EventType::Normal
        };
        let note = format!("{}: {because}", step.action);
        self.publish(type_, action, reason, note, (&regarding, related(step))).await;
    }

    /// A step failed: logged at error, a Warning Event.
    pub async fn failed<A: Action>(&self, step: &Step<A>, error: &(dyn Error + Sync + 'static)) {
        let (action, reason) = (step.action.name(), step.because.code());
        let error = error_chain(error);
        tracing::error!(action, reason, because = step.because.to_string(), regarding = %step.action.regarding(), error,
            "failed: {}", step.action);
        let note = format!("failed: {}: {error} ({})", step.action, step.because);
        let objects = (&step.action.regarding(), related(step));
        self.publish(EventType::Warning, action, reason, note, objects).await;
    }

    /// The problems of one pass: each that the pass before did not have is logged at warn, and becomes a Warning Event.
    /// One that went away and came back is told again; so is one whose Event could not be published.
    pub async fn found<R: Reason>(&self, problems: &[Problem<R>]) {
        let mut now = HashSet::new();
        for problem in problems {
            let text = problem.because.to_string();
            let (reason, related) = (problem.because.code(), problem.because.related());
            let told = (problem.regarding.clone(), related.clone(), reason, text.clone());
            if now.contains(&told) {
                continue;
            }
            let known = self.told.lock().unwrap_or_else(PoisonError::into_inner).contains(&told);
            if !known {
                tracing::warn!(reason, regarding = %problem.regarding, "{text}");
                let objects = (&problem.regarding, related);
                if !self.publish(EventType::Warning, "Find", reason, text, objects).await {
                    continue;
                }
            }
            now.insert(told);
        }
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Whether it is too soon after an Event that took too long.
    fn is_silent(&self) -> bool {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.is_some_and(|until| Instant::now() < until)
    }

    /// Whether it was published.
    async fn publish(
        &self,
        type_: EventType,
        action: &str,
        reason: &str,
        note: String,
        (regarding, related): (&Regarding, Option<Related>),
    ) -> bool {
        if self.is_silent() {
            return false;
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
        let reference = ObjectReference {
            api_version: Some(regarding.api_version.to_owned()),
            kind: Some(regarding.kind.to_owned()),
            namespace: regarding.namespace.clone(),
            name: Some(regarding.name.clone()),
            uid: regarding.uid.clone(),
            ..ObjectReference::default()
        };
        match tokio::time::timeout(PATIENCE, self.recorder().publish(&event, &reference)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(reason, %regarding, %error, "an Event could not be published");
                false
            }
            Err(_) => {
                tracing::warn!(reason, %regarding, "an Event could not be published in {} s; none is for {} s",
                    PATIENCE.as_secs(), SILENCE.as_secs());
                *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + SILENCE);
                false
            }
        }
    }
}

/// What a step is about beside its object.
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
