//! What went wrong with a call, for programs and for people.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cloud::http::{self, Partial, RateLimit, Response, Retry, retry_after};
use crate::cloud::or_empty;

/// A call that did not do what it should. `call` says what was wanted and of which object: `add route 0.0.0.0/0 via
/// 10.0.0.2 to network 4711`.
///
/// `Display` is complete: causes are part of the text, so there is no `source` to print a second time.
#[derive(Debug, Error)]
pub enum Error {
    /// The client cannot be built: the endpoint, the trusted authorities or the registry. Only from `new`.
    #[error("Hetzner client: {0}")]
    Setup(http::Error),
    /// The API refused.
    #[error("{call}: Hetzner answered {code} (HTTP {status}): {message}{}", advice(code))]
    Api {
        /// What was wanted.
        call: String,
        /// The API's code: decide by this.
        code: Code,
        /// The HTTP status, for people.
        status: u16,
        /// What the API said.
        message: String,
        /// What [`Error::retry`] returns.
        retry: Retry,
    },
    /// Nothing has the name that was asked for.
    #[error("{call}: there is none of this name{}", advice(&Code::NotFound))]
    NotFound {
        /// What was wanted.
        call: String,
    },
    /// The action ended with an error. What it did is unknown.
    #[error("{call}: action {action} failed with {code}: {message}{}", advice(code))]
    ActionFailed {
        /// What was wanted.
        call: String,
        /// The action's ID.
        action: u64,
        /// The action's code.
        code: Code,
        /// What the API said.
        message: String,
    },
    /// The API does not know the action that it gave us. What it did is unknown.
    #[error("{call}: the API no longer knows action {action}")]
    ActionMissing {
        /// What was wanted.
        call: String,
        /// The action's ID.
        action: u64,
    },
    /// The action was not over in time. It may still succeed.
    #[error("{call}: action {action} was not over after {:.0} s (last seen: {last})", waited.as_secs_f64())]
    Timeout {
        /// What was wanted.
        call: String,
        /// The action's ID.
        action: u64,
        /// How long it was waited for.
        waited: Duration,
        /// Its progress, or the last error on asking for it.
        last: String,
    },
    /// No answer came. A write may or may not have acted.
    #[error("{call}: {cause}")]
    Transport {
        /// What was wanted.
        call: String,
        /// What happened.
        cause: http::Error,
    },
    /// The answer is not what the API documents.
    #[error("{call}: cannot read Hetzner's answer: {cause}")]
    Decode {
        /// What was wanted.
        call: String,
        /// What was expected, and where.
        cause: serde_json::Error,
    },
    /// The list could not be read whole.
    #[error("{call}: {cause}")]
    Partial {
        /// What was wanted.
        call: String,
        /// What was wrong with it.
        cause: Partial,
    },
}

fn advice(code: &Code) -> String {
    code.advice().map(|advice| format!("; {advice}")).unwrap_or_default()
}

impl Error {
    /// The API's code, of an answer or of an action.
    #[must_use]
    pub fn code(&self) -> Option<&Code> {
        match self {
            Error::Api { code, .. } | Error::ActionFailed { code, .. } => Some(code),
            Error::NotFound { .. } => Some(&Code::NotFound),
            _ => None,
        }
    }

    /// When to try again. Before a write is repeated, read the object and compare: the first one may have acted.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::Api { retry, .. } => *retry,
            Error::Transport { cause, .. } => cause.retry(),
            // A half-done change stays an outage until it is repeated, so only a code that forbids it does.
            Error::ActionFailed { code, .. } => code.retry().unwrap_or(Retry::Soon),
            Error::ActionMissing { .. } | Error::Timeout { .. } | Error::Partial { .. } => Retry::Soon,
            Error::Setup(_) | Error::NotFound { .. } | Error::Decode { .. } => Retry::Never,
        }
    }

    /// The error that an answer without a 2xx status is.
    pub(super) fn of(call: &str, response: &Response) -> Error {
        let (code, message) = error_body(response);
        let retry = retry_policy(response);
        Error::Api { call: call.to_owned(), code, status: response.status.as_u16(), message, retry }
    }
}

/// What an answer without a 2xx status means for a repetition.
pub(super) fn retry_policy(response: &Response) -> Retry {
    let (code, _) = error_body(response);
    // A code that we do not know decides nothing; then the status says what the matter is, or at least whose fault it was.
    let code = if code.retry().is_some() { code } else { Code::of_status(response.status.as_u16()) };
    let unknown = if response.status.is_server_error() { Retry::Soon } else { Retry::Never };
    match (code.retry().unwrap_or(unknown), retry_after(&response.headers)) {
        (Retry::Never, _) => Retry::Never,
        (_, Some(asked)) => Retry::After(asked),
        (_, None) if code == Code::RateLimitExceeded => {
            Retry::After(RateLimit::refill(RateLimit::of(&response.headers), 1))
        }
        (retry, None) => retry,
    }
}

/// The code and message of an error answer; what a load balancer says is shortened to a line.
fn error_body(response: &Response) -> (Code, String) {
    #[derive(Deserialize)]
    struct Body {
        error: ErrorBody,
    }
    #[derive(Deserialize)]
    struct ErrorBody {
        code: Code,
        #[serde(default, deserialize_with = "or_empty")]
        message: String,
    }
    match serde_json::from_slice::<Body>(&response.body) {
        Ok(Body { error: ErrorBody { code, message } }) => (code, message),
        Err(_) => {
            // Enough to recognise a proxy's page by.
            let text: String = String::from_utf8_lossy(&response.body).chars().take(120).collect();
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            (Code::of_status(response.status.as_u16()), format!("this is no answer of the API: \"{line}\""))
        }
    }
}

