//! The only reader: reads a router, its networks, ports and servers into a [`Snapshot`], completely or not at all.

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
use super::snapshot::{Node, RouteLimit, Snapshot};
use crate::cloud::openstack::{self, Cloud, Router};

/// Timeout of the quota request. It reads one row of a table, and a reconciliation must not wait for a number that is only shown.
const QUOTA: Duration = Duration::from_secs(12);

/// Lists the cluster's Nodes, with a request each time. An error is a message for the user.
#[derive(Clone)]
pub struct NodeSource(Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<Node>, String>> + Send + Sync>);

impl NodeSource {
    /// From a function that lists all Nodes.
    pub fn new(
        list: impl Fn() -> BoxFuture<'static, Result<Vec<Node>, String>> + Send + Sync + 'static,
    ) -> Self {
        NodeSource(Arc::new(list))
    }

    /// Lists all Nodes.
    ///
    /// # Errors
    /// The message of the function.
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

/// Reads a router and its networks, ports and servers. If `policy` applies to none of its routes, only the router and the quota
/// are read: two requests.
///
/// The router is read first. A next hop that existed when the route was read and is not found afterwards is gone.
///
/// # Errors
/// Whatever could not be read completely. Nothing may be decided then.
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

/// A router without its networks and ports.
fn alone(router: &Router) -> Snapshot {
    let mut routes: Vec<Route> = router.routes.iter().cloned().map(Route::from).collect();
    // Neutron may return another order each time, and a message in another order would be another message.
    routes.sort_by_cached_key(|route| (route.meaning(), route.clone()));
    Snapshot { router: router.id.clone(), routes, hidden: true, ..Snapshot::default() }
}

/// Reads a router's networks and ports; neither Nova nor Nodes.
///
/// # Errors
/// Whatever could not be read completely, and a router without any machine.
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

/// How many routes a router of the project may have. The number is only shown, so an error is not one of the reconciliation.
async fn limit(cloud: &Cloud) -> RouteLimit {
    match tokio::time::timeout(QUOTA, cloud.quota_router_route()).await {
        Ok(Ok(Some(limit))) if limit >= 0 => RouteLimit::Routes(limit),
        Ok(Ok(_)) => RouteLimit::NotReported,
        Ok(Err(error)) => {
            tracing::debug!(%error, "the quota of routes cannot be read");
            RouteLimit::Unknown
        }
        Err(_) => RouteLimit::Unknown,
    }
}

/// Whether the route is in a pod network, even if it is not valid.
fn concerns(policy: &Policy, route: &Route) -> bool {
    route.destination.parse::<ipnet::IpNet>().is_ok_and(|destination| policy.applies_to(&destination.trunc()))
}
