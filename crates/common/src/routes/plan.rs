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
use crate::api::routegc::{Counts, Quota, Recreated};

/// The result of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Every route of the router, in the snapshot's order.
    pub classified: Vec<ClassifiedRoute>,
    /// Number of routes of each class.
    pub counts: Counts,
    /// Routes of the router and their limit.
    pub quota: Quota,
    /// The state for the next reconciliation.
    pub history: History,
    /// Routes to remove now: orphaned, confirmed, old enough, not recreated, within the threshold.
    pub removals: Vec<Removal>,
    /// Routes that an earlier removal has removed whose result was not recorded.
    pub carried_out: Vec<Route>,
    /// Routes that are not removed because they exceed the threshold. Then `removals` is empty.
    pub excess: Option<Excess>,
    /// Orphaned routes that are not removed because another client re-creates them.
    pub recreated: Vec<Recreated>,
    /// Routes of any destination whose next hop is on no subnet that the router is attached to: Neutron refuses every change of such
    /// a router. Empty if a subnet is hidden, such as the gateway's.
    pub unconnected: Vec<Route>,
    /// Routes whose next hops may be in use by ports that may use more addresses than are visible: only the user can decide.
    pub covered: Option<Covered>,
}

/// A route to remove now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The route.
    pub route: Route,
    /// Why it is orphaned.
    pub reason: OrphanReason,
    /// Since when it is known to be orphaned.
    pub first_seen: Timestamp,
    /// In how many reconciliations.
    pub observations: u32,
}

/// Decides which routes of a router are removed.
///
/// `allow` is the hash of a list that the user allowed to exceed the threshold ([`Excess::hash`]).
///
/// Guarantees: `removals` holds no route that is foreign, whose next hop exists or is not visible, or that was not found orphaned in
/// `confirmations` consecutive reconciliations over `min_age`. A Node's own route is never orphaned. The plan of the router without
/// its removals has no removals.
#[must_use]
pub fn plan(
    policy: &Policy,
    snapshot: &Snapshot,
    history: &History,
    allow: Option<&str>,
    now: Timestamp,
) -> Decision {
    let classified = classify::classify(policy, snapshot);
    let carried_out = confirm::carried_out(snapshot, history);
    let history = confirm::update(policy, snapshot, &classified, history, now);
    let ready = confirm::confirmed(policy, &classified, &history, now);
    let (removals, excess) = threshold::within(policy, snapshot, &classified, ready, allow);
    let counts = classify::count(&classified, &history.recreated);
    Decision {
        quota: Quota { routes: small(snapshot.routes.len()), limit: history.limit },
        recreated: history.recreated.clone(),
        unconnected: classify::unconnected(snapshot),
        covered: classify::covered(&classified),
        classified,
        counts,
        history,
        removals,
        carried_out,
        excess,
    }
}

/// Counts in the API have 32 bits; no router has four billion routes.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
