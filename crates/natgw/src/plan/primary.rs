//! The election of the primary among the candidates, and its role label.

use std::cmp::Reverse;
use std::net::Ipv4Addr;

use super::Output;
use super::action::{Action, NodeRef};
use super::eligibility::{Assessed, Standing};
use super::reason::Reason;
use crate::observe::snapshot::{Node, Snapshot};

/// The Node that the route should point to.
#[derive(Clone, Copy, Debug)]
pub struct Primary<'a> {
    /// The Node.
    pub node: &'a Node,
    /// The next hop.
    pub private_ip: Ipv4Addr,
    /// Its server ID.
    pub server: u64,
}

/// Elects the primary: the candidate to which the route points already (so that nothing flaps and a restart changes
/// nothing), else one that responds to health checks, else the one with the role label, else the oldest, else the first by
/// name.
#[must_use]
pub fn elect<'a>(assessed: &[Assessed<'a>], current: Option<Ipv4Addr>) -> Option<Primary<'a>> {
    assessed
        .iter()
        .filter_map(|Assessed { node, standing, responds }| match *standing {
            Standing::Candidate { private_ip, server } => {
                Some((Primary { node, private_ip, server }, *responds))
            }
            Standing::Eligible(_) | Standing::None => None,
        })
        .min_by_key(|(candidate, responds)| {
            (
                Reverse(current == Some(candidate.private_ip)),
                Reverse(*responds),
                Reverse(candidate.node.role),
                candidate.node.created,
                &candidate.node.name,
            )
        })
        .map(|(elected, _)| elected)
}

/// Plans the role label: on the primary, and on no other Node. The new primary gets it before the others lose it, so that at least one
/// Node has it at any time.
pub(super) fn label(snapshot: &Snapshot, primary: Option<Primary<'_>>, out: &mut Output) {
    if let Some(primary) = primary
        && !primary.node.role
    {
        out.step(Action::SetRole { node: NodeRef::from(primary.node) }, Reason::BecamePrimary);
    }
    let is_primary = |name: &str| primary.is_some_and(|primary| primary.node.name == name);
    for node in snapshot.nodes.iter().filter(|node| node.role && !is_primary(&node.name)) {
        out.step(Action::ClearRole { node: NodeRef::from(node) }, Reason::NoLongerPrimary);
    }
}
