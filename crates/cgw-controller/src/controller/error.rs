//! Why a request or a repair fails. Each message is complete: the operation, the object, the cause.

use common::cluster::error_chain;
use common::executor::ActionError;
use http::StatusCode;

use crate::api::stores::ANNOTATIONS_MAX;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or did not respond.
    #[error("cannot {what}: {}", error_chain(cause))]
    Kubernetes {
        /// `read Service a/b`
        what: String,
        /// The API server's response.
        cause: kube::Error,
    },
    /// A store Service is missing.
    #[error("store Service {0} does not exist; apply the manifests of cgw-controller")]
    NoStore(String),
    /// The annotations of a store are full.
    #[error(
        "store Service {store} is full: its annotations would have {bytes} bytes, and Kubernetes allows {ANNOTATIONS_MAX}"
    )]
    StoreFull {
        /// Namespace and name.
        store: String,
        /// Of all keys and values.
        bytes: usize,
    },
    /// An entry of a store is not in its format.
    #[error("store Service {store}: {error}; correct or remove the annotation")]
    Entry {
        /// Namespace and name.
        store: String,
        /// The key and the cause.
        error: String,
    },
    /// The object has changed since it was observed.
    #[error("{0} has changed since it was read")]
    Conflict(String),
    /// It has changed each time.
    #[error("{what} was changed by other clients {times} times during the request; try again")]
    Conflicts {
        /// The object.
        what: String,
        /// Tries.
        times: u32,
    },
}

impl Error {
    /// Sorts the error of a write with a precondition.
    #[must_use]
    pub fn of_write(what: String, object: impl FnOnce() -> String, cause: kube::Error) -> Error {
        match &cause {
            // Gone: the next observation does not have it.
            kube::Error::Api(status) if status.code == 409 || status.code == 404 => Error::Conflict(object()),
            _ => Error::Kubernetes { what, cause },
        }
    }

    /// The response to the client.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Error::Kubernetes { cause: kube::Error::Api(status), .. }
                if status.code < 500 && status.code != 429 =>
            {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Error::Kubernetes { .. } | Error::Conflict(_) | Error::Conflicts { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Error::NoStore(_) | Error::Entry { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Error::StoreFull { .. } => StatusCode::INSUFFICIENT_STORAGE,
        }
    }
}

impl ActionError for Error {
    fn not_leading() -> Self {
        // Every replica is active: the runtime has no leader election.
        Error::Conflict("the leader".to_owned())
    }

    fn is_outdated(&self) -> bool {
        matches!(self, Error::Conflict(_))
    }
}
