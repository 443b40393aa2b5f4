//! The decision about a [`Snapshot`]. Pure: no IO, no clock, no client.

pub mod classify;
pub mod confirm;
pub mod threshold;

use jiff::Timestamp;

pub use self::classify::{ClassifiedRoute, Covered, CoveringPort, OrphanReason, RouteClass};
pub use self::confirm::History;
pub use self::threshold::Excess;
use super::policy::Policy;
use super::route::Route;
use super::snapshot::Snapshot;
use crate::api::routegc::{Contested, Counts, Quota};

/// What follows from what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Every route of the router, in the snapshot's order.
    pub classified: Vec<ClassifiedRoute>,
    /// How many of each.
    pub counts: Counts,
    /// How full the router is.
    pub quota: Quota,
    /// What the next pass must know.
    pub history: History,
    /// Routes that may be removed now: dead, confirmed, old enough, not contested, within the threshold.
    pub removals: Vec<Removal>,
    /// Routes that would have been, had they not been so many. Then `removals` is empty.
    pub excess: Option<Excess>,
    /// Routes that are confirmed but are left alone, because somebody keeps putting them back.
    pub contested: Vec<Contested>,
    /// Routes of whatever destination whose next hop is on no subnet that the router is attached to: Neutron refuses every
    /// change of a router with one, by whomever. None where a subnet is hidden, such as the gateway's.
    pub unconnected: Vec<Route>,
    /// Routes whose next hops ports may use that may use more addresses than can be seen: only a person can say whether they live.
    pub covered: Option<Covered>,
}

/// A route that may be removed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Which.
    pub route: Route,
    /// Why.
    pub reason: OrphanReason,
    /// Since when it was seen to be dead.
    pub first_seen: Timestamp,
    /// In how many passes.
    pub observations: u32,
}

/// Decides what shall become of a router's routes.
///
/// `allow` is the hash of a list that a person let through the threshold ([`Excess::hash`]).
///
/// Guarantees: `removals` holds no route that is foreign, whose next hop lives or cannot be seen, or that was not found dead in
/// `confirmations` passes in a row over `min_age`; a Node's own route never counts as dead; the plan of the router without its
/// removals has no removals.
#[must_use]
pub fn plan(
    policy: &Policy,
    snapshot: &Snapshot,
    history: &History,
    allow: Option<&str>,
    now: Timestamp,
) -> Decision {
    let classified = classify::classify(policy, snapshot);
    let history = confirm::update(policy, snapshot, &classified, history, now);
    let ready = confirm::confirmed(policy, &classified, &history, now);
    let (removals, excess) = threshold::within(policy, snapshot, &classified, ready, allow);
    let counts = classify::count(&classified, &history.contested);
    Decision {
        quota: Quota { routes: small(snapshot.routes.len()), limit: snapshot.limit },
        contested: history.contested.clone(),
        unconnected: classify::unconnected(snapshot),
        covered: classify::covered(&classified),
        classified,
        counts,
        history,
        removals,
        excess,
    }
}

impl Decision {
    /// Routes that are dead, whether confirmed or not, in the snapshot's order, without those that somebody keeps putting back.
    pub fn orphans(&self) -> impl Iterator<Item = (&Route, &OrphanReason)> {
        self.classified.iter().filter_map(|classified| match &classified.class {
            RouteClass::Orphan(orphaned) => Some((&classified.route, orphaned)),
            _ => None,
        })
    }
}

/// Counts in the API are 32 bits wide; no router has four billion routes.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
