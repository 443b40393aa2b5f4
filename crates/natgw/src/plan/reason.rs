//! The reasons of natgw's actions and the problems that it reports, each with its code and its message.

mod message;

use std::net::Ipv4Addr;

use common::plan;
use serde::{Serialize, Serializer};

use super::floating_ip::Assignment;
use crate::task::Task;

/// The reason of a step, or a problem that is reported to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    // Steps: the route and the role.
    /// The network has no default route and a candidate exists.
    NoDefaultRoute,
    /// The route's Node is not Ready.
    GatewayNotReady(String),
    /// The route's Node does not respond to health checks.
    GatewayUnreachable(String),
    /// The route's Node differs from its setup.
    GatewayDiffers(String),
    /// The route's Node was set up with another script or environment than the others.
    GatewayOutdated(String),
    /// The route's Node is cordoned.
    GatewayCordoned(String),
    /// The route's Node is being deleted.
    GatewayTerminating(String),
    /// The route's Node is not set up for the IP in its label (any more).
    GatewayNotEligible(String),
    /// The floating IP of the route's Node is not assigned to its server.
    GatewayLostFloatingIP(String),
    /// The route points to an alias IP of a gateway, not to its address in the network.
    GatewayAtAliasIP {
        /// The alias IP.
        gateway: Ipv4Addr,
        /// Name of the Node.
        node: String,
    },
    /// No server in the network has the address of the route's next hop.
    GatewayGone(Ipv4Addr),
    /// The route points to a server that is not a Node of this cluster.
    ForeignRoute {
        /// Next hop.
        gateway: Ipv4Addr,
        /// Name of the server that has this address.
        server: String,
    },
    /// No Node can be primary.
    NoCandidate(KeptRoute),
    /// The Node is the primary.
    BecamePrimary,
    /// The Node is not the primary.
    NoLongerPrimary,
    /// `natgw cleanup` was requested.
    CleanupRequested,

    // Steps: Jobs and annotations.
    /// The label names an IP for which the Node is not set up.
    SetupMissing,
    /// The Node was set up for an IP that its label does not name (any more).
    LabelChanged(Task),
    /// The Node has been rebooted since it was set up: addresses and rules are gone.
    NodeRebooted,
    /// The Node's private address has changed since it was set up.
    PrivateIPChanged,
    /// The script, its environment or the network's range has changed since the Node was set up.
    SetupChanged,
    /// A verification has found that the Node differs from its setup. A step, and a problem until the setup has begun.
    SetupDiffers,
    /// The time of a verification has come.
    VerificationDue,
    /// A Job whose task is not desired now was started and may have left state on the Node.
    SetupInterrupted(Task),
    /// The IP is desired again while its teardown is pending.
    LabelRestored,
    /// The Node is a client of the gateway, and its client setup has not run.
    ClientSetupMissing,
    /// The Node is no gateway's client any more.
    ClientDisabled,
    /// A Job of the Node is not the one that is desired now.
    JobSuperseded(Task),
    /// The Job succeeded.
    JobSucceeded,
    /// The Job failed.
    JobFailed {
        /// Number of failed attempts in a row.
        attempt: u32,
        /// The message of the Job controller.
        message: String,
    },
    /// The backoff after this number of failed attempts has expired.
    BackoffExpired(u32),
    /// A user set the forget annotation.
    ForgetRequested,
    /// The floating IP is assigned to the Node's server.
    FloatingIPAssigned,
    /// The floating IP is not assigned to the Node's server.
    FloatingIPUnassigned,

    // Problems.
    /// The floating-IP label's value is no IPv4 address that a gateway could have.
    InvalidFloatingIP(String),
    /// One of natgw's annotations has a value that natgw never writes.
    InvalidAnnotation {
        /// Key of the annotation.
        annotation: String,
        /// Its value.
        value: String,
    },
    /// Several Nodes carry the same floating IP.
    DuplicateFloatingIP {
        /// The IP.
        ip: Ipv4Addr,
        /// All Nodes with this label.
        nodes: Vec<String>,
    },
    /// The floating IP in the label is not assigned to the Node's server.
    FloatingIPNotAssigned {
        /// The IP in the label.
        ip: Ipv4Addr,
        /// The actual assignment of this floating IP.
        assignment: Assignment,
    },
    /// Labels are kept (for now), although they contradict the list of floating IPs.
    LabelRemovalHeld {
        /// The Nodes that keep their label.
        nodes: Vec<String>,
        /// True: the labels are kept until further polls confirm the list. False: the Node is the last eligible
        /// gateway.
        is_unconfirmed: bool,
    },
    /// Several floating IPs are assigned to the Node's server.
    MultipleFloatingIPs(Vec<Ipv4Addr>),
    /// A dedicated server cannot be a gateway.
    UnsupportedServer,
    /// The Node's server is not known to the cloud.
    ServerNotFound,
    /// The Node's server is not attached to the network.
    ServerNotInNetwork(String),
    /// The route points to a server that is not a Node of this cluster, and the settings forbid to change it.
    ForeignRouteKept {
        /// Next hop.
        gateway: Ipv4Addr,
        /// Name of the server that has this address.
        server: String,
    },
    /// The last verification of the Node could not be finished, with the message of the Job controller.
    VerificationFailed(String),
    /// The script, its environment or the network's range has changed, and the gateway with the traffic cannot be replaced.
    SetupOutdated,
    /// A gateway does not respond to health checks.
    HealthCheckFailed {
        /// Another candidate and the third reference do: then it is no candidate.
        is_confirmed: bool,
    },
    /// A cleanup leaves the default route: it points to a Node without natgw's annotations and role label, or to no server.
    RouteLeft(Ipv4Addr),
    /// The floating IPs and their servers could not be listed, with the cause.
    FloatingIPsUnknown(String),
    /// The state could not be observed; nothing is done.
    ObserveFailed(String),
}

