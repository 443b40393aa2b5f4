//! Why a reconciliation fails. Each message is complete: what failed, on which object, what to do.

use std::time::Duration;

use common::cloud::openstack;
use common::cluster::error_chain;
use common::routes::{ObserveError, RemovalError};
use common::secret::SecretError;

use crate::router::RouterError;
use crate::source::PolicySource;

/// The code of a reconciliation that took too long; an alert uses it.
pub const TIMED_OUT: &str = "TimedOut";

/// Why a reconciliation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy, or its state, could not be read.
    #[error("cannot read {what}: {}", error_chain(cause))]
    Read {
        /// `RouteGC a/b`
        what: String,
        /// The API server's response.
        cause: kube::Error,
    },
    /// Its status could not be written.
    #[error("cannot write the status of {what}: {}", error_chain(cause))]
    Write {
        /// `RouteGC a/b`
        what: String,
        /// The API server's response.
        cause: kube::Error,
    },
    /// The policy contradicts itself or another one.
    #[error("{0}")]
    Policy(String),
    /// Another policy covers the same routes.
    #[error("{0}")]
    Conflict(String),
    /// The API server failed to return the Secret with the credentials.
    #[error(transparent)]
    Secret(SecretError),
    /// The credentials are missing, or not valid.
    #[error("cannot log in to OpenStack: {0}")]
    Login(String),
    /// The router of the policy is not known, or refused.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// The state could not be observed completely.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The routes could not be removed.
    #[error(transparent)]
    Removal(#[from] RemovalError),
    /// The reconciliation took too long.
    #[error("the reconciliation timed out after {0:?}: OpenStack responds too slowly")]
    TooSlow(Duration),
    /// This process no longer holds the Lease.
    #[error("this process no longer leads")]
    NotLeading,
}

impl Error {
    /// One CamelCase word of a closed set: the reason of the condition Ready.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Read { .. } | Error::Write { .. } | Error::Secret(_) => "KubernetesUnavailable",
            Error::Policy(_) => "InvalidSpec",
            Error::Conflict(_) => "Conflict",
            Error::Login(_) => "LoginFailed",
            Error::Router(error) => error.code(),
            Error::Observe(error) => error.code(),
            Error::Removal(error) => error.code(),
            Error::TooSlow(_) => TIMED_OUT,
            Error::NotLeading => "NotLeading",
        }
    }

    /// The word for `routegc_blocked_total`, if a guard prevented removals.
    #[must_use]
    pub fn guard(&self) -> Option<&'static str> {
        match self.code() {
            "PartialInventory" | "EmptyInventory" => Some("partial"),
            "RouterChanging" | "NoSafeUpdate" => Some("precondition"),
            _ => None,
        }
    }

    /// Whether the policy has no router: it was deleted, or never existed.
    #[must_use]
    pub fn is_without_router(&self) -> bool {
        self.code() == "RouterNotFound"
    }

    /// Whether the object changed meanwhile. The next reconciliation reads the new version. This is reported only if it lasts.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        match self {
            Error::Write { cause: kube::Error::Api(status), .. } => status.code == 409,
            Error::Removal(RemovalError::PolicyChanged) => true,
            _ => false,
        }
    }

    /// Whether the policy no longer exists. That of the flags always does: without their ConfigMap, or its namespace, only the state is lost.
    #[must_use]
    pub fn is_gone(&self, source: &PolicySource) -> bool {
        let (Error::Read { cause, .. } | Error::Write { cause, .. }) = self else { return false };
        let is_object = matches!(source, PolicySource::Object(_));
        is_object && matches!(cause, kube::Error::Api(status) if status.code == 404)
    }

    /// The Retry-After of the cloud.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let cause: Option<&openstack::Error> = match self {
            Error::Observe(error) | Error::Removal(RemovalError::Observe(error)) => error.cause(),
            Error::Removal(RemovalError::Recheck(cause) | RemovalError::Refused(cause)) => Some(cause),
            _ => None,
        };
        cause?.retry_after()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_flags_is_never_gone() {
        let status = kube::core::Status::failure("not found", "NotFound").with_code(404).boxed();
        let error = Error::Write { what: "ConfigMap ns/routegc-r".into(), cause: kube::Error::Api(status) };
        assert!(error.is_gone(&PolicySource::Object("prod".into())) && !error.is_gone(&PolicySource::Flags));
    }
}
