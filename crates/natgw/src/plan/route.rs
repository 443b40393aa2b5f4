//! The network's default route: its desired next hop, and the reason of a change.

use std::net::Ipv4Addr;

use super::action::{Action, NodeRef};
use super::eligibility::{Assessed, Standing, Unfit};
use super::primary::Primary;
use super::reason::{KeptRoute, Reason};
use super::{Output, about_natgw, jobs};
use crate::config::{Config, Mode, OnNoCandidate};
use crate::observe::snapshot::{Node, Server, Snapshot};

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
            from_node: holder(snapshot, assessed).map(|holder| holder.node.name.clone()),
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

/// The Node at the next hop, which may be an alias IP of its server.
fn holder<'a, 'n>(snapshot: &Snapshot, assessed: &'a [Assessed<'n>]) -> Option<&'a Assessed<'n>> {
    let next_hop = snapshot.network.default_route?;
    let server = snapshot.network.servers.get(&next_hop).map(|server| server.id);
    let is_holder = |node: &Node| match node.server {
        Server::Cloud { id, private_ip } => Some(id) == server || private_ip == Some(next_hop),
        Server::Robot | Server::Unknown => false,
    };
    assessed.iter().find(|one| is_holder(one.node))
}

/// The address that the election keeps: that of the Node at the next hop, also if the next hop is an alias IP.
pub(super) fn current(snapshot: &Snapshot, assessed: &[Assessed<'_>]) -> Option<Ipv4Addr> {
    holder(snapshot, assessed)?.node.private_ip()
}

/// The gateway that a cleanup leaves as it is for now, with the route and the role label: the one with the traffic, until the other Nodes
/// have run the teardowns for which they may have to pull an image through it.
pub(super) fn in_use_by_cleanup<'a>(
    config: &Config,
    snapshot: &Snapshot,
    assessed: &[Assessed<'a>],
) -> Option<&'a Node> {
    if config.mode != Mode::Cleanup {
        return None;
    }
    let gateway = holder(snapshot, assessed)?.node;
    let mut others = snapshot.nodes.iter().filter(|node| node.name != gateway.name);
    others.any(|node| jobs::teardown_needs_gateway(config, snapshot, node)).then_some(gateway)
}

/// Why the route cannot stay at `current`, which is not the primary's address.
fn why_leave(snapshot: &Snapshot, assessed: &[Assessed<'_>], current: Ipv4Addr) -> Reason {
    let Some(holder) = holder(snapshot, assessed) else {
        return match snapshot.network.servers.get(&current) {
            Some(server) => Reason::ForeignRoute { gateway: current, server: server.name.clone() },
            None => Reason::GatewayGone(current),
        };
    };
    let name = holder.node.name.clone();
    match holder.standing {
        Standing::Eligible(Unfit::Terminating) => Reason::GatewayTerminating(name),
        Standing::Eligible(Unfit::NotReady) => Reason::GatewayNotReady(name),
        Standing::Eligible(Unfit::Cordoned) => Reason::GatewayCordoned(name),
        Standing::Eligible(Unfit::Differs) => Reason::GatewayDiffers(name),
        Standing::Eligible(Unfit::Outdated) => Reason::GatewayOutdated(name),
        Standing::Eligible(Unfit::Unreachable) => Reason::GatewayUnreachable(name),
        Standing::Eligible(Unfit::FloatingIPNotAssigned | Unfit::FloatingIPContested) => {
            Reason::GatewayLostFloatingIP(name)
        }
        // A candidate at its own address is elected.
        Standing::Candidate { .. } => Reason::GatewayAtAliasIP { gateway: current, node: name },
        Standing::Eligible(Unfit::NotInNetwork) | Standing::None => Reason::GatewayNotEligible(name),
    }
}

/// No Node can be the primary: the route stays, unless it is natgw's and the settings require its removal.
fn without_candidate(config: &Config, snapshot: &Snapshot, assessed: &[Assessed<'_>], out: &mut Output) {
    let holder = holder(snapshot, assessed);
    let remove = |out: &mut Output, holder: &Assessed<'_>, gateway, because| {
        let node = NodeRef::from(holder.node);
        out.step(Action::RemoveRoute { network: snapshot.network.id, gateway, node }, because);
    };
    if config.mode == Mode::Cleanup {
        let Some(gateway) = snapshot.network.default_route else { return };
        match holder {
            Some(holder) if holder.node.has_records() => {
                remove(out, holder, gateway, Reason::CleanupRequested);
            }
            // Another program's route. One to a Node or to no server was natgw's, or leads nowhere all the same.
            None if snapshot.network.servers.contains_key(&gateway) => {}
            _ => out.problem(about_natgw(config), Reason::RouteLeft(gateway)),
        }
        return;
    }
    let kept = match (snapshot.network.default_route, holder) {
        (None, _) => KeptRoute::None,
        (Some(_), Some(Assessed { node, standing: Standing::Eligible(_), .. })) => {
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