/// The default route while there is no candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptRoute {
    /// There is no default route.
    None,
    /// It stays: the Node at its next hop is eligible, although it is no candidate.
    AtEligible(String),
    /// It stays, although its next hop is no gateway.
    AtOther(Ipv4Addr),
    /// It is removed, as the settings require.
    Removed,
}

impl plan::Reason for Reason {
    fn is_trouble(&self) -> bool {
        matches!(self, Reason::JobFailed { .. })
    }

    fn code(&self) -> &'static str {
        match self {
            Reason::NoDefaultRoute => "NoDefaultRoute",
            Reason::GatewayNotReady(_) => "GatewayNotReady",
            Reason::GatewayUnreachable(_) => "GatewayUnreachable",
            Reason::GatewayDiffers(_) => "GatewayDiffers",
            Reason::GatewayOutdated(_) => "GatewayOutdated",
            Reason::GatewayCordoned(_) => "GatewayCordoned",
            Reason::GatewayTerminating(_) => "GatewayTerminating",
            Reason::GatewayNotEligible(_) => "GatewayNotEligible",
            Reason::GatewayLostFloatingIP(_) => "GatewayLostFloatingIP",
            Reason::GatewayAtAliasIP { .. } => "GatewayAtAliasIP",
            Reason::GatewayGone(_) => "GatewayGone",
            Reason::ForeignRoute { .. } => "ForeignRoute",
            Reason::NoCandidate(_) => "NoCandidate",
            Reason::BecamePrimary => "BecamePrimary",
            Reason::NoLongerPrimary => "NoLongerPrimary",
            Reason::CleanupRequested => "CleanupRequested",
            Reason::SetupMissing => "SetupMissing",
            Reason::LabelChanged(_) => "LabelChanged",
            Reason::NodeRebooted => "NodeRebooted",
            Reason::PrivateIPChanged => "PrivateIPChanged",
            Reason::SetupChanged => "SetupChanged",
            Reason::SetupDiffers => "SetupDiffers",
            Reason::VerificationDue => "VerificationDue",
            Reason::VerificationFailed(_) => "VerificationFailed",
            Reason::SetupOutdated => "SetupOutdated",
            Reason::SetupInterrupted(_) => "SetupInterrupted",
            Reason::LabelRestored => "LabelRestored",
            Reason::ClientSetupMissing => "ClientSetupMissing",
            Reason::ClientDisabled => "ClientDisabled",
            Reason::JobSuperseded(_) => "JobSuperseded",
            Reason::JobSucceeded => "JobSucceeded",
            Reason::JobFailed { .. } => "JobFailed",
            Reason::BackoffExpired(_) => "BackoffExpired",
            Reason::ForgetRequested => "ForgetRequested",
            Reason::FloatingIPAssigned => "FloatingIPAssigned",
            Reason::FloatingIPUnassigned => "FloatingIPUnassigned",
            Reason::InvalidFloatingIP(_) => "InvalidFloatingIP",
            Reason::InvalidAnnotation { .. } => "InvalidAnnotation",
            Reason::DuplicateFloatingIP { .. } => "DuplicateFloatingIP",
            Reason::FloatingIPNotAssigned { .. } => "FloatingIPNotAssigned",
            Reason::LabelRemovalHeld { .. } => "LabelRemovalHeld",
            Reason::MultipleFloatingIPs(_) => "MultipleFloatingIPs",
            Reason::UnsupportedServer => "UnsupportedServer",
            Reason::ServerNotFound => "ServerNotFound",
            Reason::ServerNotInNetwork(_) => "ServerNotInNetwork",
            Reason::ForeignRouteKept { .. } => "ForeignRouteKept",
            Reason::HealthCheckFailed { .. } => "HealthCheckFailed",
            Reason::RouteLeft(_) => "RouteLeft",
            Reason::FloatingIPsUnknown(_) => "FloatingIPsUnknown",
            Reason::ObserveFailed(_) => "ObserveFailed",
        }
    }
}

/// The message. It is always printed with the code.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
