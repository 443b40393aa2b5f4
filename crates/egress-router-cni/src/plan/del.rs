//! The plan of DEL: restores the pod's previous state, as far as no other attachment needs the current one.

use std::collections::BTreeMap;

use common::netlink::link::Link;

use crate::names;
use crate::observe::Pod;

use super::undo::{Changed, Undo};
use super::{Family, Step, routing, sysctl};

/// The steps that remove the attachment of `interface`, by its undo data: default route, other routes, rules, tables,
/// sysctls, the link, and last the firewall. This also works after an interrupted ADD or DEL: missing
/// objects, and those that another program has changed, are skipped.
#[must_use]
pub fn del(pod: &Pod, interface: &str, undo: &Undo) -> Vec<Step> {
    let mut others = pod.attachments.clone();
    others.remove(interface);
    // By its index first, because a program in the pod may have renamed it, and given the name to another link.
    let recorded = pod.links.iter().find(|link| undo.link == Some(link.index)).filter(|link| ours(link));
    let link = recorded.or_else(|| named(pod, interface));
    let mut steps = Vec::new();
    for family in &undo.families {
        steps.extend(routing::defaults(pod, link, *family, undo, &others));
    }
    steps.extend(routing::added(pod, undo, &others).into_iter().map(Step::DeleteRoute));
    steps.extend(routing::rules(pod, undo));
    steps.extend(routing::tables(pod, link, undo));
    steps.extend(sysctls(pod, undo, &others));
    // The link is deleted before its table: a link that is up always has its allow-list, wherever DEL stops.
    steps.extend(link.map(delete_link));
    steps.push(delete_firewall(pod, interface));
    steps
}

/// The steps for an attachment without a journal (the disk is lost). Its link is known by the name of its table, and by its kind. Routes are
/// not restored.
#[must_use]
pub fn unrecorded(pod: &Pod, interface: &str) -> Vec<Step> {
    if !pod.tables.contains(interface) && !pod.frame_filters.contains(interface) {
        return Vec::new();
    }
    named(pod, interface).map(delete_link).into_iter().chain([delete_firewall(pod, interface)]).collect()
}

/// Links of a killed ADD with their temporary name ([`names::TEMPORARY_NAME`]), which are down. Only for a caller that holds the pod lock
/// and has the journal of an ADD that did not complete.
pub fn temporary(pod: &Pod) -> impl Iterator<Item = &Link> {
    let number = |link: &Link| {
        let digits = link.name.strip_prefix(names::TEMPORARY_NAME).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let used = |link: &Link| link.up || pod.addresses.iter().any(|address| address.link == link.index);
    pod.links.iter().filter(move |link| ours(link) && number(link) && !used(link))
}

/// The step that deletes a link of the plugin.
#[must_use]
pub fn delete_link(link: &Link) -> Step {
    Step::DeleteLink { index: link.index, name: link.name.clone() }
}

/// The step that deletes the tables of an attachment.
fn delete_firewall(pod: &Pod, interface: &str) -> Step {
    Step::DeleteFirewall { interface: interface.to_owned(), frames: pod.frame_filters.contains(interface) }
}

/// The link of this name, if it may be the plugin's.
fn named<'a>(pod: &'a Pod, interface: &str) -> Option<&'a Link> {
    pod.link_named(interface).filter(|link| ours(link))
}

/// Whether the plugin creates links of this kind.
fn ours(link: &Link) -> bool {
    matches!(link.kind.as_str(), "macvlan" | "ipvlan")
}

/// In reverse order, because IPv6's `all` sets each device's value. A value that was changed since ADD is kept.
fn sysctls(pod: &Pod, undo: &Undo, others: &BTreeMap<String, Undo>) -> Vec<Step> {
    let needed = |changed: &Changed| {
        others.values().flat_map(|undo| &undo.sysctls).any(|other| other.name == changed.name)
    };
    let all = sysctl::conf(Family::V6, "all", "forwarding");
    let mut all_changes = false;
    let mut steps = Vec::new();
    for changed in undo.sysctls.iter().rev().filter(|changed| !needed(changed)) {
        let Some(current) = pod.sysctls.get(&changed.name) else { continue };
        let restore = if changed.value == changed.original {
            all_changes || *current != changed.original
        } else {
            *current == changed.value
        };
        if restore {
            all_changes |= changed.name == all;
            steps.push(Step::Sysctl {
                name: changed.name.clone(),
                value: changed.original.clone(),
                before: Some(current.clone()),
            });
        }
    }
    steps
}
