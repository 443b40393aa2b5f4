//! Actions: a change is accepted first, and made when its action ends.

use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use super::{
    model::{Route, stamp},
    project::Project,
};

/// Whether an action runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not finished.
    Running,
    /// Finished, and done.
    Success,
    /// Finished, and (normally) not done.
    Error,
}

/// An action that is made to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionFailure {
    /// For example `add_route`.
    pub command: String,
    /// Whether the change is made although the action reports a failure.
    pub acts: bool,
}

impl ActionFailure {
    /// Fails the next action of that command; the change is not made.
    pub fn of(command: &str) -> Self {
        Self { command: command.to_owned(), acts: false }
    }

    /// The change is made although the action reports a failure.
    pub fn acting(self) -> Self {
        Self { acts: true, ..self }
    }
}

/// The change of a network's routes that an action makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The network's ID.
    pub network: u64,
    /// The route.
    pub route: Route,
    /// `add_route`, or else `delete_route`.
    pub adds: bool,
}

impl Change {
    /// The action's `command`.
    pub fn command(&self) -> &'static str {
        if self.adds { "add_route" } else { "delete_route" }
    }

    /// Makes the change. An error if the project was changed while the action ran.
    pub(super) fn apply(&self, project: &mut Project) -> Result<(), String> {
        let routes = &mut project.network_mut(self.network)?.routes;
        if self.adds {
            if routes.iter().any(|other| other.destination == self.route.destination) {
                return Err("network route destination is taken".to_owned());
            }
            routes.push(self.route);
            return Ok(());
        }
        let before = routes.len();
        routes.retain(|other| *other != self.route);
        if routes.len() == before { Err("network route is gone".to_owned()) } else { Ok(()) }
    }
}

/// One action.
#[derive(Clone, Debug)]
pub struct Action {
    /// Unique in the project.
    pub id: u64,
    /// The route change that it makes.
    pub change: Change,
    /// Whether it runs.
    pub status: Status,
    /// The message, once it failed.
    pub error: Option<String>,
    /// When it was accepted.
    pub started: Instant,
    /// How long it runs.
    pub duration: Duration,
    pub(super) started_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) failure: Option<ActionFailure>,
}

impl Action {
    pub(super) fn json(&self, now: Instant) -> Value {
        let error = match (&self.error, self.status) {
            (Some(message), _) => json!({"code": "action_failed", "message": message}),
            // As in the example of the documentation. A client must not take it for a failure.
            (None, Status::Running) => json!({"code": "action_failed", "message": "Action failed"}),
            (None, _) => Value::Null,
        };
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
            "resources": [{"id": self.change.network, "type": "network"}],
            "error": error,
        })
    }

    /// In percent; 100 once it has ended.
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
