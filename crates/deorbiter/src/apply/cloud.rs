//! Deletes in OpenStack, by recorded ID. Repeatable: the client takes "there is no such thing" for done.

use common::api::deorbit::Kind;
use common::cloud::openstack::{self as api, Cloud};

use crate::error::Error;
use crate::observe::snapshot::Route;

/// Deletes one thing. A load balancer goes with its listeners and pools; a volume never with its snapshots, which may be
/// somebody else's.
///
/// # Errors
/// [`Error::Cloud`] with the service's answer.
pub async fn delete(cloud: &Cloud, kind: Kind, id: &str) -> Result<(), Error> {
    let deleted = match kind {
        Kind::Volume => cloud.delete_volume(id, false).await,
        Kind::Snapshot => cloud.delete_snapshot(id).await,
        Kind::LoadBalancer => cloud.delete_load_balancer(id, true).await,
        Kind::FloatingIP => cloud.delete_floating_ip(id).await,
        Kind::SecurityGroup => cloud.delete_security_group(id).await,
    };
    deleted.map_err(|cause| Error::Cloud { what: format!("delete the {kind} {id}"), cause })
}

/// Removes exactly these routes.
///
/// # Errors
/// [`Error::Cloud`] with Neutron's answer.
pub async fn remove_routes(cloud: &Cloud, router: &str, routes: &[Route]) -> Result<(), Error> {
    let routes: Vec<api::Route> = routes
        .iter()
        .map(|route| api::Route { destination: route.destination.clone(), nexthop: route.nexthop.clone() })
        .collect();
    let removed = cloud.remove_extraroutes(router, &routes, None).await;
    removed
        .map(drop)
        .map_err(|cause| Error::Cloud { what: format!("remove routes of router {router}"), cause })
}
