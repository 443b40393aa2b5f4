//! What can go wrong outside, named by the intent that failed.

use common::cluster::error_chain;
use common::executor::ActionError;

/// A step or a look that failed. Each message is complete.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object could not be read or written.
    #[error("cannot {what}: {}", error_chain(cause))]
    Kubernetes {
        /// The intent and the object: `put finalizer x on Kluster team/prod`.
        what: String,
        /// The API server's answer.
        cause: kube::Error,
    },
    /// The env is not as the decision had it. Nothing was done; the next reconcile sees more.
    #[error("the decision was made on outdated facts: {0}")]
    Outdated(String),
    /// This process does not hold the Lease any more.
    #[error("this process does not lead any more")]
    NotLeading,
}

impl ActionError for Error {
    fn not_leading() -> Self {
        Error::NotLeading
    }

    /// The caches lag behind.
    fn is_outdated(&self) -> bool {
        matches!(self, Error::Outdated(_))
    }
}

impl Error {
    /// Why the API server does not take what it was given, if that is what failed: the object is not valid, a policy or a quota is
    /// against it, a right is missing, or its namespace is being deleted or is not there (404). It says the same until somebody
    /// changes something.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Error::Kubernetes { cause: kube::Error::Api(status), .. }
                if matches!(status.code, 400 | 403 | 404 | 422) =>
            {
                Some(&status.message)
            }
            _ => None,
        }
    }

    /// A refusal that means that the object has changed, as [`Error::Outdated`]; anything else as it is. A JSON patch whose
    /// test fails is answered with 422 and this sentence; an object that is not valid with 422 and what is not.
    pub(super) fn of_patch(what: &impl ToString, cause: kube::Error) -> Error {
        match &cause {
            kube::Error::Api(status)
                if matches!(status.code, 404 | 409)
                    || status.code == 422 && status.message.contains("rejected our request") =>
            {
                Error::Outdated(format!("{}: {}", what.to_string(), status.message))
            }
            _ => Error::Kubernetes { what: what.to_string(), cause },
        }
    }
}
