//! Routing: the changes of ADD in a pod, and what DEL puts back.
//!
//! | | ADD | DEL |
//! |---|---|---|
//! | default route in main, for each family of the attachment | is replaced by the attachment's, in one request, and saved in the record | is replaced by the saved one, or while other attachments remain by that of the newest |
//! | further default routes that would bypass it: of the primary interface, with the same metric, for a TOS | are deleted and saved | are added again behind the first, in their order |
//! | networks of the cluster, link-local services and the node's addresses | get routes in main through the primary interface, unless a route covers them | are deleted, unless another attachment needs them |
//! | primary table (71000 + slot) | copies of the primary interface's routes; a rule for the mark of the reply direction | is emptied, with its rule |
//! | egress table (72000 + slot) | the attachment's networks, gateway and default route; rules for its addresses and redirects | goes with the link, its rules are deleted |
//!
//! A default route that an advertisement of a router would add again is not replaced: the attachment's gets the lowest metric. Routes that
//! another program changed meanwhile stay. [`super::route`] has the single routes, [`super::primary`] finds the primary interface.

use std::collections::BTreeMap;

use common::netlink::link::Link;
use common::netlink::route::{Device, Route};

use crate::names;
use crate::observe::Pod;

use super::primary::{self, Primary};
use super::undo::{Saved, Undo};
use super::{Desired, Family, Step, route};

/// IPv6's lowest metric: routers' routes have 1024 (or `net.ipv6.conf.*.ra_defrtr_metric`).
const FIRST: u32 = 1;

/// The steps that move the default route of a family.
pub(super) struct Swap {
    pub(super) family: Family,
    pub(super) steps: Vec<Step>,
    /// The default routes before any attachment, for the undo data.
    pub(super) saved: Vec<Saved>,
}

impl Swap {
    pub(super) fn of(
        pod: &Pod,
        desired: &Desired,
        family: Family,
        primary: Option<&Primary>,
        others: &BTreeMap<String, Undo>,
    ) -> Self {
        let of_attachment =
            |route: &Route| pod.link_of(route).is_some_and(|link| others.contains_key(&link.name));
        let current = primary::lowest_default(pod, family).filter(|route| route.tos == 0);
        // Whichever interface it has: a route for a TOS has precedence, and one with the same metric is used if the new one is down.
        let leads_around = |route: &Route| {
            route.tos != 0 || current.is_some_and(|current| route::same_entry(route, current))
        };
        let on_primary =
            |route: &Route| primary.is_some_and(|primary| route.device == Some(Device::Index(primary.index)));
        let further: Vec<&Route> = route::defaults(pod, route::MAIN, family)
            .filter(|route| Some(*route) != current)
            .filter(|route| on_primary(route) || leads_around(route))
            .collect();

        // It, or another one with its metric, is advertised, and would be added again by the next advertisement.
        let advertised = |before: &Route| {
            let mut alike = route::defaults(pod, route::MAIN, family);
            route::metric(before) > FIRST
                && alike.any(|other| other.is_advertised_default() && route::same_entry(other, before))
        };
        let mut after = route::main_default(desired, family, Device::New);
        let mut steps = Vec::new();
        match current {
            // With two routes of the same metric, it is undefined which one the kernel replaces, and it uses the one
            // whose router is preferred or reachable. So the new route gets the lowest metric.
            Some(before) if advertised(before) => {
                after.metric = Some(FIRST);
                steps.push(Step::AddRoute(after));
                steps.push(Step::DeleteRoute(before.clone()));
            }
            Some(before) => {
                after.metric = before.metric;
                steps.push(Step::ReplaceRoute { before: before.clone(), after });
            }
            None => {
                // The first advertisement of a router may come later.
                after.metric = family.is_v6().then_some(FIRST);
                steps.push(Step::AddRoute(after));
            }
        }
        steps.extend(further.iter().map(|route| Step::DeleteRoute((*route).clone())));

        // Routes that other attachments removed, and those that this one removes.
        let mut saved: Vec<Saved> = Vec::new();
        let youngest =
            others.values().filter(|undo| undo.families.contains(&family)).max_by_key(|undo| undo.order);
        let recorded = youngest.into_iter().flat_map(|undo| &undo.defaults).cloned();
        let taken = current
            .into_iter()
            .chain(further)
            .filter(|route| !of_attachment(route))
            .map(|route| Saved::of(route, pod));
        for one in recorded.filter(|one| Family::of_net(&one.route.destination) == family).chain(taken) {
            if !saved.iter().any(|other| other.is(&one)) {
                saved.push(one);
            }
        }
        Self { family, steps, saved }
    }

