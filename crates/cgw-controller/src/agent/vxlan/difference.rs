//! The ordered changes from the observed to the desired state. Pure.
//!
//! Objects are added before the nf_tables table marks packets for them, and removed after it no longer does. So each packet meets either
//! the old or the new state of its VIP, or it is dropped by the table's guard.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

use common::netlink::link::Mac;
use ipnet::Ipv4Net;

use super::observe::Observed;
use super::plan::{Device, Kernel, Lookup, Next, SETTINGS};
use crate::agent::driver::Change;

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Deletes the device, with its neighbours, forwarding entries and routes.
    DeleteDevice(u32),
    /// Creates the device, down.
    CreateDevice(Device),
    /// Sets the MTU of the device.
    SetMtu(u32),
    /// Sets a setting of the device.
    SetSetting(&'static str, u32),
    /// Adds the address of the device.
    AddAddress,
    /// Sets the device up.
    SetUp,
    /// Adds or replaces a neighbour.
    SetNeighbour(Ipv4Addr, [u8; 6]),
    /// Deletes a neighbour.
    DeleteNeighbour(Ipv4Addr),
    /// Adds or replaces a forwarding entry.
    SetForwarding([u8; 6], Ipv4Addr),
    /// Deletes a forwarding entry.
    DeleteForwarding([u8; 6], Option<Ipv4Addr>),
    /// Adds or replaces a route.
    SetRoute((u32, Ipv4Net), Next),
    /// Deletes a route.
    DeleteRoute((u32, Ipv4Net)),
    /// Adds a policy rule.
    AddRule(Lookup),
    /// Deletes a policy rule, as it was observed.
    DeleteRule(Box<common::netlink::rule::Rule>),
}

/// Changes of all objects but the nf_tables table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Before the table is changed.
    pub before: Vec<Operation>,
    /// After it.
    pub after: Vec<Operation>,
}

/// The changes from `observed` to `desired`.
#[must_use]
pub fn difference(desired: &Kernel, observed: &Observed) -> Changes {
    let mut changes = Changes::default();
    let kept = device(desired, observed, &mut changes.before);
    // A deleted device takes these with it.
    let nothing = Observed::default();
    let present = if kept { observed } else { &nothing };
    neighbours(desired, present, &mut changes);
    routes(desired, observed, kept, &mut changes);
    rules(desired, observed, &mut changes);
    changes
}

/// The changes of the device. Returns whether the observed one is kept.
fn device(desired: &Kernel, observed: &Observed, before: &mut Vec<Operation>) -> bool {
    let present = observed.device.as_ref();
    let fixed = |device: &Device| Device { mtu: 0, ..device.clone() };
    let kept = present.is_some_and(|found| {
        found.is_plain && found.device.as_ref().is_some_and(|device| fixed(device) == fixed(&desired.device))
    });
    if let Some(found) = present.filter(|_| !kept) {
        before.push(Operation::DeleteDevice(found.index));
    }
    if !kept {
        before.push(Operation::CreateDevice(desired.device.clone()));
    }
    let present = present.filter(|_| kept);
    if present.and_then(|found| found.device.as_ref()).is_some_and(|device| device.mtu != desired.device.mtu)
    {
        before.push(Operation::SetMtu(desired.device.mtu));
    }
    for (name, value) in SETTINGS {
        if present.and_then(|found| found.settings.get(name)) != Some(&value) {
            before.push(Operation::SetSetting(name, value));
        }
    }
    if !present.is_some_and(|found| found.addressed) {
        before.push(Operation::AddAddress);
    }
    if !present.is_some_and(|found| found.up) {
        before.push(Operation::SetUp);
    }
    kept
}

fn neighbours(desired: &Kernel, present: &Observed, changes: &mut Changes) {
    for (address, mac) in &desired.neighbours {
        if present.neighbours.get(address) != Some(&Some(*mac)) {
            changes.before.push(Operation::SetNeighbour(*address, *mac));
        }
    }
    for (mac, node) in &desired.forwarding {
        match present.forwarding.get(mac) {
            Some(found) if *found == Some(*node) => {}
            // An entry that the kernel refuses to replace.
            Some(None) => changes
                .before
                .extend([Operation::DeleteForwarding(*mac, None), Operation::SetForwarding(*mac, *node)]),
            _ => changes.before.push(Operation::SetForwarding(*mac, *node)),
        }
    }
    let stale = present.forwarding.iter().filter(|(mac, _)| !desired.forwarding.contains_key(*mac));
    changes.after.extend(stale.map(|(mac, node)| Operation::DeleteForwarding(*mac, *node)));
    let stale = present.neighbours.keys().filter(|address| !desired.neighbours.contains_key(*address));
    changes.after.extend(stale.map(|address| Operation::DeleteNeighbour(*address)));
}

