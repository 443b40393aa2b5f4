//! Why a reconciliation fails.

use common::cluster::error_chain;
use common::executor::ActionError;

/// Why a write, or the read before it, failed. The step that failed names the object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused it, or did not respond.
    #[error("{}", error_chain(.0))]
    Kubernetes(#[source] kube::Error),
    /// A request cannot be made of the object: a mistake in the program.
    #[error("the desired object cannot be serialized: {0}")]
    Invalid(String),
    /// The object was changed or deleted since it was read.
    #[error("the object has changed since it was read")]
    Outdated,
    /// After several plans there is still something to write.
    #[error("{0}: the object is not as it was written; the API server or another program changes it at once")]
    Unstable(String),
    /// This process has lost its Lease.
    #[error("this process no longer leads")]
    NotLeading,
}

impl Error {
    /// The error of a write with a resourceVersion, or of one of an object that must exist.
    #[must_use]
    pub fn of_update(error: kube::Error) -> Error {
        match error {
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Error::Outdated,
            other => Error::Kubernetes(other),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::Invalid(error.to_string())
    }
}

impl ActionError for Error {
    fn not_leading() -> Error {
        Error::NotLeading
    }

    fn is_outdated(&self) -> bool {
        matches!(self, Error::Outdated)
    }
}

#[cfg(test)]
mod tests {
    use common::controller::Reconciler;

    use super::*;
    use crate::api::source::Network;
    use crate::controller::OfKind;
    use crate::garbage::Garbage;

    #[test]
    fn a_refused_update_is_left_to_the_retries_of_the_engine() {
        for (code, is_outdated) in [(404, true), (409, true), (403, false), (500, false)] {
            let status = kube::core::Status::failure("no", "Refused").with_code(code).boxed();
            let error = Error::of_update(kube::Error::Api(status));
            assert_eq!(OfKind::<Network>::is_outdated(&error), is_outdated, "{code}");
            assert_eq!(Garbage::is_outdated(&error), is_outdated, "{code}");
        }
    }
}
