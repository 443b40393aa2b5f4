//! The plan of DEL: restores the pod's previous state, as far as no other attachment needs the current one.

use std::collections::BTreeMap;

use common::netlink::link::Link;
use common::netlink::route::{Device, Route};

use crate::names;
use crate::observe::Pod;

use super::primary;
use super::table_record::{self, Changed, Saved, TableRecord};
use super::{Family, Step, route, sysctl};

/// The steps that remove the attachment of `interface`, whose record is `record`: default route, other routes, rules, tables,
/// sysctls, the link, and last the table with the record. This also works after an interrupted ADD or DEL: missing
/// objects, and those that another program has changed, are skipped.
#[must_use]
pub fn del(pod: &Pod, interface: &str, record: &TableRecord) -> Vec<Step> {
    let mut others = table_record::all(pod);
    others.remove(interface);
    let link = pod.links.iter().find(|link| link.name == interface).filter(|link| ours(link));
    let mut steps = Vec::new();
    for family in &record.families {
        steps.extend(defaults(pod, link, *family, record, &others));
    }
    steps.extend(routes(pod, record, &others).into_iter().map(Step::DeleteRoute));
    steps.extend(rules(pod, record));
    steps.extend(tables(pod, link, record));
    steps.extend(sysctls(pod, record, &others));
    // The link goes down and is deleted before its table: a link that is up always has its allow-list, wherever DEL stops. The
    // table is also the record, so it goes when nothing is left that another DEL would need it for.
    steps.extend(link.map(|link| Step::SetDown { index: link.index, name: link.name.clone() }));
    steps.extend(link.map(delete_link));
    steps.push(delete_firewall(pod, interface));
    steps
}

