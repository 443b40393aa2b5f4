//! The election of the primary among the candidates.

use std::cmp::Reverse;
use std::net::Ipv4Addr;

use super::eligibility::{Assessed, Standing};
use crate::observe::snapshot::Node;

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
