//! Errors of a call, and the API's error codes.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cloud::http::{self, Partial, RateLimit, Response, Retry, retry_after};
use crate::cloud::or_empty;

/// A call that failed. `call` names the operation and its object: `add route 0.0.0.0/0 via 10.0.0.2 to network 4711`.
///
/// `Display` includes the causes, so there is no `source`.
#[derive(Debug, Error)]
pub enum Error {
    /// The client cannot be built: the endpoint, the trusted authorities or the registry. Only from `new`.
    #[error("Hetzner client: {0}")]
    Setup(http::Error),
    /// The API refused.
    #[error("{call}: Hetzner responded with {code} (HTTP {status}): {message}{}", advice(code))]
    Api {
        /// The operation.
        call: String,
        /// The API's code: decisions depend on this.
        code: Code,
        /// The HTTP status, for the message.
        status: u16,
        /// The API's message.
        message: String,
        /// The result of [`Error::retry`].
        retry: Retry,
    },
    /// No object has this name.
    #[error("{call}: no object has this name{}", advice(&Code::NotFound))]
    NotFound {
        /// The operation.
        call: String,
    },
    /// The action failed. It is not known what it did.
    #[error("{call}: action {action} failed with {code}: {message}{}", advice(code))]
    ActionFailed {
        /// The operation.
        call: String,
        /// The action's ID.
        action: u64,
        /// The action's code.
        code: Code,
        /// The API's message.
        message: String,
    },
    /// The API no longer knows the action. It is not known what it did.
    #[error("{call}: the API no longer knows action {action}")]
    ActionMissing {
        /// The operation.
        call: String,
        /// The action's ID.
        action: u64,
    },
    /// The action did not finish in time. It may still succeed.
    #[error("{call}: action {action} did not finish within {:.0} s (last status: {last})", waited.as_secs_f64())]
    Timeout {
        /// The operation.
        call: String,
        /// The action's ID.
        action: u64,
        /// Time of the wait.
        waited: Duration,
        /// Its progress, or the last error of a poll.
        last: String,
    },
    /// No response came. A write may or may not have acted.
    #[error("{call}: {cause}")]
    Transport {
        /// The operation.
        call: String,
        /// The cause.
        cause: http::Error,
    },
    /// The response does not match the API's documentation.
    #[error("{call}: cannot parse Hetzner's response: {cause}")]
    Decode {
        /// The operation.
        call: String,
        /// The error of the parser.
        cause: serde_json::Error,
    },
    /// The list could not be read completely.
    #[error("{call}: {cause}")]
    Partial {
        /// The operation.
        call: String,
        /// Why.
        cause: Partial,
    },
}

fn advice(code: &Code) -> String {
    code.advice().map(|advice| format!("; {advice}")).unwrap_or_default()
}

impl Error {
    /// The API's code, of a response or of an action.
    #[must_use]
    pub fn code(&self) -> Option<&Code> {
        match self {
            Error::Api { code, .. } | Error::ActionFailed { code, .. } => Some(code),
            Error::NotFound { .. } => Some(&Code::NotFound),
            _ => None,
        }
    }

    /// When to retry. Before a write is repeated, read the object and compare: the first write may have acted.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::Api { retry, .. } => *retry,
            Error::Transport { cause, .. } => cause.retry(),
            // A change that is half done is an outage until it is repeated, so only a permanent code prevents the retry.
            Error::ActionFailed { code, .. } => code.retry().unwrap_or(Retry::Soon),
            Error::ActionMissing { .. } | Error::Timeout { .. } | Error::Partial { .. } => Retry::Soon,
            Error::Setup(_) | Error::NotFound { .. } | Error::Decode { .. } => Retry::Never,
        }
    }

    /// The error of a response without a 2xx status.
    pub(super) fn of(call: &str, response: &Response) -> Error {
        let (code, message) = error_body(response);
        let retry = retry_policy(response);
        Error::Api { call: call.to_owned(), code, status: response.status.as_u16(), message, retry }
    }
}

/// Whether a response without a 2xx status is retried.
pub(super) fn retry_policy(response: &Response) -> Retry {
    let (code, _) = error_body(response);
    // For an unknown code, the HTTP status decides.
    let code = if code.retry().is_some() { code } else { Code::of_status(response.status.as_u16()) };
    let unknown = if response.status.is_server_error() { Retry::Soon } else { Retry::Never };
    match (code.retry().unwrap_or(unknown), retry_after(&response.headers)) {
        (Retry::Never, _) => Retry::Never,
        (_, Some(asked)) => Retry::After(asked),
        (_, None) if code == Code::RateLimitExceeded => {
            Retry::After(RateLimit::refill(RateLimit::of(&response.headers)))
        }
        (retry, None) => retry,
    }
}

/// The code and message of an error response; the page of a load balancer is shortened to one line.
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
            // Enough to recognise the page of a proxy.
            let text: String = String::from_utf8_lossy(&response.body).chars().take(120).collect();
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            (Code::of_status(response.status.as_u16()), format!("this is no response of the API: \"{line}\""))
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
    /// An unknown code, as the API wrote it; `http_<status>` for a response that is not the API's.
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

    /// The code for a response without one, mostly of a load balancer. A bare 404 is not `not_found`, because a wrong endpoint returns
    /// it too.
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

    /// Whether a call with this code is retried; None for an unknown code.
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

    /// Advice for the user; `None` for a code without advice, for most of which the only remedy is to wait.
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
                "the project's requests an hour are used up: find another client that sends too many requests",
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
    fn codes_and_names_convert_both_ways() {
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