/// Links of a killed ADD with their temporary name ([`names::TEMPORARY_NAME`]): they are down and have no alias. Only for a caller that holds the pod lock.
pub fn temporary(pod: &Pod) -> impl Iterator<Item = &Link> {
    let number = |link: &Link| {
        let digits = link.name.strip_prefix(names::TEMPORARY_NAME).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let used = |link: &Link| {
        link.up || link.alias.is_some() || pod.addresses.iter().any(|address| address.link == link.index)
    };
    pod.links.iter().filter(move |link| ours(link) && number(link) && !used(link))
}

/// The steps that remove a link of the plugin.
#[must_use]
pub fn delete_link(link: &Link) -> Step {
    Step::DeleteLink { index: link.index, name: link.name.clone() }
}

/// The step that deletes the tables of an attachment.
#[must_use]
pub fn delete_firewall(pod: &Pod, interface: &str) -> Step {
    Step::DeleteFirewall { interface: interface.to_owned(), frames: pod.frame_filters.contains(interface) }
}

/// Whether the plugin creates links of this kind.
#[must_use]
pub fn ours(link: &Link) -> bool {
    matches!(link.kind.as_str(), "macvlan" | "ipvlan")
}

fn defaults(
    pod: &Pod,
    link: Option<&Link>,
    family: Family,
    record: &TableRecord,
    others: &BTreeMap<String, TableRecord>,
) -> Vec<Step> {
    let current = primary::lowest_default(pod, family);
    let held =
        current.filter(|route| link.is_some_and(|link| route.device == Some(Device::Index(link.index))));
    let there = |lost: &Route| pod.routes.iter().any(|there| route::same(there, lost));
    let defaults =
        || record.defaults.iter().filter(|saved| Family::of_net(&saved.route.destination) == family);
    if let Some(successor) = successor(pod, family, others) {
        let mut steps = match (held, current) {
            (Some(before), _) => {
                vec![Step::ReplaceRoute { before: before.clone(), after: at(successor, before) }]
            }
            (None, None) => vec![Step::AddRoute(successor)],
            (None, Some(_)) => Vec::new(),
        };
        // Routes that were added after the older attachments, so that only this one removed them: no remaining record has them.
        let elsewhere =
            |saved: &&Saved| others.values().flat_map(|other| &other.defaults).any(|other| other.is(saved));
        let alone = defaults().filter(|saved| !elsewhere(saved));
        let alone = alone.filter_map(|saved| restored(pod, saved, record.slot)).filter(|lost| !there(lost));
        steps.extend(alone.map(Step::AppendRoute));
        return steps;
    }
    let saved: Vec<Route> = defaults().filter_map(|saved| restored(pod, saved, record.slot)).collect();
    // Several routes may differ only in their next hop: those that an interrupted DEL has already restored are not foreign.
    let foreign = |lost: &Route| {
        let mut defaults = route::defaults(pod, route::MAIN, family).filter(|there| Some(*there) != held);
        defaults.any(|there| {
            route::same_entry(there, lost) && !saved.iter().any(|saved| route::same(saved, there))
        })
    };
    let mut steps: Vec<Step> = Vec::new();
    for (position, lost) in saved.iter().enumerate() {
        // If the attachment's route is the default until now, with any metric, no foreign route has replaced it.
        if there(lost) || (held.is_none() && foreign(lost)) {
            continue;
        }
        let ours = held.filter(|held| route::same_entry(held, lost));
        let earlier = saved.iter().take(position).any(|earlier| route::same_entry(earlier, lost));
        // A route that was advertised again on another interface.
        let equal_exists = || {
            let mut others = route::defaults(pod, route::MAIN, family).filter(|there| Some(*there) != held);
            others.any(|there| route::same_entry(there, lost))
        };
        // If several IPv6 routes are equal, it is undefined which of them the kernel replaces.
        let any = family.is_v6() && equal_exists();
        steps.push(match ours {
            Some(before) if !earlier && !any => {
                Step::ReplaceRoute { before: before.clone(), after: lost.clone() }
            }
            _ if earlier || equal_exists() => Step::AppendRoute(lost.clone()),
            _ => Step::AddRoute(lost.clone()),
        });
    }
    // The attachment's route is a separate entry and must be deleted.
    let replaced = steps.iter().any(|step| matches!(step, Step::ReplaceRoute { .. }));
    if !replaced && !saved.is_empty() {
        steps.extend(held.cloned().map(Step::DeleteRoute));
    }
    steps
}

/// The default route of the newest remaining attachment with this family.
fn successor(pod: &Pod, family: Family, others: &BTreeMap<String, TableRecord>) -> Option<Route> {
    let mut by_age: Vec<&TableRecord> =
        others.values().filter(|record| record.families.contains(&family)).collect();
    by_age.sort_by_key(|record| std::cmp::Reverse(record.order));
    let mut found = by_age
        .iter()
        .filter_map(|record| route::defaults(pod, names::egress_table(record.slot), family).next());
    found.next().map(|route| Route { table: route::MAIN, ..route.clone() })
}

fn at(route: Route, before: &Route) -> Route {
    Route { metric: before.metric, tos: before.tos, ..route }
}

/// A recorded route, with attributes that did not fit into the record from its copy in the primary table.
fn restored(pod: &Pod, saved: &Saved, slot: u32) -> Option<Route> {
    let mut route = saved.route(pod)?;
    let table = names::primary_table(slot);
    let copy = pod.routes.iter().find(|there| route::same_entry(there, &Route { table, ..route.clone() }));
    if let Some(copy) = copy.filter(|copy| copy.gateway == route.gateway) {
        // The copy does not expire, but an advertised route does.
        let lifetime = route.lifetime().filter(|lifetime| !copy.rest.contains(lifetime)).cloned();
        route.rest.clone_from(&copy.rest);
        route.rest.extend(lifetime);
    }
    Some(route)
}

/// Routes of the record that no other attachment needs.
fn routes(pod: &Pod, record: &TableRecord, others: &BTreeMap<String, TableRecord>) -> Vec<Route> {
    let needed = |saved: &Saved| {
        others
            .values()
            .flat_map(|record| &record.routes)
            .any(|other| route::same_entry(&other.route, &saved.route))
    };
    let found = |saved: &Saved| {
        let route = saved.route(pod)?;
        let mut there =
            pod.routes.iter().filter(|there| route::same(there, &route) && there.protocol == names::PROTOCOL);
        there.next().cloned()
    };
    record.routes.iter().filter(|saved| !needed(saved)).filter_map(found).collect()
}

fn rules(pod: &Pod, record: &TableRecord) -> Vec<Step> {
    let tables = [names::primary_table(record.slot), names::egress_table(record.slot)];
    pod.rules.iter().filter(|rule| tables.contains(&rule.table)).cloned().map(Step::DeleteRule).collect()
}

fn tables(pod: &Pod, link: Option<&Link>, record: &TableRecord) -> Vec<Step> {
    let tables = [names::primary_table(record.slot), names::egress_table(record.slot)];
    // Routes through the link go away with it.
    let stays = |route: &&Route| link.is_none_or(|link| route.device != Some(Device::Index(link.index)));
    pod.routes
        .iter()
        .filter(|route| tables.contains(&route.table))
        .filter(stays)
        .cloned()
        .map(Step::DeleteRoute)
        .collect()
}

/// In reverse order, because IPv6's `all` sets each device's value. A value that was changed since ADD is kept.
fn sysctls(pod: &Pod, record: &TableRecord, others: &BTreeMap<String, TableRecord>) -> Vec<Step> {
    let needed = |changed: &Changed| {
        others.values().flat_map(|record| &record.sysctls).any(|other| other.name == changed.name)
    };
    let all = sysctl::conf(Family::V6, "all", "forwarding");
    let mut all_changes = false;
    let mut steps = Vec::new();
    for changed in record.sysctls.iter().rev().filter(|changed| !needed(changed)) {
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
