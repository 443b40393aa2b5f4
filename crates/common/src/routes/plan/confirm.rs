//! How often a route was found orphaned, and whether another client re-creates it: the state between two reconciliations.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::Removal;
use super::classify::{ClassifiedRoute, RouteClass};
use crate::api::routegc::{Candidate, Recreated, Removed};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::Snapshot;

/// Candidates that are tracked at a time: a status must stay far below etcd's limit of 1.5 MB. Further ones are tracked when the
/// first are gone.
const MOST_CANDIDATES: usize = 1000;

/// Removed routes that are kept. If more are removed in a day, only the detection of recreated routes is affected.
const MOST_REMOVED: usize = 100;

/// How long a re-created route is not removed again, counted from its removal. One removal a day does not fight with another client,
/// and that client may be gone by then.
const RECREATED_FOR: SignedDuration = SignedDuration::from_hours(24);

/// The state between two reconciliations. It is stored in the status and survives a restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Orphaned routes.
    pub candidates: Vec<Candidate>,
    /// Routes that were about to be removed when this was last stored.
    pub removing: Vec<Route>,
    /// Routes that were removed, the latest last.
    pub removed: Vec<Removed>,
    /// Routes that were removed and re-created.
    pub recreated: Vec<Recreated>,
    /// How many routes the router may have, as it was read last. None if there is no limit, or the cloud does not report it.
    pub limit: Option<i64>,
}

/// The new history, from the last one and the snapshot.
pub(super) fn update(
    policy: &Policy,
    snapshot: &Snapshot,
    classified: &[ClassifiedRoute],
    before: &History,
    now: Timestamp,
) -> History {
    let removed = removed(snapshot, classified, before, now);
    let recreated = recreated(snapshot, classified, &removed, &before.recreated, now);
    let left_alone: BTreeSet<Route> = recreated.iter().map(recreated_route).collect();
    let known: BTreeMap<Route, &Candidate> =
        before.candidates.iter().map(|one| (candidate_route(one), one)).collect();
    let mut candidates = Vec::new();
    for one in classified {
        let RouteClass::Orphan(orphaned) = &one.class else { continue };
        if left_alone.contains(&one.route) || candidates.len() >= MOST_CANDIDATES {
            continue;
        }
        // Another reason does not restart the count: if first the server and then its port is deleted, the route is orphaned all the time.
        let known = known.get(&one.route);
        candidates.push(Candidate {
            destination: one.route.destination.clone(),
            nexthop: one.route.nexthop.clone(),
            reason: orphaned.code().to_owned(),
            // A clock that was set back must not keep a route forever.
            first_seen: known.map_or(now, |known| known.first_seen.min(now)),
            observations: known
                .map_or(1, |known| known.observations.saturating_add(1))
                .min(policy.safety.confirmations),
        });
    }
    // A stable order, whatever the router returns: an unchanged state is not written.
    candidates.sort_by_key(candidate_route);
    candidates.dedup_by_key(|one| candidate_route(one));
    History {
        candidates,
        removing: Vec::new(),
        removed,
        recreated,
        limit: snapshot.limit.or_last(before.limit),
    }
}

/// Routes that were about to be removed and no longer exist: they were removed, even if the process ended, or the response was lost,
/// before that was recorded.
pub(super) fn carried_out(snapshot: &Snapshot, before: &History) -> Vec<Route> {
    before.removing.iter().filter(|route| !snapshot.routes.contains(route)).cloned().collect()
}

/// The routes that were removed. One that is valid again counts as a new one: if it is orphaned later, it does not count as recreated.
fn removed(
    snapshot: &Snapshot,
    classified: &[ClassifiedRoute],
    before: &History,
    now: Timestamp,
) -> Vec<Removed> {
    let valid = |one: &&ClassifiedRoute| matches!(one.class, RouteClass::Valid(_));
    let valid_routes: BTreeSet<&Route> = classified.iter().filter(valid).map(|one| &one.route).collect();
    let mut removed = before.removed.clone();
    removed.retain(|one| !valid_routes.contains(&removed_route(one)));
    // A clock that was ahead must not extend the day.
    for one in &mut removed {
        one.at = one.at.min(now);
    }
    for route in carried_out(snapshot, before) {
        record_removal(&mut removed, &route, now);
    }
    removed
}

