//! Actions: what the API does after it has answered, and how it says how far it is.

use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use super::{change::Change, model::stamp};

/// How an action stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not finished.
    Running,
    /// Finished, and done.
    Success,
    /// Finished, and (normally) not done.
    Error,
}

/// When the change of an action is seen by readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// As soon as the action is accepted.
    Start,
    /// When the action succeeds.
    #[default]
    End,
}

/// An action that is made to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionFailure {
    /// For example `add_route`.
    pub command: String,
    /// In the action's `error`.
    pub code: String,
    /// In the action's `error`.
    pub message: String,
    /// Whether the change is made all the same: the answer that lies.
    pub acts: bool,
}

impl ActionFailure {
    /// Fails the next action of that command as the API's example does; the change is not made.
    pub fn of(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            code: "action_failed".to_owned(),
            message: "Action failed".to_owned(),
            acts: false,
        }
    }

    /// The change is made although the action says that it failed.
    pub fn acting(self) -> Self {
        Self { acts: true, ..self }
    }
}

/// One action.
#[derive(Clone, Debug)]
pub struct Action {
    /// Unique in the project.
    pub id: u64,
    /// What it does.
    pub change: Change,
    /// How it stands.
    pub status: Status,
    /// Code and message, once it failed.
    pub error: Option<(String, String)>,
    /// When it was accepted.
    pub started: Instant,
    /// How long it runs.
    pub duration: Duration,
    pub(super) started_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) effect: Effect,
    pub(super) failure: Option<ActionFailure>,
}

impl Action {
    pub(super) fn json(&self, now: Instant, error_while_running: bool) -> Value {
        let error = match (&self.error, self.status) {
            (Some((code, message)), _) => json!({"code": code, "message": message}),
            // The documentation's own example; a client must not read it as a failure.
            (None, Status::Running) if error_while_running => {
                json!({"code": "action_failed", "message": "Action failed"})
            }
            (None, _) => Value::Null,
        };
        let resources: Vec<Value> =
            self.change.resources().into_iter().map(|(kind, id)| json!({"id": id, "type": kind})).collect();
        json!({
            "id": self.id,
            "command": self.change.command(),
            "status": match self.status {
                Status::Running => "running",
                Status::Success => "success",
                Status::Error => "error",
            },
            "progress": self.progress(now),
            "started": stamp(self.started_at),
            "finished": self.finished_at.map(stamp),
            "resources": resources,
            "error": error,
        })
    }

    /// In percent; 100 only when it is over.
    fn progress(&self, now: Instant) -> u64 {
        if self.status != Status::Running {
            return 100;
        }
        let whole = self.duration.as_secs_f64().max(f64::EPSILON);
        let part = now.saturating_duration_since(self.started).as_secs_f64() / whole;
        // Whole percents, rounded down, one short of the end.
        (part * 100.0).clamp(0.0, 99.0) as u64
    }
}
