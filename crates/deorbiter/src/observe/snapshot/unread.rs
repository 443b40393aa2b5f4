//! Why a server could not be read, and whether a timeout may end the wait.

use std::fmt;

/// Why the target cluster or OpenStack could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// No response, or a 5xx: it counts against `timeouts.apiUnavailable`.
    Outage(String),
    /// A refusal, or a Secret or login that cannot be used. It never releases a cluster: the run waits until you fix it.
    Refused(String),
    /// The kubeconfig leads to the cluster that deorbiter runs in.
    ManagementCluster(String),
}

impl Unread {
    /// Whether `timeouts.apiUnavailable` counts.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Unread::Outage(_))
    }

    /// The reason of the condition `TargetReachable` or `CloudReachable`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Unread::Outage(_) => Self::OUTAGE,
            Unread::Refused(_) => "Refused",
            Unread::ManagementCluster(_) => "IsManagementCluster",
        }
    }

    /// The reason of an outage.
    pub const OUTAGE: &str = "Unavailable";
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Outage(why) | Unread::Refused(why) | Unread::ManagementCluster(why) => f.write_str(why),
        }
    }
}
