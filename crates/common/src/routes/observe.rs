//! The only reader: a router and its neighbourhood become a [`Snapshot`], whole or not at all.

mod error;
mod inventory;
mod servers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub use self::error::ObserveError;
pub(super) use self::servers::missing;
use super::policy::Policy;
use super::route::Route;
use super::snapshot::{Node, Snapshot};
use crate::cloud::openstack::{self, Cloud, Router};

/// Much longer than it takes, for the answer is one row of a table, and little of what a pass may take.
const QUOTA: Duration = Duration::from_secs(12);

/// Where the cluster's Nodes are read from, each time anew; an error is a text for a person.
#[derive(Clone)]
pub struct NodeSource(Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<Node>, String>> + Send + Sync>);

impl NodeSource {
    /// Of a function that lists all Nodes.
    pub fn new(
        list: impl Fn() -> BoxFuture<'static, Result<Vec<Node>, String>> + Send + Sync + 'static,
    ) -> Self {
        NodeSource(Arc::new(list))
    }

    /// All Nodes, now.
    ///
    /// # Errors
    /// Why not, for a person.
    pub async fn list(&self) -> Result<Vec<Node>, String> {
        (self.0)().await
    }
}

impl fmt::Debug for NodeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeSource")
    }
}

impl From<openstack::Route> for Route {
    fn from(route: openstack::Route) -> Route {
        Route { destination: route.destination, nexthop: route.nexthop }
    }
}

impl From<&Route> for openstack::Route {
    fn from(route: &Route) -> openstack::Route {
        openstack::Route { destination: route.destination.clone(), nexthop: route.nexthop.clone() }
    }
}

/// Looks at a router and its neighbourhood. Where none of its routes is judged by `policy`, the neighbourhood is not asked for:
/// two requests are then all that a pass costs.
///
/// The router is read first. Whoever had a route then was there then; if it is not there afterwards, it is gone.
///
/// # Errors
/// Whatever could not be seen whole: then nothing is known, and nothing may be decided.
pub async fn observe(
    cloud: &Cloud,
    policy: &Policy,
    router: &str,
    nodes: Option<&NodeSource>,
) -> Result<Snapshot, ObserveError> {
    let read = cloud.router(router).await.map_err(ObserveError::router)?;
    let limit = limit(cloud).await;
    let alone = alone(&read);
    if !alone.routes.iter().any(|route| concerns(policy, route)) {
        return Ok(Snapshot { limit, ..alone });
    }
    let mut snapshot = Snapshot { limit, ..neighbourhood(cloud, &read).await? };
    snapshot.servers = servers::list_servers(cloud, policy, &snapshot).await?;
    if let Some(nodes) = nodes {
        snapshot.nodes = Some(nodes.list().await.map_err(ObserveError::Nodes)?);
    }
    Ok(snapshot)
}

/// A router, and nothing of what is around it.
fn alone(router: &Router) -> Snapshot {
    let mut routes: Vec<Route> = router.routes.iter().cloned().map(Route::from).collect();
    // Neutron's order may be another one each time, and a sentence in another order is one to write anew.
    routes.sort_by_cached_key(|route| (route.meaning(), route.clone()));
    Snapshot { router: router.id.clone(), routes, hidden: true, ..Snapshot::default() }
}

/// A router and the networks and ports around it, as they are now; neither Nova nor Nodes.
///
/// # Errors
/// Whatever could not be seen whole, also if it is not one machine.
pub(super) async fn neighbourhood(cloud: &Cloud, router: &Router) -> Result<Snapshot, ObserveError> {
    let mut snapshot = alone(router);
    let gateway = router.external_gateway_info.as_ref();
    snapshot.hidden = gateway.is_some_and(|gateway| !gateway.network_id.is_empty());
    inventory::fill(cloud, &mut snapshot).await?;
    if snapshot.machines == 0 {
        return Err(ObserveError::Empty { routes: snapshot.routes.len() });
    }
    Ok(snapshot)
}

/// How many routes the project may have on a router. Nothing depends on it but a number that is shown: where it cannot be read it
/// is not known, and nothing waits for it.
async fn limit(cloud: &Cloud) -> Option<i64> {
    match tokio::time::timeout(QUOTA, cloud.quota_router_route()).await {
        Ok(Ok(limit)) => limit.filter(|limit| *limit >= 0),
        Ok(Err(error)) => {
            tracing::debug!(%error, "how many routes the router may have is not known");
            None
        }
        Err(_) => None,
    }
}

/// Whether the route is in a pod network, even if it makes no sense.
fn concerns(policy: &Policy, route: &Route) -> bool {
    route.destination.parse::<ipnet::IpNet>().is_ok_and(|destination| policy.applies_to(&destination.trunc()))
}
