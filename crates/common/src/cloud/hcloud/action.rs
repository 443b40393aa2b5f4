//! Actions: what the API does after its response.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::error::Code;
use crate::cloud::or_empty;

/// The code of a failure without a code.
const UNSAID: &str = "unknown";

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
    /// Percent, for messages; 0 if it is missing or not a whole number.
    #[serde(default, deserialize_with = "percent")]
    pub progress: u8,
    /// Valid only with [`Status::Error`]: the API may set it while the action is running. Read it through [`Action::failure`].
    #[serde(default, deserialize_with = "any_error")]
    pub error: Option<ActionError>,
}

fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(value.as_u64().and_then(|percent| u8::try_from(percent).ok()).unwrap_or_default())
}

/// The reason of a failure. None if it cannot be parsed: the action has failed nevertheless.
fn any_error<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ActionError>, D::Error> {
    let value = Value::deserialize(from)?;
    let text = |key| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let (code, message) = (text("code"), text("message"));
    Ok((code.is_some() || message.is_some()).then(|| ActionError {
        code: Code::from(code.unwrap_or_else(|| UNSAID.to_owned())),
        message: message.unwrap_or_default(),
    }))
}

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Done.
    Success,
    /// Failed; what it did is unknown.
    Error,
    /// Under way. An unknown status counts as this one: neither success nor failure is known.
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
            let unsaid =
                || ActionError { code: Code::from(UNSAID.to_owned()), message: "no reason given".to_owned() };
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
        for error in ["null", "{}", r#"{"code": null, "message": null}"#] {
            let failed = action(&format!(r#"{{"id": 1, "status": "error", "error": {error}}}"#));
            assert_eq!(failed.failure().unwrap().message, "no reason given", "{error}");
        }
    }

    #[test]
    fn what_is_only_for_people_is_never_a_reason_to_know_nothing() {
        let running = action(
            r#"{"id": 1, "status": "running", "progress": 33.3, "error": {"code": null, "message": ""}}"#,
        );
        assert_eq!((running.status, running.progress), (Status::Running, 0));
        let failed = action(r#"{"id": 1, "status": "error", "error": {"message": "why"}}"#);
        assert_eq!(failed.failure().unwrap().message, "why");
    }

    #[test]
    fn a_status_that_is_new_is_running() {
        assert_eq!(action(r#"{"id": 1, "status": "queued"}"#).status, Status::Running);
    }
}
