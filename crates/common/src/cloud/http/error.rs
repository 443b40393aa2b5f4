//! Why an exchange brought no answer.

use std::time::Duration;

use thiserror::Error;

use super::retry::Retry;
use super::secret::SecretError;

/// No answer came, or none that may be used. An answer with an error status is none of these: it is an `Response`.
///
/// `Display` is complete: causes are part of the text, so there is no `source` to print a second time.
#[derive(Debug, Error)]
pub enum Error {
    /// The client cannot be built from what it was given.
    #[error("{0}")]
    Setup(String),
    /// The credential cannot be read.
    #[error("{0}")]
    Secret(SecretError),
    /// No connection: name, address or TLS handshake.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection broke before the answer was whole.
    #[error("the connection broke before the answer was whole: {0}")]
    Broken(String),
    /// The deadline of one exchange passed.
    #[error("no whole answer within {:.0} s", .0.as_secs_f64().ceil())]
    Deadline(Duration),
    /// The answer is larger than the cap.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The answer is compressed.
    #[error(
        "the answer is encoded ({0}) although it was asked for as it is: something on the way compresses it"
    )]
    Encoded(&'static str),
}

impl Error {
    /// Whether the same exchange may bring an answer when it is done again.
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
