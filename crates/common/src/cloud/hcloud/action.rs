//! Actions: what the API does after it has answered.

use serde::{Deserialize, Serialize};

use super::code::Code;
use crate::cloud::field::or_empty;

/// An asynchronous act of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// ID.
    pub id: u64,
    /// `add_route`, `delete_route`, …
    #[serde(default, deserialize_with = "or_empty")]
    pub command: String,
    /// How far it is.
    pub status: Status,
    /// Percent.
    #[serde(default, deserialize_with = "or_empty")]
    pub progress: u8,
    /// Means something only with [`Status::Error`]: the API fills it in while running too. Read it through
    /// [`Action::failure`].
    #[serde(default)]
    pub error: Option<ActionError>,
}

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Done.
    Success,
    /// Failed; what it did is unknown.
    Error,
    /// Under way. A word that is new to us is taken for this one: neither success nor failure is known.
    #[serde(other)]
    Running,
}

/// Why an action failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionError {
    /// For programs.
    pub code: Code,
    /// For people.
    #[serde(default, deserialize_with = "or_empty")]
    pub message: String,
}

impl Action {
    /// Why it failed; None unless it did.
    #[must_use]
    pub fn failure(&self) -> Option<ActionError> {
        (self.status == Status::Error).then(|| {
            let unsaid = || ActionError {
                code: Code::from("unknown".to_owned()),
                message: "no reason given".to_owned(),
            };
            self.error.clone().unwrap_or_else(unsaid)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(json: &str) -> Action {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_error_counts_only_in_status_error() {
        let error = r#""error": {"code": "action_failed", "message": "Action failed"}"#;
        let running = action(&format!(
            r#"{{"id": 1, "command": "add_route", "status": "running", "progress": 50, {error}}}"#
        ));
        assert_eq!((running.status, running.failure()), (Status::Running, None));
        let success = action(&format!(r#"{{"id": 1, "status": "success", {error}}}"#));
        assert_eq!(success.failure(), None);
        let failed = action(&format!(r#"{{"id": 1, "status": "error", {error}}}"#));
        assert_eq!(failed.failure().unwrap().code.as_str(), "action_failed");
        assert!(action(r#"{"id": 1, "status": "error", "error": null}"#).failure().is_some());
    }

    #[test]
    fn a_status_that_is_new_is_running() {
        assert_eq!(action(r#"{"id": 1, "status": "queued"}"#).status, Status::Running);
    }
}
