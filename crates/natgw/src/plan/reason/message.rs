//! The messages of reasons, for people.

use std::fmt;

use super::{KeptRoute, Reason};
use crate::plan::floating_ip::{Assignment, CONFIRMATIONS};

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoDefaultRoute => write!(f, "the network has no default route"),
            Reason::GatewayNotReady(node) => write!(f, "the gateway {node} is not Ready"),
            Reason::GatewayUnreachable(node) => {
                write!(f, "the gateway {node} does not respond to health checks, and another gateway does")
            }
            Reason::GatewayDiffers(node) => {
                write!(f, "a verification has found that the gateway {node} differs from its setup")
            }
            Reason::GatewayOutdated(node) => {
                write!(f, "the gateway {node} is to be set up with the present script")
            }
            Reason::GatewayCordoned(node) => write!(f, "the gateway {node} is cordoned"),
            Reason::GatewayTerminating(node) => write!(f, "the gateway {node} is being deleted"),
            Reason::GatewayNotEligible(node) => {
                write!(f, "{node}, to which the route points, is not set up as a gateway")
            }
            Reason::GatewayLostFloatingIP(node) => {
                write!(f, "the floating IP of the gateway {node} is not assigned to its server")
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
            Reason::SetupChanged => {
                write!(
                    f,
                    "the script, its environment or the network's range has changed since the Node was set up"
                )
            }
            Reason::SetupDiffers => write!(
                f,
                "a verification has found that the Node differs from its setup, which is run again; the log of the setup Job's pod names \
                 the differences"
            ),
            Reason::VerificationDue => write!(f, "the interval since the last Job of the Node is over"),
            Reason::VerificationFailed(message) => write!(
                f,
                "the last verification could not be finished: {message}; see the log of the Job's pod. It is tried again after the interval"
            ),
            Reason::SetupOutdated => write!(
                f,
                "the script, its environment or the network's range has changed since this gateway was set up; it is set up again when \
                 another candidate has the traffic"
            ),
            Reason::NodeRebooted => write!(f, "the Node was rebooted since its last setup"),
            Reason::PrivateIPChanged => {
                write!(f, "the Node's private address has changed since its last setup")
            }
            Reason::SetupInterrupted(task) => {
                write!(f, "{task} was started and may have left state on the Node, and is not desired now")
            }
            Reason::LabelRestored => write!(f, "the IP was added again during its teardown"),
            Reason::ClientSetupMissing => write!(f, "the Node is not a gateway and has no route to one"),
            Reason::ClientDisabled => write!(f, "the Node no longer uses the network's gateway"),
            Reason::JobSuperseded(task) => {
                write!(f, "{task} is desired now, and a Node runs one Job at a time")
            }
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
            Reason::UnsupportedServer => {
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
