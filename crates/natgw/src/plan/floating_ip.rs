//! Floating IPs: the label of the Node, and the assignment in the cloud.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::action::{Action, NodeRef};
use super::reason::Reason;
use super::{Output, about_natgw, jobs, regarding};
use crate::config::Config;
use crate::observe::snapshot::{Node, Server, Snapshot};

/// Polls in a row that have to report the same before many labels are removed at once: a list that is wrong for a moment, as
/// with a token of another project, tears nothing down.
pub const CONFIRMATIONS: u32 = 3;

/// Parses a label value as a floating IP: a unicast IPv4 address that is not unspecified, loopback, link-local or
/// broadcast.
///
/// A label value cannot contain a colon, so it cannot hold an IPv6 address.
#[must_use]
pub fn parse(value: &str) -> Option<Ipv4Addr> {
    value.parse::<Ipv4Addr>().ok().filter(|ip| {
        !(ip.is_unspecified()
            || ip.is_loopback()
            || ip.is_multicast()
            || ip.is_broadcast()
            || ip.is_link_local())
    })
}

/// The floating IP in the Node's label. None if the node selector does not match the Node, or the value is not valid.
#[must_use]
pub fn assigned(node: &Node) -> Option<Ipv4Addr> {
    node.label.as_deref().filter(|_| node.selected).and_then(parse)
}

/// The Nodes of each floating IP that is in the label of several Nodes.
pub fn duplicates(snapshot: &Snapshot) -> BTreeMap<Ipv4Addr, Vec<&Node>> {
    let mut holders = BTreeMap::<Ipv4Addr, Vec<&Node>>::new();
    for node in &snapshot.nodes {
        if let Some(ip) = assigned(node) {
            holders.entry(ip).or_default().push(node);
        }
    }
    holders.retain(|_, nodes| nodes.len() > 1);
    holders
}

/// The assignment of the floating IP in a Node's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is assigned to the Node's server.
    Confirmed,
    /// It is not assigned to the Node's server.
    Denied(Assignment),
    /// There is no list of floating IPs.
    Unknown,
}

/// The actual assignment of a floating IP that is not assigned to the Node's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// It is assigned to the server with this ID.
    Server(u64),
    /// It is assigned to no server.
    None,
    /// The project has no such floating IP, or the selector for floating IPs does not match it.
    NotListed,
}

/// Compares a Node's label with the list of floating IPs.
#[must_use]
pub fn claim(snapshot: &Snapshot, node: &Node, ip: Ipv4Addr) -> Claim {
    let Some(floating_ips) = &snapshot.floating_ips else { return Claim::Unknown };
    match (floating_ips.get(&ip), node.server) {
        (Some(Some(holder)), Server::Cloud { id, .. }) if *holder == id => Claim::Confirmed,
        (Some(Some(holder)), _) => Claim::Denied(Assignment::Server(*holder)),
        (Some(None), _) => Claim::Denied(Assignment::None),
        (None, _) => Claim::Denied(Assignment::NotListed),
    }
}

/// A change of one Node's floating-IP label.
struct Change<'a> {
    index: usize,
    node: &'a Node,
    ip: Option<Ipv4Addr>,
}

impl Change<'_> {
    /// Whether the Node stops being a gateway for the IP in its present label.
    fn is_loss(&self) -> bool {
        assigned(self.node).is_some()
    }
}

/// Writes the floating-IP labels from the list of floating IPs, if the settings enable it.
///
/// New holders are labelled before old ones lose the label. A list that takes the label from more than half of the gateways, or
/// from the last eligible one, may be wrong: see [`hold`]. Returns the Snapshot with the new labels.
pub(super) fn labels<'a>(config: &Config, snapshot: &'a Snapshot, out: &mut Output) -> Cow<'a, Snapshot> {
    let (true, Some(floating_ips)) = (config.keeps_labels(), &snapshot.floating_ips) else {
        return Cow::Borrowed(snapshot);
    };
    let mut of_server = BTreeMap::<u64, Vec<Ipv4Addr>>::new();
    for (ip, server) in floating_ips {
        if let Some(server) = server {
            of_server.entry(*server).or_default().push(*ip);
        }
    }
    let mut changes = Vec::new();
    let nodes = snapshot.nodes.iter().enumerate();
    for (index, node) in nodes.filter(|(_, node)| node.selected && !node.terminating) {
        let Server::Cloud { id, .. } = node.server else { continue };
        let held = of_server.get(&id).map_or(&[][..], Vec::as_slice);
        let now = node.label.as_deref().and_then(parse);
        // A label with an assigned floating IP stays, also if the server has several: a Node uses one floating IP.
        let ip = now.filter(|ip| held.contains(ip)).or_else(|| held.first().copied());
        if held.len() > 1 {
            out.problem(regarding(node), Reason::MultipleFloatingIPs(held.to_vec()));
        }
        if ip != now || ip.is_none() && node.label.is_some() {
            changes.push(Change { index, node, ip });
        }
    }
    hold(config, snapshot, &mut changes, out);
    changes.sort_by_key(|change| change.ip.is_none());
    let mut labelled = Cow::Borrowed(snapshot);
    for Change { index, node, ip } in changes {
        let because = if ip.is_some() { Reason::FloatingIPAssigned } else { Reason::FloatingIPUnassigned };
        out.step(Action::LabelFloatingIP { node: NodeRef::from(node), ip }, because);
        if let Some(node) = labelled.to_mut().nodes.get_mut(index) {
            node.label = ip.map(|ip| ip.to_string());
        }
    }
    labelled
}

/// Drops the changes that have to wait, and reports them.
///
/// Changes that take the label from more than half of the gateways at once, or leave no eligible one, wait until
/// [`CONFIRMATIONS`] polls in a row have reported the same. After that the last eligible gateway still keeps its label until another
/// one is eligible, unless another IP replaces it: an empty list never tears down the last gateway.
fn hold(config: &Config, snapshot: &Snapshot, changes: &mut Vec<Change<'_>>, out: &mut Output) {
    let is_eligible =
        |node: &Node| assigned(node).is_some_and(|ip| jobs::is_settled_gateway(config, snapshot, node, ip));
    let gateways = snapshot.nodes.iter().filter(|node| assigned(node).is_some()).count();
    let losses: Vec<usize> =
        changes.iter().filter(|change| change.is_loss()).map(|change| change.index).collect();
    let nodes = || snapshot.nodes.iter().enumerate();
    let leaves_one = nodes().any(|(index, node)| !losses.contains(&index) && is_eligible(node));
    if losses.is_empty() || leaves_one && losses.len() * 2 <= gateways {
        return;
    }
    let is_unconfirmed = snapshot.floating_ip_polls < CONFIRMATIONS;
    let current =
        |node: &Node| node.private_ip().is_some() && node.private_ip() == snapshot.network.default_route;
    let removed = changes.iter().filter(|change| change.ip.is_none() && is_eligible(change.node));
    let last = removed.max_by_key(|change| current(change.node)).map(|change| change.index);
    let last = last.filter(|_| !leaves_one);
    let mut held = Vec::new();
    changes.retain(|change| {
        let is_held = change.is_loss() && (is_unconfirmed || last == Some(change.index));
        if is_held {
            held.push(change.node.name.clone());
        }
        !is_held
    });
    if !held.is_empty() {
        out.problem(about_natgw(config), Reason::LabelRemovalHeld { nodes: held, is_unconfirmed });
    }
}
