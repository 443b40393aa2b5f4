//! The recheck of each route just before its removal.
//!
//! The router, every port of its networks and the Nodes are read again. Nova is queried for each server that its list did not have
//! and whose port has a next hop or may use it. Then the routes are classified again. Neutron cannot filter ports by an address
//! inside an address pair, so all ports are read, once for all removals of a reconciliation.
//!
//! A race remains: a next hop can appear between the recheck and the removal, which are separated only by the requests to Nova, the
//! check of the policy, and another read of the router where Neutron has no revisions. A port does not change the revision of a
//! router.

use super::RemovalError;
use crate::cloud::openstack::{Cloud, Router};
use crate::routes::observe::{self, NodeSource};
use crate::routes::plan::classify::classify;
use crate::routes::plan::{Removal, RouteClass};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::Snapshot;

/// Result of the recheck.
#[derive(Debug, Default)]
pub(super) struct Rechecked {
    /// Still there and still orphaned.
    pub orphaned: Vec<Route>,
    /// Already gone.
    pub gone: Vec<Route>,
    /// No longer orphaned, with the reason.
    pub skipped: Vec<(Route, String)>,
    /// The state that was read; empty if none of the routes exists any more.
    pub seen: Snapshot,
}

/// Classifies the removals again with the router as it was just read and its current networks and ports. `before` is the state of
/// the decision.
///
/// # Errors
/// Whatever could not be read completely. Nothing may be removed then.
pub(super) async fn all(
    cloud: &Cloud,
    policy: &Policy,
    before: &Snapshot,
    router: &Router,
    removals: &[Removal],
    nodes: Option<&NodeSource>,
) -> Result<Rechecked, RemovalError> {
    let there = |route: &Route| router.routes.iter().any(|one| Route::from(one.clone()) == *route);
    let (there, gone): (Vec<_>, Vec<_>) = removals.iter().map(|one| one.route.clone()).partition(there);
    let mut rechecked = Rechecked { gone, ..Rechecked::default() };
    if there.is_empty() {
        return Ok(rechecked);
    }
    let mut fresh = observe::neighbourhood(cloud, router).await.map_err(RemovalError::Observe)?;
    if let Some(servers) = &before.servers {
        // Nova's list is as old as the decision: a server that it does not have may be new.
        let missing = observe::missing(cloud, policy, &fresh, &there, servers).await;
        let mut servers = servers.clone();
        servers.ids.extend(missing.map_err(RemovalError::Observe)?);
        fresh.servers = Some(servers);
    }
    if let Some(nodes) = nodes {
        fresh.nodes = Some(nodes.list().await.map_err(RemovalError::Nodes)?);
    }
    let classified = classify(policy, &fresh);
    for route in there {
        let class = classified.iter().find(|one| one.route == route).map(|one| &one.class);
        let why = match class {
            Some(RouteClass::Orphan(_)) => None,
            Some(RouteClass::Valid(who)) => Some(format!("{who} has the next hop now")),
            Some(RouteClass::Foreign) | None => Some("it is not ours to judge any more".to_owned()),
            Some(other) => Some(other.why()),
        };
        match why {
            None => rechecked.orphaned.push(route),
            Some(why) => rechecked.skipped.push((route, why)),
        }
    }
    rechecked.seen = fresh;
    Ok(rechecked)
}
