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
    /// An object of the cluster could not be listed.
    #[error("cannot list {what}: {}", error_chain(cause))]
    List {
        /// Nodes or Jobs.
        what: &'static str,
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
    /// A Node could not be patched.
    #[error("cannot patch Node {node}: {}", error_chain(cause))]
    PatchNode {
        /// Its name.
        node: String,
        /// The API server's response.
        cause: kube::Error,
    },
    /// A Job could not be created.
    #[error("cannot create Job {job}: {}", error_chain(cause))]
    CreateJob {
        /// Its name.
        job: String,
        /// The API server's response.
        cause: kube::Error,
    },
    /// A Job could not be deleted.
    #[error("cannot delete Job {job}: {}", error_chain(cause))]
    DeleteJob {
        /// Its name.
        job: String,
        /// The API server's response.
        cause: kube::Error,
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
        match self {
            Error::ReadNetwork { cause, .. }
            | Error::ListServers(cause)
            | Error::ListFloatingIPs(cause)
            | Error::ChangeRoute { cause, .. } => match cause.retry() {
                hcloud::Retry::After(wait) => Some(wait),
                hcloud::Retry::Soon | hcloud::Retry::Never => None,
            },
            _ => None,
        }
    }

    /// Whether the cloud sent no response at all. Another replica may get one.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Error::ReadNetwork { cause, .. } | Error::ListServers(cause) | Error::ListFloatingIPs(cause) => {
                matches!(cause, hcloud::Error::Transport { .. })
            }
            _ => false,
        }
    }

    /// Whether trying again at once is pointless: a person has to change something first.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Error::ReadNetwork { cause, .. }
            | Error::ListServers(cause)
            | Error::ListFloatingIPs(cause)
            | Error::ChangeRoute { cause, .. } => matches!(cause.retry(), hcloud::Retry::Never),
            Error::UnusableGateway { .. } => true,
            _ => false,
        }
    }
}
