//! Several routes to the pod network of one Node, and which of them lead to its machine.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{OrphanReason, RouteClass, holders, lives, located, may_live, users};
use crate::routes::policy::Policy;
use crate::routes::route::Meaning;
use crate::routes::snapshot::{Node, Snapshot};

/// Of several routes to the pod network of one Node, those to another machine are orphaned if one route leads to the Node itself:
/// the router would distribute the Node's traffic among them (ECMP). None where Nodes are not known, or two Nodes have the network.
pub(super) fn superseded(
    policy: &Policy,
    snapshot: &Snapshot,
    meaning: &Meaning,
    nexthops: &[IpAddr],
) -> Option<RouteClass> {
    let nodes = snapshot.nodes.as_deref()?;
    let mut owners = nodes.iter().filter(|node| node.pod_cidrs.contains(&meaning.destination));
    let (owner, None) = (owners.next()?, owners.next()) else { return None };
    // The status of a Node may be old, for example if its kubelet is down: only a port shows that the address is still its own.
    let own =
        nexthops.iter().find(|own| owner.addresses.contains(own) && has_port(snapshot, owner, **own))?;
    if owner.addresses.contains(&meaning.nexthop) || snapshot.own.contains(&meaning.nexthop) {
        return None;
    }
    if same_machine(policy, snapshot, owner, *own, meaning.nexthop) {
        return None;
    }
    // A next hop that is not visible stays unknown.
    let (true, None) = located(snapshot, meaning.nexthop) else { return None };
    Some(RouteClass::Orphan(OrphanReason::NodeHasAnother {
        node: owner.name.clone(),
        nexthop: own.to_string(),
    }))
}

/// Whether the address is at an existing port that does not belong to another machine than the Node's.
fn has_port(snapshot: &Snapshot, node: &Node, address: IpAddr) -> bool {
    let another = |machine: &String| node.server.as_ref().is_some_and(|own| own != machine);
    holders(snapshot, address)
        .any(|holder| lives(snapshot, holder) && !holder.machine.as_ref().is_some_and(another))
}

/// Whether the other address belongs to the Node's machine, or may belong to it, although the Node does not list it: an address of a
/// second network card, of a replaced card, or one that a port of the machine may use among others. An address that is visibly
/// another Node's does not count.
fn same_machine(policy: &Policy, snapshot: &Snapshot, node: &Node, own: IpAddr, other: IpAddr) -> bool {
    let another = |one: &Node| one.name != node.name && one.addresses.contains(&other);
    let theirs = snapshot.nodes.iter().flatten().any(|one| another(one) && has_port(snapshot, one, other));
    let users = if theirs { Vec::new() } else { users(policy, snapshot, other) };
    let users = users.into_iter().map(|(_, port)| port);
    let here = || holders(snapshot, own);
    // If neither the Node nor a port names the machine, there is nothing to compare with.
    let mine: BTreeSet<&String> =
        node.server.iter().chain(here().filter_map(|here| here.machine.as_ref())).collect();
    holders(snapshot, other).chain(users.filter(|port| may_live(snapshot, port))).any(|there| {
        let is_other = there.machine.as_ref().is_some_and(|it| !mine.is_empty() && !mine.contains(it));
        !is_other || here().any(|here| here.port == there.port)
    })
}
