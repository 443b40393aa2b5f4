//! Floating IPs: what a label says, and what the cloud says.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::action::{Action, NodeRef};
use super::reason::Reason;
use super::{Output, regarding};
use crate::config::Config;
use crate::observe::snapshot::{Node, Server, Snapshot};

/// Reads a label value as the address of a gateway: IPv4, unicast, and none that can be no floating IP.
///
/// A label value cannot hold a colon, so an IPv6 address can only stand there mangled.
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

/// The floating IP that a Node counts as assigned: its label, if the selector matches and the value is one.
#[must_use]
pub fn assigned(node: &Node) -> Option<Ipv4Addr> {
    node.label.as_deref().filter(|_| node.selected).and_then(parse)
}

/// Nodes by the floating IP in their label, where several share one.
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

/// What the cloud says about a Node's claim to a floating IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is assigned to the Node's server.
    Confirmed,
    /// It is assigned to another server or to none.
    Denied,
    /// The cloud was not asked, or knows no such floating IP.
    Unknown,
}

/// Holds a Node's label against the cloud's word.
#[must_use]
pub fn claim(snapshot: &Snapshot, node: &Node, ip: Ipv4Addr) -> Claim {
    match (snapshot.floating_ips.as_ref().and_then(|ips| ips.get(&ip)), node.server) {
        (None, _) => Claim::Unknown,
        (Some(Some(holder)), Server::Cloud { id, .. }) if *holder == id => Claim::Confirmed,
        (Some(_), _) => Claim::Denied,
    }
}

/// Keeps the floating-IP labels true from the cloud's own data, where the settings want it.
///
/// New holders are labelled before old ones lose the label, as the floating IP itself never has a gap either. Returns the
/// world with these labels in it.
pub(super) fn labels<'a>(config: &Config, snapshot: &'a Snapshot, out: &mut Output) -> Cow<'a, Snapshot> {
    let mut labelled = Cow::Borrowed(snapshot);
    let (true, Some(floating_ips)) = (config.keeps_labels(), &snapshot.floating_ips) else {
        return labelled;
    };
    let mut of_server = BTreeMap::<u64, Vec<Ipv4Addr>>::new();
    for (ip, server) in floating_ips {
        if let Some(server) = server {
            of_server.entry(*server).or_default().push(*ip);
        }
    }
    let (mut removals, mut problems) = (Vec::new(), Vec::new());
    let mut write = |index: usize, node: &Node, ip: Option<Ipv4Addr>, because| {
        out.step(Action::LabelFloatingIP { node: NodeRef::from(node), ip }, because);
        if let Some(node) = labelled.to_mut().nodes.get_mut(index) {
            node.label = ip.map(|ip| ip.to_string());
        }
    };
    for (index, node) in
        snapshot.nodes.iter().enumerate().filter(|(_, node)| node.selected && !node.terminating)
    {
        let Server::Cloud { id, .. } = node.server else { continue };
        let held = of_server.get(&id).map_or(&[][..], Vec::as_slice);
        let now = node.label.as_deref().and_then(parse);
        // Stay with the label as long as it is true: a Node can use only one.
        let desired = now.filter(|ip| held.contains(ip)).or_else(|| held.first().copied());
        if held.len() > 1 {
            problems.push((regarding(node), Reason::MultipleFloatingIPs(held.to_vec())));
        }
        match desired {
            Some(ip) if now != Some(ip) => write(index, node, Some(ip), Reason::FloatingIPAssigned),
            None if node.label.is_some() => removals.push((index, node)),
            _ => {}
        }
    }
    for (index, node) in removals {
        write(index, node, None, Reason::FloatingIPUnassigned);
    }
    for (regarding, because) in problems {
        out.problem(regarding, because);
    }
    labelled
}
