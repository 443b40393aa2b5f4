//! Errors of the API server and the cloud, named after the operation that failed.

use std::time::Duration;

use common::cloud::hcloud;
use common::cluster::error_chain;
use common::executor::ActionError;

/// A reconciliation that failed. Each message contains the messages of its causes, so there is no `source`, which would repeat them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network could not be read.
    #[error("cannot read the network {network}: {cause}")]
    ReadNetwork {
        /// Name or ID.
        network: String,
        /// The cloud's response.
        cause: hcloud::Error,
    },
    /// The servers could not be listed.
    #[error("cannot list the servers of the project: {0}")]
    ListServers(hcloud::Error),
    /// The floating IPs could not be listed.
    #[error("cannot list the floating IPs of the project: {0}")]
    ListFloatingIPs(hcloud::Error),
    /// A request to the API server has failed.
    #[error("cannot {what}: {}", error_chain(cause))]
    Kubernetes {
        /// `list Jobs`, `patch Node node-1`
        what: String,
        /// The API server's response.
        cause: kube::Error,
    },
    /// The route could not be changed.
    #[error("cannot change the default route of network {network}: {cause}")]
    ChangeRoute {
        /// Network ID.
        network: u64,
        /// The cloud's response.
        cause: hcloud::Error,
    },
    /// The route would be refused by the cloud, so the old one is left alone.
    #[error("the default route of network {network} cannot point to {gateway}: {why}")]
    UnusableGateway {
        /// Network ID.
        network: u64,
        /// Next hop desired.
        gateway: std::net::Ipv4Addr,
        /// The rule of the cloud that the next hop violates.
        why: &'static str,
    },
    /// The state is not as in the Snapshot. Nothing was done; the next reconciliation observes again.
    #[error("the decision was made on outdated facts: {0}")]
    Outdated(String),
    /// The same in several reconciliations in a row, so that the caches cannot be the cause.
    #[error("conflicts with the API server's state in every reconciliation: {0}")]
    Conflict(String),
    /// The cloud has not responded to a change of the route.
    #[error(
        "no response to a change of the default route of network {network}, and none of {tries} attempts had an effect"
    )]
    RouteUnanswered {
        /// Network ID.
        network: u64,
        /// Number of attempts.
        tries: u32,
    },
    /// This process does not hold the Lease any more.
    #[error("this process does not lead any more")]
    NotLeading,
}

impl ActionError for Error {
    fn not_leading() -> Self {
        Error::NotLeading
    }

    fn is_outdated(&self) -> bool {
        self.is_outdated()
    }
}

impl Error {
    /// The cloud's error, if it is one.
    fn of_cloud(&self) -> Option<&hcloud::Error> {
        match self {
            Error::ReadNetwork { cause, .. }
            | Error::ListServers(cause)
            | Error::ListFloatingIPs(cause)
            | Error::ChangeRoute { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Whether it is just the caches that lag behind: no news for a person.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        matches!(self, Error::Outdated(_))
    }

    /// Whether the write was refused, or not sent, because the object has changed.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Outdated(_) | Error::Conflict(_))
    }

    /// The delay that the cloud requests, if it does.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.of_cloud()?.retry() {
            hcloud::Retry::After(wait) => Some(wait),
            hcloud::Retry::Soon | hcloud::Retry::Never => None,
        }
    }

    /// Whether the cloud sent no response at all to an observation. Another replica may get one.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        let is_write = matches!(self, Error::ChangeRoute { .. });
        !is_write && matches!(self.of_cloud(), Some(hcloud::Error::Transport { .. }))
    }

    /// Whether trying again at once is pointless: a person has to change something first.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        let is_refused = |error: &hcloud::Error| matches!(error.retry(), hcloud::Retry::Never);
        matches!(self, Error::UnusableGateway { .. }) || self.of_cloud().is_some_and(is_refused)
    }
}
