//! Deletes in OpenStack, by recorded ID. Idempotent: the client takes 404 for success.

use common::api::deorbit::{Kind, Routes};
use common::cloud::openstack::Cloud;
use common::routes::{self as router, Route};

use crate::error::Error;
use crate::{observe, routes};

/// Deletes one resource. A load balancer is deleted with its listeners and pools; a volume never with its snapshots, which may
/// belong to others. A volume or snapshot is read once more: it may have got the metadata that keeps it since it was decided.
///
/// # Errors
/// [`Error::Cloud`] with the service's response; [`Error::Changed`] where it is kept by now.
pub async fn delete(cloud: &Cloud, kind: Kind, id: &str) -> Result<(), Error> {
    let what = || format!("delete the {kind} {id}");
    let failed = |cause| Error::Cloud { what: what(), cause };
    let metadata = match kind {
        Kind::Volume => cloud.volume(id).await.map_err(failed)?.map(|one| one.metadata),
        Kind::Snapshot => cloud.snapshot(id).await.map_err(failed)?.map(|one| one.metadata),
        _ => None,
    };
    if metadata.is_some_and(|metadata| observe::cloud::is_kept(&metadata)) {
        return Err(Error::Changed { what: what() });
    }
    let deleted = match kind {
        Kind::Volume => cloud.delete_volume(id, false).await,
        Kind::Snapshot => cloud.delete_snapshot(id).await,
        Kind::LoadBalancer => cloud.delete_load_balancer(id, true).await,
        Kind::FloatingIP => cloud.delete_floating_ip(id).await,
        Kind::SecurityGroup => cloud.delete_security_group(id).await,
    };
    deleted.map_err(failed)
}

/// Deletes the application credential of the login.
///
/// # Errors
/// [`Error::Cloud`] with Keystone's response.
pub async fn delete_credential(cloud: &Cloud, user: &str, id: &str) -> Result<(), Error> {
    let what = format!("delete the application credential {id}");
    cloud.delete_application_credential(user, id).await.map_err(|cause| Error::Cloud { what, cause })
}

/// Removes the recorded routes, and those of the stale ones that are still stale.
///
/// # Errors
/// [`Error::Routes`] with the reason.
pub async fn remove_routes(
    cloud: &Cloud,
    asked: &Routes,
    recorded: &[Route],
    stale: &[Route],
) -> Result<(), Error> {
    let failed = |why| Error::Routes { router: asked.router_id.clone(), why };
    if !recorded.is_empty() {
        let removed = router::remove(cloud, &asked.router_id, recorded).await;
        removed.map_err(|error| failed(error.to_string()))?;
    }
    if stale.is_empty() {
        return Ok(());
    }
    routes::remove(cloud, asked, stale).await.map_err(failed)
}
