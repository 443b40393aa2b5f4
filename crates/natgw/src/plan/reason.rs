//! The reasons of natgw's actions and the problems that it reports, each with its code and its message.

use std::fmt;
use std::net::Ipv4Addr;

use common::plan;
use serde::{Serialize, Serializer};

use super::floating_ip::{Assignment, CONFIRMATIONS};
use crate::task::{Role, Task};

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
    /// The route's Node is cordoned.
    GatewayCordoned(String),
    /// The route's Node is being deleted.
    GatewayTerminating(String),
    /// The route's Node is not set up for the IP in its label (any more).
    GatewayNotEligible(String),
    /// The floating IP of the route's Node is assigned to another server.
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
    /// A Job whose task is not desired now was started and may have left state on the Node.
    SetupInterrupted(Task),
    /// The IP is desired again while its teardown is pending.
    LabelRestored,
    /// The Node is a client of the gateway, and its client setup has not run.
    ClientSetupMissing,
    /// The Node is no gateway's client any more.
    ClientDisabled,
    /// A Job of the Node is not the one that is desired now.
    JobSuperseded(Option<Task>),
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
    UnsupportedServer(Role),
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
            Reason::UnsupportedServer(_) => "UnsupportedServer",
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoDefaultRoute => write!(f, "the network has no default route"),
            Reason::GatewayNotReady(node) => write!(f, "the gateway {node} is not Ready"),
            Reason::GatewayUnreachable(node) => {
                write!(f, "the gateway {node} does not respond to health checks, and another gateway does")
            }
            Reason::GatewayCordoned(node) => write!(f, "the gateway {node} is cordoned"),
            Reason::GatewayTerminating(node) => write!(f, "the gateway {node} is being deleted"),
            Reason::GatewayNotEligible(node) => {
                write!(f, "{node}, to which the route points, is not set up as a gateway")
            }
            Reason::GatewayLostFloatingIP(node) => {
                write!(f, "the floating IP of the gateway {node} is assigned to another server")
            }
            Reason::GatewayAtAliasIP { gateway, node } => {
                write!(f, "the route points to {gateway}, an alias IP of {node}")
            }
            Reason::GatewayGone(ip) => {
                write!(f, "no server in the network has the address {ip}, the next hop of the route")
            }
            Reason::ForeignRoute { gateway, server } => {
                write!(f, "the route pointed to {gateway} ({server}), which is not a Node of this cluster")
            }
            Reason::NoCandidate(KeptRoute::None) => write!(
                f,
                "no Node can be the primary gateway: one must be set up, Ready, not cordoned and attached to the network; there is no default route"
            ),
            Reason::NoCandidate(KeptRoute::AtEligible(node)) => write!(
                f,
                "no Node can be the primary gateway: one must be set up, Ready, not cordoned and attached to the network; the route stays at {node}"
            ),
            Reason::NoCandidate(KeptRoute::AtOther(ip)) => write!(
                f,
                "no Node can be the primary gateway: one must be set up, Ready, not cordoned and attached to the network; the route stays at {ip}, which is not a gateway"
            ),
            Reason::NoCandidate(KeptRoute::Removed) => {
                write!(f, "no Node can be the primary gateway, and the settings say onNoCandidate: remove")
            }
            Reason::BecamePrimary => write!(f, "it is the primary NAT gateway"),
            Reason::NoLongerPrimary => write!(f, "it is not the primary NAT gateway"),
            Reason::CleanupRequested => write!(f, "natgw cleanup was requested"),
            Reason::SetupMissing => {
                write!(f, "the label names an IP for which the Node is not set up")
            }
            Reason::LabelChanged(task) => {
                write!(f, "the Node is set up for {}, which its label does not name", task.ip)
            }
            Reason::NodeRebooted => write!(f, "the Node was rebooted since its last setup"),
            Reason::SetupInterrupted(task) => {
                write!(f, "{task} was started and may have left state on the Node, and is not desired now")
            }
            Reason::LabelRestored => write!(f, "the IP was added again during its teardown"),
            Reason::ClientSetupMissing => write!(f, "the Node is not a gateway and has no route to one"),
            Reason::ClientDisabled => write!(f, "the Node no longer uses the network's gateway"),
            Reason::JobSuperseded(Some(task)) => {
                write!(f, "{task} is desired now, and a Node runs one Job at a time")
            }
            Reason::JobSuperseded(None) => write!(f, "no Job is desired now"),
            Reason::JobSucceeded => write!(f, "its Job succeeded"),
            Reason::JobFailed { attempt, message } => {
                write!(f, "attempt {attempt} failed: {message}; see the log of the Job's pod")
            }
            Reason::BackoffExpired(attempt) => {
                write!(f, "the backoff after failed attempt {attempt} has expired")
            }
            Reason::ForgetRequested => {
                write!(f, "the annotation {} requests it", crate::names::FORGET_ANNOTATION)
            }
            Reason::FloatingIPAssigned => write!(f, "the floating IP is assigned to the Node's server"),
            Reason::FloatingIPUnassigned => write!(f, "the floating IP is not assigned to the Node's server"),
            Reason::InvalidFloatingIP(value) => {
                write!(
                    f,
                    "the floating-IP label has the value {value:?}, which is not a unicast IPv4 address; correct or remove the label"
                )
            }
            Reason::InvalidAnnotation { annotation, value } => write!(
                f,
                "the annotation {annotation} has the value {value:?}, which natgw never writes; set {}=true to reset this Node",
                crate::names::FORGET_ANNOTATION
            ),
            Reason::DuplicateFloatingIP { ip, nodes } => {
                write!(f, "{ip} is in the floating-IP label of several Nodes: {}", nodes.join(", "))
            }
            Reason::FloatingIPNotAssigned { ip, assignment } => {
                write!(f, "the floating-IP label names {ip}, which ")?;
                match assignment {
                    Assignment::Server(id) => write!(f, "is assigned to server {id}")?,
                    Assignment::None => f.write_str("is assigned to no server")?,
                    Assignment::NotListed => f.write_str("is not among the project's floating IPs")?,
                }
                f.write_str("; the Node is not a candidate")
            }
            Reason::LabelRemovalHeld { nodes, is_unconfirmed: true } => write!(
                f,
                "the list of floating IPs takes the label from {}: from more than half of the gateways, or from the last one; \
                 the labels are kept until {CONFIRMATIONS} polls in a row have reported the same",
                nodes.join(", ")
            ),
            Reason::LabelRemovalHeld { nodes, is_unconfirmed: false } => write!(
                f,
                "the floating IP of {} is not assigned to its server; the label is kept until another gateway is eligible",
                nodes.join(", ")
            ),
            Reason::MultipleFloatingIPs(ips) => {
                write!(f, "several floating IPs are assigned to this Node's server (")?;
                for (number, ip) in ips.iter().enumerate() {
                    if number > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{ip}")?;
                }
                f.write_str("); one of them is used")
            }
            Reason::UnsupportedServer(_) => {
                write!(
                    f,
                    "a dedicated server cannot be a gateway: a route cannot point behind a vSwitch; remove the floating-IP label"
                )
            }
            Reason::ServerNotFound => write!(
                f,
                "the cloud has no server for this Node: spec.providerID must be hcloud://<server ID>, or be empty and a server must have the Node's name"
            ),
            Reason::ServerNotInNetwork(network) => {
                write!(
                    f,
                    "the Node's server is not attached to the network {network}; attach it, or remove the floating-IP label"
                )
            }
            Reason::ForeignRouteKept { gateway, server } => write!(
                f,
                "the default route points to {gateway} ({server}), which is not a Node of this cluster, and adoptForeignRoute is false"
            ),
            Reason::HealthCheckFailed { is_confirmed: true } => write!(
                f,
                "the gateway does not respond to health checks, and another gateway does; the Node is not a candidate"
            ),
            Reason::HealthCheckFailed { is_confirmed: false } => write!(
                f,
                "the gateway does not respond to health checks, but no other gateway or not the third reference responds \
                 either: natgw's own Node may be cut off, and the route stays"
            ),
            Reason::RouteLeft(gateway) => write!(
                f,
                "the default route still points to {gateway}, which has no annotation or role label of natgw, and where no gateway is left; \
                 remove the route at Hetzner if it is not in use"
            ),
            Reason::FloatingIPsUnknown(message) => write!(
                f,
                "{message}; the last list is used. Without one, labels count as true, and no Node with a duplicate floating IP is newly elected"
            ),
            Reason::ObserveFailed(message) => write!(f, "{message}; nothing is changed until this is fixed"),
        }
    }
}

/// The message. It is always printed with the code.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
