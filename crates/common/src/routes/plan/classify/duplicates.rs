//! Several routes to the pod network of one Node: which of them lead to its machine.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{OrphanReason, RouteClass, holders, lives, located, may_live, users};
use crate::routes::policy::Policy;
use crate::routes::route::Meaning;
use crate::routes::snapshot::{Node, Snapshot};

/// Of several routes to the pod network of one Node, those that lead to another machine are dead, provided that one that leads
/// to the Node itself is there: the router would share the Node's traffic out among them. Where Nodes are not known, or two
/// claim the network, nothing is said.
pub(super) fn superseded(
    policy: &Policy,
    snapshot: &Snapshot,
    meaning: &Meaning,
    beside: &[IpAddr],
) -> Option<RouteClass> {
    let nodes = snapshot.nodes.as_deref()?;
    let mut owners = nodes.iter().filter(|node| node.pod_cidrs.contains(&meaning.destination));
    let (owner, None) = (owners.next()?, owners.next()) else { return None };
    // What a Node says of itself is old where nobody keeps it: only a port shows that the address is still its own.
    let own = beside.iter().find(|own| owner.addresses.contains(own) && has_port(snapshot, owner, **own))?;
    if owner.addresses.contains(&meaning.nexthop) || snapshot.own.contains(&meaning.nexthop) {
        return None;
    }
    if same_machine(policy, snapshot, owner, *own, meaning.nexthop) {
        return None;
    }
    // What cannot be seen stays unknown.
    let (true, None) = located(snapshot, meaning.nexthop) else { return None };
    Some(RouteClass::Orphan(OrphanReason::NodeHasAnother {
        node: owner.name.clone(),
        nexthop: own.to_string(),
    }))
}

/// Whether the address is at a port that lives, and that is not another machine's than the Node's.
fn has_port(snapshot: &Snapshot, node: &Node, address: IpAddr) -> bool {
    let another = |machine: &String| node.server.as_ref().is_some_and(|own| own != machine);
    holders(snapshot, address)
        .any(|holder| lives(snapshot, holder) && !holder.machine.as_ref().is_some_and(another))
}

/// Whether the other address is the Node's machine's too, or may be, although the Node does not list it: an address of a second
/// network card, of a card that was replaced, or one that a port of the machine may use among others. That it may use what is seen
/// to be another Node's is no doubt.
fn same_machine(policy: &Policy, snapshot: &Snapshot, node: &Node, own: IpAddr, other: IpAddr) -> bool {
    let another = |one: &Node| one.name != node.name && one.addresses.contains(&other);
    let theirs = snapshot.nodes.iter().flatten().any(|one| another(one) && has_port(snapshot, one, other));
    let users = if theirs { Vec::new() } else { users(policy, snapshot, other) };
    let users = users.into_iter().map(|(_, port)| port);
    let here = || holders(snapshot, own);
    // Without the Node's word and a port's there is nothing to compare with.
    let mine: BTreeSet<&String> =
        node.server.iter().chain(here().filter_map(|here| here.machine.as_ref())).collect();
    holders(snapshot, other).chain(users.filter(|port| may_live(snapshot, port))).any(|there| {
        let told_apart = there.machine.as_ref().is_some_and(|it| !mine.is_empty() && !mine.contains(it));
        !told_apart || here().any(|here| here.port == there.port)
    })
}
