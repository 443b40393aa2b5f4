//! Why a server could not be read, and whether a timeout may end the wait.

/// Why the target cluster or OpenStack could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub enum Unread {
    /// No response at all: for the target it counts against `timeouts.apiUnavailable`.
    NoResponse(String),
    /// A response with an error of the server itself: only `timeouts.total` counts.
    Failing(String),
    /// A refusal, or a Secret or login that cannot be used. It never releases a cluster: the run waits until you fix it.
    Refused(String),
    /// The application credential of the login does not exist. It is refused like the others, unless the run deletes it.
    CredentialGone(String),
    /// The Secret of the kubeconfig does not exist. It is refused like the others until the run has succeeded.
    NoSecret(String),
    /// The kubeconfig leads to the cluster that deorbiter runs in.
    ManagementCluster(String),
    /// Nothing shows that the login is for the target's own project and region.
    NotProven(String),
}

impl Unread {
    /// Whether the server is unavailable, and does not refuse.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Unread::NoResponse(_) | Unread::Failing(_))
    }

    /// The reason of the condition `TargetReachable` or `CloudReachable`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Unread::NoResponse(_) => "NoResponse",
            Unread::Failing(_) => "ServerError",
            Unread::Refused(_) | Unread::CredentialGone(_) | Unread::NoSecret(_) => "Refused",
            Unread::ManagementCluster(_) => "IsManagementCluster",
            Unread::NotProven(_) => "LoginNotProven",
        }
    }

    /// The reasons of an outage.
    pub const OUTAGES: [&str; 2] = ["NoResponse", "ServerError"];
}