    /// Foreign routes to remove from main.
    pub(super) fn removed(&self) -> impl Iterator<Item = Route> + '_ {
        let saved = |route: &Route| {
            self.saved
                .iter()
                .any(|saved| route::same_entry(&saved.route, route) && route.gateway == saved.route.gateway)
        };
        self.steps.iter().filter_map(move |step| match step {
            Step::ReplaceRoute { before: route, .. } | Step::DeleteRoute(route) => {
                Some(route.clone()).filter(saved)
            }
            _ => None,
        })
    }
}

/// The routes of `kept` that no other program added: new ones, and those of other attachments.
pub(super) fn recorded(pod: &Pod, kept: &[Route], others: &BTreeMap<String, Undo>) -> Vec<Saved> {
    let there = |saved: &Saved| pod.routes.iter().any(|there| route::same_entry(there, &saved.route));
    let ours = |saved: &Saved| !there(saved) || is_recorded(saved, others);
    kept.iter().map(|route| Saved::of(route, pod)).filter(ours).collect()
}

/// Whether another attachment has recorded this route.
fn is_recorded(saved: &Saved, others: &BTreeMap<String, Undo>) -> bool {
    let mut recorded = others.values().flat_map(|undo| &undo.routes);
    recorded.any(|other| route::same_entry(&other.route, &saved.route))
}

/// The steps that put the default route of a family back. `link` is the attachment's.
pub(super) fn defaults(
    pod: &Pod,
    link: Option<&Link>,
    family: Family,
    undo: &Undo,
    others: &BTreeMap<String, Undo>,
) -> Vec<Step> {
    let current = primary::lowest_default(pod, family);
    let held =
        current.filter(|route| link.is_some_and(|link| route.device == Some(Device::Index(link.index))));
    let there = |lost: &Route| pod.routes.iter().any(|there| route::same(there, lost));
    let defaults = || undo.defaults.iter().filter(|saved| Family::of_net(&saved.route.destination) == family);
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
        let alone = alone.filter_map(|saved| saved.route(pod)).filter(|lost| !there(lost));
        steps.extend(alone.map(Step::AppendRoute));
        return steps;
    }
    let saved: Vec<Route> = defaults().filter_map(|saved| saved.route(pod)).collect();
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
fn successor(pod: &Pod, family: Family, others: &BTreeMap<String, Undo>) -> Option<Route> {
    let mut by_age: Vec<&Undo> = others.values().filter(|undo| undo.families.contains(&family)).collect();
    by_age.sort_by_key(|undo| std::cmp::Reverse(undo.order));
    let mut found =
        by_age.iter().filter_map(|undo| route::defaults(pod, names::egress_table(undo.slot), family).next());
    found.next().map(|route| Route { table: route::MAIN, ..route.clone() })
}

fn at(route: Route, before: &Route) -> Route {
    Route { metric: before.metric, tos: before.tos, ..route }
}

/// The routes of the undo data that no other attachment needs.
pub(super) fn added(pod: &Pod, undo: &Undo, others: &BTreeMap<String, Undo>) -> Vec<Route> {
    let found = |saved: &Saved| {
        let route = saved.route(pod)?;
        let mut there =
            pod.routes.iter().filter(|there| route::same(there, &route) && there.protocol == names::PROTOCOL);
        there.next().cloned()
    };
    undo.routes.iter().filter(|saved| !is_recorded(saved, others)).filter_map(found).collect()
}

/// The rules of both tables.
pub(super) fn rules(pod: &Pod, undo: &Undo) -> Vec<Step> {
    let tables = [names::primary_table(undo.slot), names::egress_table(undo.slot)];
    pod.rules.iter().filter(|rule| tables.contains(&rule.table)).cloned().map(Step::DeleteRule).collect()
}

/// The routes of both tables.
pub(super) fn tables(pod: &Pod, link: Option<&Link>, undo: &Undo) -> Vec<Step> {
    let tables = [names::primary_table(undo.slot), names::egress_table(undo.slot)];
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
