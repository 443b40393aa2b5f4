//! Deletes in OpenStack, by recorded ID. Idempotent: the client takes 404 for success.

use common::api::deorbit::{Kind, Routes};
use common::cloud::openstack::Cloud;
use common::routes::Route;

use crate::error::Error;
use crate::routes;

/// Deletes one thing. A load balancer goes with its listeners and pools; a volume never with its snapshots, which may
/// belong to others.
///
/// # Errors
/// [`Error::Cloud`] with the service's response.
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

/// Removes those of these routes that are still stale.
///
/// # Errors
/// [`Error::Routes`] with the reason.
pub async fn remove_routes(cloud: &Cloud, asked: &Routes, stale: &[Route]) -> Result<(), Error> {
    let router = asked.router_id.clone();
    routes::remove(cloud, asked, stale).await.map_err(|why| Error::Routes { router, why })
}