fn routes(desired: &Kernel, observed: &Observed, kept: bool, changes: &mut Changes) {
    let present = |key: &(u32, Ipv4Net)| {
        let (_, next) = observed.routes.get(key)?;
        next.filter(|next| kept || !matches!(next, Next::Via(_)))
    };
    // Those of VIPs first: a change of the gateway is one of them. The first table is that of the pods.
    let missing = desired.routes.iter().rev().filter(|(key, next)| present(key) != Some(**next));
    changes.before.extend(missing.map(|(key, next)| Operation::SetRoute(*key, *next)));
    let stale = observed.routes.iter().filter(|(key, (_, next))| {
        let gone = !kept && matches!(next, Some(Next::Via(_)));
        !gone && !desired.routes.contains_key(*key)
    });
    let mut stale: Vec<_> = stale.map(|(key, _)| Operation::DeleteRoute(*key)).collect();
    stale.append(&mut changes.after);
    changes.after = stale;
}

fn rules(desired: &Kernel, observed: &Observed, changes: &mut Changes) {
    let present: BTreeSet<_> = observed.rules.iter().filter_map(|(_, lookup)| *lookup).collect();
    changes.before.extend(desired.rules.difference(&present).map(|lookup| Operation::AddRule(*lookup)));
    let stale = observed
        .rules
        .iter()
        .filter(|(_, lookup)| !lookup.is_some_and(|lookup| desired.rules.contains(&lookup)));
    let mut stale: Vec<_> = stale.map(|(rule, _)| Operation::DeleteRule(Box::new(rule.clone()))).collect();
    stale.append(&mut changes.after);
    changes.after = stale;
}

/// The changes that remove everything: the rules first, so that no packet meets a table without its route. The table is removed last.
#[must_use]
pub fn removal(observed: &Observed) -> Vec<Operation> {
    let rules = observed.rules.iter().map(|(rule, _)| Operation::DeleteRule(Box::new(rule.clone())));
    let routes = observed.routes.keys().map(|key| Operation::DeleteRoute(*key));
    let own = observed.device.iter().filter(|found| found.device.is_some());
    rules.chain(routes).chain(own.map(|found| Operation::DeleteDevice(found.index))).collect()
}

impl Operation {
    /// The operation as it is reported.
    #[must_use]
    pub fn change(&self, is_repair: bool) -> Change {
        Change { object: self.object(), description: self.to_string(), is_repair }
    }

    fn object(&self) -> &'static str {
        match self {
            Operation::SetSetting(..) => "sysctl",
            Operation::SetRoute(..)
            | Operation::DeleteRoute(_)
            | Operation::AddRule(_)
            | Operation::DeleteRule(_) => "route",
            _ => "link",
        }
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::Via(node) => write!(f, "via {node}"),
            Next::Throw => f.write_str("throw"),
            Next::Blackhole => f.write_str("blackhole"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::DeleteDevice(index) => write!(f, "delete link {index}"),
            Operation::CreateDevice(Device { name, vni, port, local, mac, mtu }) => {
                write!(
                    f,
                    "create {name}: vxlan {vni:#x}, port {port}, local {local}, {}, MTU {mtu}",
                    Mac(*mac)
                )
            }
            Operation::SetMtu(mtu) => write!(f, "set the MTU to {mtu}"),
            Operation::SetSetting(name, value) => write!(f, "set {name} to {value}"),
            Operation::AddAddress => write!(f, "add the address {}", super::plan::ADDRESS),
            Operation::SetUp => f.write_str("set up"),
            Operation::SetNeighbour(address, mac) => write!(f, "neighbour {address} is {}", Mac(*mac)),
            Operation::DeleteNeighbour(address) => write!(f, "delete the neighbour {address}"),
            Operation::SetForwarding(mac, node) => write!(f, "frames to {} go to {node}", Mac(*mac)),
            Operation::DeleteForwarding(mac, _) => write!(f, "delete the forwarding entry {}", Mac(*mac)),
            Operation::SetRoute((table, destination), next) => {
                write!(f, "table {table:#x}: {destination} {next}")
            }
            Operation::DeleteRoute((table, destination)) => {
                write!(f, "table {table:#x}: delete {destination}")
            }
            Operation::AddRule(Lookup { priority, mark, mask, table }) => {
                write!(f, "add rule {priority}: mark {mark:#x}/{mask:#x} uses table {table:#x}")
            }
            Operation::DeleteRule(rule) => write!(f, "delete rule {rule}"),
        }
    }
}

#[cfg(test)]
mod tests;
