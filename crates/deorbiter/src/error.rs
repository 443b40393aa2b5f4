//! External errors, named by the intent that failed. Each message is complete.

use std::fmt;
use std::time::Duration;

use common::cloud::openstack;
use common::cluster::error_chain;
use common::executor::ActionError;
use common::secret::SecretError;

use crate::observe::snapshot::Unread;

/// A step or a reconciliation that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object of the target could not be written, or one of the cluster that deorbiter runs in could not be read or written.
    #[error("cannot {what}: {}", error_chain(cause))]
    Kubernetes {
        /// The intent and the object: `add finalizer x to Kluster team/prod`.
        what: String,
        /// The API server's response.
        cause: kube::Error,
    },
    /// The object is not as it was read. Nothing was done to it; the next reconciliation reads it again.
    #[error("cannot {what}: it has changed since it was read")]
    Changed {
        /// The intent.
        what: String,
    },
    /// The state of the triggers has changed since it was observed. Nothing was done; the next reconciliation decides again.
    #[error("the observed state is outdated: {0}")]
    Outdated(String),
    /// A Secret, or something else of the cluster that the Deorbit is in, could not be read, without which neither the target nor
    /// OpenStack can be read.
    #[error("{0}")]
    Unreadable(String),
    /// Something in OpenStack could not be written.
    #[error("cannot {what}: {cause}")]
    Cloud {
        /// The intent.
        what: String,
        /// The service's response.
        cause: openstack::Error,
    },
    /// Routes could not be removed.
    #[error("cannot remove routes of router {router}: {why}")]
    Routes {
        /// The router's ID.
        router: String,
        /// Why.
        why: String,
    },
    /// The records cannot be written as JSON.
    #[error("the records for ConfigMap {name} cannot be encoded")]
    Records {
        /// Name of the ConfigMap.
        name: String,
    },
    /// The target could not be reached in this reconciliation.
    #[error("the target cluster cannot be reached")]
    NoTarget,
    /// OpenStack could not be reached in this reconciliation.
    #[error("OpenStack cannot be reached")]
    NoCloud,
    /// This process does not hold the Lease any more.
    #[error("this process does not lead any more")]
    NotLeading,
}

/// Why there is no client of the target, or of OpenStack.
#[derive(Debug)]
pub enum NoClient {
    /// The cluster that the Deorbit is in cannot be read. That is neither a refusal nor an outage of the target or of OpenStack: the
    /// reconciliation fails, and is repeated.
    Management(Error),
    /// Its Secret, or the server that the Secret names, cannot be used.
    Unread(Unread),
}

impl From<SecretError> for NoClient {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Unreadable(..) => NoClient::Management(Error::Unreadable(error.to_string())),
            _ => NoClient::Unread(Unread::Refused(error.to_string())),
        }
    }
}

impl ActionError for Error {
    fn not_leading() -> Self {
        Error::NotLeading
    }

    fn is_outdated(&self) -> bool {
        matches!(self, Error::Changed { .. } | Error::Outdated(_))
    }
}

impl Error {
    /// The error of a request that was to do this.
    pub fn kubernetes(what: impl fmt::Display) -> impl Fn(kube::Error) -> Error {
        let what = what.to_string();
        move |cause| Error::Kubernetes { what: what.clone(), cause }
    }

    /// The error of a patch. It is [`Error::Outdated`] if the object was changed or deleted since it was read: the API server responds with
    /// 404 or 409 and, if a test of a JSON patch fails, with 422 and this sentence. A 422 with another message refuses an invalid object.
    pub fn of_patch(what: impl fmt::Display, cause: kube::Error) -> Error {
        match &cause {
            kube::Error::Api(status)
                if matches!(status.code, 404 | 409)
                    || status.code == 422 && status.message.contains("rejected our request") =>
            {
                Error::Outdated(format!("{what}: {}", status.message))
            }
            _ => Error::kubernetes(what)(cause),
        }
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

    /// The Retry-After of OpenStack.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Cloud { cause, .. } => cause.retry_after(),
            _ => None,
        }
    }

    /// The value of a metric's label, from a closed set.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Kubernetes { cause: kube::Error::Api(status), .. } => match status.code {
                401 => "Unauthorized",
                403 => "Forbidden",
                409 => "Conflict",
                422 => "Invalid",
                429 => "TooManyRequests",
                500..=599 => "ServerError",
                _ => "Refused",
            },
            Error::Kubernetes { .. } | Error::Unreadable(_) => "NoResponse",
            Error::Cloud { cause, .. } => cause.code(),
            Error::Routes { .. } => "Routes",
            Error::Records { .. } => "Records",
            Error::Changed { .. } | Error::Outdated(_) => "Conflict",
            Error::NoTarget => "NoTarget",
            Error::NoCloud => "NoCloud",
            Error::NotLeading => "NotLeading",
        }
    }

    /// Whether there was no response.
    #[must_use]
    pub fn is_no_response(&self) -> bool {
        match self {
            Error::Kubernetes { cause, .. } => !matches!(cause, kube::Error::Api(_)),
            Error::Cloud { cause, .. } => cause.code() == "no_response",
            _ => false,
        }
    }

    /// Whether another client changed the Deorbit: the next reconciliation reads it again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Kubernetes { cause: kube::Error::Api(status), .. } if matches!(status.code, 404 | 409))
    }
}
