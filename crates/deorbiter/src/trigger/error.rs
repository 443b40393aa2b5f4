//! Errors, named by the intent that failed.

use common::cluster::error_chain;
use common::executor::ActionError;

/// A step or a read that failed. Each message is complete.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object could not be read or written.
    #[error("cannot {what}: {}", error_chain(cause))]
    Kubernetes {
        /// The intent and the object: `add finalizer x to Kluster team/prod`.
        what: String,
        /// The API server's response.
        cause: kube::Error,
    },
    /// The state has changed since it was observed. Nothing was done; the next reconciliation decides again.
    #[error("the observed state is outdated: {0}")]
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
    /// The error of a request that was to do this.
    pub(super) fn kubernetes(what: &impl ToString) -> impl FnOnce(kube::Error) -> Error {
        let what = what.to_string();
        move |cause| Error::Kubernetes { what, cause }
    }

    /// Why the API server refuses the object, if it does: the object is invalid, a policy or a quota forbids it, a right is missing, or its
    /// namespace is being deleted or does not exist (404). It does so until you change something.
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

    /// [`Error::Outdated`] for a response that means that the object has changed; anything else as it is. For a JSON patch whose test fails
    /// the API server responds with 422 and this sentence; for an invalid object with 422 and the reason.
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
