//! The presence of one recorded resource in OpenStack. Everything that depends on whether a resource is gone asks here.

use common::api::deorbit::{Kind, Provider};
use common::cloud::openstack::is_id;

use super::action::ObjectKind;
use super::sharing;
use crate::names;
use crate::observe::snapshot::{Cloud, Run, Unread};
use crate::record::{Proof, Recorded};

/// Whether a resource exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// OpenStack shows it, in this state.
    Present(String),
    /// It is gone, and this shows it.
    Absent(AbsentBy),
    /// Neither is known, for this reason.
    Unknown(String),
}

/// The proof that a resource is gone. In each case the login is proven for its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentBy {
    /// OpenStack does not have its ID, or the ID serves only others now.
    Id,
    /// Nothing has the name that only it can have.
    Name,
}

/// The message about a login that verifies nothing.
pub const NOT_PROVEN: &str =
    "OpenStack has shown nothing of this cluster: is the login for its project and region?";

/// The presence of a record.
#[must_use]
pub fn presence(
    run: &Run,
    cloud: Option<&Result<Cloud, Unread>>,
    proof: &Proof,
    record: &Recorded,
) -> Presence {
    let unknown = |why: &str| Presence::Unknown(why.to_owned());
    let cloud = match cloud {
        None if run.spec.provider == Provider::Any => return unknown("no cloud is read"),
        None => return unknown("OpenStack is not read"),
        Some(Err(why)) => return Presence::Unknown(format!("OpenStack cannot be read: {why}")),
        Some(Ok(cloud)) => cloud,
    };
    let cluster = run.spec.cluster_name.as_str();
    if let Some(state) = state_of(record, cluster, cloud) {
        return Presence::Present(state);
    }
    // It serves others, and has neither a name nor a tag of the Service.
    let is_ingress = record.object == Some(ObjectKind::Ingress);
    if record.kind == Kind::LoadBalancer
        && record.shared
        && record.tag.is_none()
        && !is_ingress
        && cloud.shows(record)
    {
        return unknown("the load balancer is shared, and does not name the Service");
    }
    if !proof.covers(record.kind) {
        return unknown(NOT_PROVEN);
    }
    // It was not requested: any client can write the annotation of a Service and the handle of a PersistentVolume.
    if record.id.as_deref().is_some_and(|id| !is_id(id)) {
        return unknown("its ID cannot be one of OpenStack");
    }
    // A VolumeSnapshot may also be a backup (a class of `type: backup`), which is not among Cinder's snapshots.
    if record.kind == Kind::Snapshot && !record.seen {
        return unknown("OpenStack has shown no such snapshot: is it a backup?");
    }
    match (&record.id, record.kind) {
        (Some(_), _) => Presence::Absent(AbsentBy::Id),
        (None, Kind::LoadBalancer) => {
            let name = match is_ingress {
                true => names::ingress_load_balancer(cluster, &record.namespace, &record.name),
                false => names::service_tag(cluster, &record.namespace, &record.name),
            };
            // Of two with the name, either may be meant.
            let searched =
                names::is_distinctive(cluster) && cloud.load_balancers.values().all(|seen| seen.name != name);
            match searched {
                true => Presence::Absent(AbsentBy::Name),
                false => unknown("its load balancer has no known ID, and no name that identifies it"),
            }
        }
        // Both drivers name what they create after the UID of its object.
        (None, _) => Presence::Absent(AbsentBy::Name),
    }
}

/// Its state in OpenStack; None where OpenStack does not show it, or it serves only others now. `cluster`: the run's clusterName.
fn state_of(record: &Recorded, cluster: &str, cloud: &Cloud) -> Option<String> {
    let id = record.id.as_deref()?;
    match record.kind {
        Kind::Volume | Kind::Snapshot => cloud.block_storage(record.kind, id).map(|seen| seen.status.clone()),
        Kind::LoadBalancer => {
            let seen = cloud.load_balancers.get(id)?;
            let tagged = record.tag.as_ref().is_some_and(|tag| seen.tags.contains(tag));
            // It has the name of one Ingress, and others have it only by accident: the run waits for it, also if it is shared.
            if !record.shared || record.object == Some(ObjectKind::Ingress) {
                Some(seen.provisioning_status.clone())
            } else if tagged {
                Some("shared, and has our tag".to_owned())
            } else {
                let other = sharing::other_cluster(cluster, record, seen)?;
                Some(format!(
                    "{}, and of a Service of this name in a cluster {other}: is spec.clusterName what the cloud controller manager has as --cluster-name?",
                    seen.provisioning_status
                ))
            }
        }
        Kind::FloatingIP => {
            cloud.floating_ips.get(id).map(|seen| format!("allocated ({})", seen.floating_ip_address))
        }
        Kind::SecurityGroup => cloud.security_groups.get(id).map(|_| "there".to_owned()),
    }
}
