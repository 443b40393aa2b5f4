//! The network's default route: its desired next hop, and the reason of a change.

use std::net::Ipv4Addr;

use super::action::{Action, NodeRef};
use super::eligibility::{Assessed, Standing, Unfit};
use super::primary::Primary;
use super::reason::{KeptRoute, Reason};
use super::{Output, about_natgw};
use crate::config::{Config, Mode, OnNoCandidate};
use crate::observe::snapshot::Snapshot;

/// Plans the route towards the primary. Returns the primary that will be in force once the plan is done: none if the
/// route may not be moved to it.
pub(super) fn towards<'a>(
    config: &Config,
    snapshot: &Snapshot,
    assessed: &[Assessed<'_>],
    primary: Option<Primary<'a>>,
    out: &mut Output,
) -> Option<Primary<'a>> {
    let network = &snapshot.network;
    let Some(primary) = primary else {
        without_candidate(config, snapshot, assessed, out);
        return None;
    };
    let because = match network.default_route {
        Some(current) if current == primary.private_ip => return Some(primary),
        None => Reason::NoDefaultRoute,
        Some(current) => match why_leave(snapshot, assessed, current) {
            Reason::ForeignRoute { gateway, server } if !config.adopt_foreign_route => {
                out.problem(about_natgw(config), Reason::ForeignRouteKept { gateway, server });
                return None;
            }
            because => because,
        },
    };
    out.step(
        Action::MoveRoute {
            network: network.id,
            from: network.default_route,
            from_node: holder(assessed, network.default_route).map(|holder| holder.node.name.clone()),
            to: primary.private_ip,
            server: primary.server,
            node: NodeRef::from(primary.node),
        },
        because,
    );
    Some(primary)
}

/// Whether the route is foreign and the settings forbid to change it.
pub(super) fn is_left_to_others(
    config: &Config,
    snapshot: &Snapshot,
    assessed: &[Assessed<'_>],
    primary: &Primary<'_>,
) -> bool {
    let elsewhere = snapshot.network.default_route.filter(|current| *current != primary.private_ip);
    elsewhere.is_some_and(|current| {
        !config.adopt_foreign_route
            && matches!(why_leave(snapshot, assessed, current), Reason::ForeignRoute { .. })
    })
}

/// The Node at a next hop.
fn holder<'a, 'n>(assessed: &'a [Assessed<'n>], next_hop: Option<Ipv4Addr>) -> Option<&'a Assessed<'n>> {
    assessed.iter().find(|one| next_hop.is_some() && one.node.private_ip() == next_hop)
}

/// Why the route cannot stay at `current`, which is not the primary's address.
fn why_leave(snapshot: &Snapshot, assessed: &[Assessed<'_>], current: Ipv4Addr) -> Reason {
    let Some(holder) = holder(assessed, Some(current)) else {
        return match snapshot.network.servers.get(&current) {
            Some(server) => Reason::ForeignRoute { gateway: current, server: server.clone() },
            None => Reason::GatewayGone(current),
        };
    };
    let name = holder.node.name.clone();
    match holder.standing {
        Standing::Eligible(Unfit::Terminating) => Reason::GatewayTerminating(name),
        Standing::Eligible(Unfit::NotReady) => Reason::GatewayNotReady(name),
        Standing::Eligible(Unfit::Cordoned) => Reason::GatewayCordoned(name),
        Standing::Eligible(Unfit::FloatingIPNotAssigned | Unfit::FloatingIPContested) => {
            Reason::GatewayLostFloatingIP(name)
        }
        // A candidate at the current address would have been elected.
        Standing::Eligible(Unfit::NotInNetwork) | Standing::None | Standing::Candidate { .. } => {
            Reason::GatewayNotEligible(name)
        }
    }
}

/// No Node can be the primary: the route stays, unless it is natgw's and the settings require its removal.
fn without_candidate(config: &Config, snapshot: &Snapshot, assessed: &[Assessed<'_>], out: &mut Output) {
    let holder = holder(assessed, snapshot.network.default_route);
    let remove = |out: &mut Output, holder: &Assessed<'_>, gateway, because| {
        let node = NodeRef::from(holder.node);
        out.step(Action::RemoveRoute { network: snapshot.network.id, gateway, node }, because);
    };
    if config.mode == Mode::Cleanup {
        if let (Some(gateway), Some(holder)) = (snapshot.network.default_route, holder)
            && holder.node.has_records()
        {
            remove(out, holder, gateway, Reason::CleanupRequested);
        }
        return;
    }
    let kept = match (snapshot.network.default_route, holder) {
        (None, _) => KeptRoute::None,
        (Some(_), Some(Assessed { node, standing: Standing::Eligible(_) })) => {
            KeptRoute::AtEligible(node.name.clone())
        }
        (Some(gateway), Some(holder))
            if config.on_no_candidate == OnNoCandidate::Remove && holder.node.has_records() =>
        {
            remove(out, holder, gateway, Reason::NoCandidate(KeptRoute::Removed));
            KeptRoute::Removed
        }
        (Some(gateway), _) => KeptRoute::AtOther(gateway),
    };
    out.problem(about_natgw(config), Reason::NoCandidate(kept));
}
