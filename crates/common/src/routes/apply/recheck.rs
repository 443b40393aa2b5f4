//! One more look at each route, just before it is removed.
//!
//! What is read anew: the router, every port of its networks, and the Nodes; Nova is asked for each server whose port has a next
//! hop, or may use it, and that its list did not have. Then the rules judge once more. Neutron cannot be asked for the ports whose
//! address pairs hold one address, so all ports are read: once for all removals of a pass, however many they are.
//!
//! What can still happen is that a next hop comes to life between this look and the removal, which is the next request but for
//! Nova's, the policy's, and the router's once more where Neutron has no lock: that is about the router, and no port changes its
//! revision.

use super::RemovalError;
use crate::cloud::openstack::{Cloud, Router};
use crate::routes::observe::{self, NodeSource};
use crate::routes::plan::classify::classify;
use crate::routes::plan::{Removal, RouteClass};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::Snapshot;

/// What the last look came to.
#[derive(Debug, Default)]
pub(super) struct Rechecked {
    /// Still there, and still dead.
    pub orphaned: Vec<Route>,
    /// Not there any more.
    pub gone: Vec<Route>,
    /// Not dead after all, and why.
    pub skipped: Vec<(Route, String)>,
    /// What was seen; empty where none of the routes is there any more.
    pub seen: Snapshot,
}

/// Looks at the router as it was just read, and at its neighbourhood as it is now. `before` is what the removals were decided on.
///
/// # Errors
/// Whatever could not be seen whole: then nothing may be removed.
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
        // Nova's list is as old as the decision: a server that it lacks may be a new one.
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