/// Records a removal.
pub fn record_removal(removed: &mut Vec<Removed>, route: &Route, now: Timestamp) {
    let before = removed.iter().position(|one| removed_route(one) == *route).map(|at| removed.remove(at));
    removed.push(Removed {
        destination: route.destination.clone(),
        nexthop: route.nexthop.clone(),
        at: now,
        times: before.map_or(0, |before| before.times).saturating_add(1),
    });
    let surplus = removed.len().saturating_sub(MOST_REMOVED);
    removed.drain(..surplus);
}

fn recreated(
    snapshot: &Snapshot,
    classified: &[ClassifiedRoute],
    removed: &[Removed],
    before: &[Recreated],
    now: Timestamp,
) -> Vec<Recreated> {
    let orphans: BTreeSet<&Route> = classified
        .iter()
        .filter(|one| matches!(one.class, RouteClass::Orphan(_)))
        .map(|one| &one.route)
        .collect();
    let mut recreated = Vec::new();
    for one in removed {
        let route = removed_route(one);
        if !orphans.contains(&route) || now.duration_since(one.at) >= RECREATED_FOR {
            continue;
        }
        let known = before.iter().find(|known| recreated_route(known) == route && known.removed_at == one.at);
        let (node, server) = claimant(snapshot, &route);
        recreated.push(Recreated {
            destination: route.destination,
            nexthop: route.nexthop,
            server,
            node,
            removed_at: one.at,
            back_since: known.map_or(now, |known| known.back_since),
            times: one.times,
        });
    }
    recreated
}

/// The Node and server for which the route may have been re-created: the Node that has the destination and its server, or the server
/// whose port has the next hop.
fn claimant(snapshot: &Snapshot, route: &Route) -> (Option<String>, Option<String>) {
    let Some(meaning) = route.meaning() else { return (None, None) };
    let nodes = snapshot.nodes.as_deref().unwrap_or_default();
    let node = nodes.iter().find(|node| node.pod_cidrs.contains(&meaning.destination));
    let held = snapshot.ports.get(&meaning.nexthop).into_iter().flatten();
    let server = held.filter_map(|holder| holder.server.clone()).next();
    (node.map(|node| node.name.clone()), server.or_else(|| node.and_then(|node| node.server.clone())))
}

/// The routes that are orphaned for long enough and in enough reconciliations, in the snapshot's order.
pub(super) fn confirmed(
    policy: &Policy,
    classified: &[ClassifiedRoute],
    history: &History,
    now: Timestamp,
) -> Vec<Removal> {
    let known: BTreeMap<Route, &Candidate> =
        history.candidates.iter().map(|one| (candidate_route(one), one)).collect();
    let min_age = SignedDuration::try_from(policy.safety.min_age.duration()).unwrap_or(SignedDuration::MAX);
    let ready = |one: &ClassifiedRoute| {
        let RouteClass::Orphan(orphaned) = &one.class else { return None };
        let known = known.get(&one.route)?;
        let ready = known.observations >= policy.safety.confirmations
            && now.duration_since(known.first_seen) >= min_age;
        ready.then(|| Removal {
            route: one.route.clone(),
            reason: orphaned.clone(),
            first_seen: known.first_seen,
            observations: known.observations,
        })
    };
    classified.iter().filter_map(ready).collect()
}

fn candidate_route(one: &Candidate) -> Route {
    Route::new(&one.destination, &one.nexthop)
}

fn removed_route(one: &Removed) -> Route {
    Route::new(&one.destination, &one.nexthop)
}

fn recreated_route(one: &Recreated) -> Route {
    Route::new(&one.destination, &one.nexthop)
}