/// The API's error code: decisions are made by it, not by the HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Code {
    /// `forbidden`
    Forbidden,
    /// `unauthorized`
    Unauthorized,
    /// `token_readonly`
    TokenReadonly,
    /// `invalid_input`
    InvalidInput,
    /// `not_found`
    NotFound,
    /// `resource_limit_exceeded`
    ResourceLimitExceeded,
    /// `protected`
    Protected,
    /// `uniqueness_error`: there is one like it.
    UniquenessError,
    /// `rate_limit_exceeded`
    RateLimitExceeded,
    /// `locked`: another action holds the object.
    Locked,
    /// `conflict`: the object is being changed.
    Conflict,
    /// `timeout`
    Timeout,
    /// `bad_gateway`
    BadGateway,
    /// `unavailable`
    Unavailable,
    /// `server_error`
    ServerError,
    /// A code that nothing here decides by, as the API wrote it; `http_<status>` for an answer that is not the API's.
    Other(String),
}

const NAMES: [(Code, &str); 15] = [
    (Code::Forbidden, "forbidden"),
    (Code::Unauthorized, "unauthorized"),
    (Code::TokenReadonly, "token_readonly"),
    (Code::InvalidInput, "invalid_input"),
    (Code::NotFound, "not_found"),
    (Code::ResourceLimitExceeded, "resource_limit_exceeded"),
    (Code::Protected, "protected"),
    (Code::UniquenessError, "uniqueness_error"),
    (Code::RateLimitExceeded, "rate_limit_exceeded"),
    (Code::Locked, "locked"),
    (Code::Conflict, "conflict"),
    (Code::Timeout, "timeout"),
    (Code::BadGateway, "bad_gateway"),
    (Code::Unavailable, "unavailable"),
    (Code::ServerError, "server_error"),
];

impl Code {
    /// As the API writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Code::Other(text) => text,
            code => NAMES.iter().find(|(known, _)| known == code).map_or("", |(_, name)| name),
        }
    }

    /// The code for an answer without one: mostly a load balancer spoke, not the API. A bare 404 is no `not_found`, because a wrong
    /// endpoint gives it too, and nothing must be concluded from that.
    pub(super) fn of_status(status: u16) -> Code {
        match status {
            408 => Code::Timeout,
            409 => Code::Conflict,
            423 => Code::Locked,
            429 => Code::RateLimitExceeded,
            500 => Code::ServerError,
            502 => Code::BadGateway,
            503 => Code::Unavailable,
            504 => Code::Timeout,
            _ => Code::Other(format!("http_{status}")),
        }
    }

    /// What a call that got this code may do; None where the code says nothing.
    pub(super) fn retry(&self) -> Option<Retry> {
        match self {
            Code::Locked
            | Code::Conflict
            | Code::Timeout
            | Code::BadGateway
            | Code::Unavailable
            | Code::ServerError
            | Code::RateLimitExceeded => Some(Retry::Soon),
            Code::Forbidden
            | Code::Unauthorized
            | Code::TokenReadonly
            | Code::InvalidInput
            | Code::NotFound
            | Code::ResourceLimitExceeded
            | Code::Protected
            | Code::UniquenessError => Some(Retry::Never),
            Code::Other(_) => None,
        }
    }

    /// What a person can do about it; None where there is nothing to do but wait.
    pub(super) fn advice(&self) -> Option<&'static str> {
        match self {
            Code::TokenReadonly => {
                Some("the token must be Read & Write: make a new one in the project's security settings")
            }
            Code::Unauthorized => Some("the token is wrong or was revoked: check the Secret that holds it"),
            Code::Forbidden => {
                Some("the token does not allow this: use one of the project that owns the object")
            }
            Code::NotFound => Some("check the ID, and that the token is of the project that owns the object"),
            Code::InvalidInput => Some("the API refuses this request as it is: check the configured values"),
            Code::ResourceLimitExceeded => {
                Some("remove what is not needed, or ask Hetzner for a higher limit")
            }
            Code::Protected => Some("remove the protection of the object"),
            Code::RateLimitExceeded => Some(
                "the project's requests an hour are used up: look for another client that asks too often",
            ),
            _ => None,
        }
    }
}

impl From<String> for Code {
    fn from(text: String) -> Code {
        NAMES.into_iter().find(|(_, name)| *name == text).map_or(Code::Other(text), |(code, _)| code)
    }
}

impl From<Code> for String {
    fn from(code: Code) -> String {
        code.as_str().to_owned()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for (code, name) in NAMES {
            assert_eq!(Code::from(name.to_owned()), code);
            assert_eq!(code.as_str(), name);
            assert!(code.retry().is_some());
        }
        assert_eq!(Code::from("new_next_year".to_owned()), Code::Other("new_next_year".to_owned()));
    }

    #[test]
    fn a_bare_404_is_not_the_apis_not_found() {
        assert_eq!(Code::of_status(404), Code::Other("http_404".to_owned()));
        assert_eq!(Code::of_status(503), Code::Unavailable);
    }
}
