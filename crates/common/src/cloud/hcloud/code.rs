//! The API's error codes, and what each means for us.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cloud::http::Retry;

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
