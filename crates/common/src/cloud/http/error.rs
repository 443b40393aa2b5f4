//! Why an exchange brought no response.

use std::time::Duration;

use thiserror::Error;

use super::retry::Retry;
use super::secret::SecretError;

/// No usable response came. A response with an error status is not an `Error` but a `Response`.
///
/// `Display` includes the causes, so there is no `source`.
#[derive(Debug, Error)]
pub enum Error {
    /// The configuration of the client is not valid.
    #[error("{0}")]
    Setup(String),
    /// The credential cannot be read.
    #[error("{0}")]
    Secret(SecretError),
    /// No connection: name, address or TLS handshake.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection broke before the response was complete.
    #[error("the connection broke before the response was complete: {0}")]
    Broken(String),
    /// The deadline of one exchange passed.
    #[error("no complete response within {:.0} s", .0.as_secs_f64().ceil())]
    Deadline(Duration),
    /// The response is larger than the limit.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// The response is compressed.
    #[error("the response is encoded ({0}) although identity was requested: a proxy compresses it")]
    Encoded(&'static str),
}

impl Error {
    /// Whether a retry may succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::Connect(_) | Error::Broken(_) | Error::Deadline(_) => Retry::Soon,
            Error::Setup(_) | Error::Secret(_) | Error::TooLarge(_) | Error::Encoded(_) => Retry::Never,
        }
    }
}

/// An error and its causes in one line.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
