//! Deletes in OpenStack, by recorded ID: what the cluster's own controllers have not removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::api::deorbit::Kind;
use jiff::Timestamp;

use super::action::{Act, ObjectKind};
use super::outlook::{Left, is_over};
use super::presence::Presence;
use super::reason::Reason;
use super::{discovery, sharing};
use crate::names;
use crate::observe::snapshot::{Cloud, Meta, Run, Snapshot};
use crate::record::Recorded;

/// States in which Cinder accepts a DELETE (`volume/api.py`). In all others it responds 400, or another operation runs. One in
/// `error_deleting` needs the operator of the cloud.
const DELETABLE: [&str; 5] = ["available", "error", "error_managing", "error_restoring", "error_extending"];

/// The steps: for what was recorded before, and what no object of the cluster holds any more.
#[must_use]
pub fn steps(
    snapshot: &Snapshot,
    phase_since: Option<Timestamp>,
    cloud: &Cloud,
    left: &[Left<'_>],
    now: Timestamp,
) -> Vec<(Act, Reason)> {
    let (run, records) = (&snapshot.run, snapshot.run.records.as_slice());
    let stored: BTreeSet<(Kind, &str)> =
        records.iter().filter_map(|record| Some((record.kind, record.id.as_deref()?))).collect();
    let early = is_early(run, phase_since, now);
    let mut steps = Vec::new();
    let mut done = BTreeSet::new();
    // Deleting a volume with snapshots, or the security group of a load balancer's port, is refused: what blocks others goes first.
    for kind in [Kind::Snapshot, Kind::Volume, Kind::LoadBalancer, Kind::FloatingIP, Kind::SecurityGroup] {
        let ours = |one: &&Left<'_>| !(one.untouched || one.reported || one.unproven);
        for one in left.iter().filter(|one| one.record.kind == kind).filter(ours) {
            let (Some(id), Presence::Present(state)) = (one.record.id.as_deref(), &one.presence) else {
                continue;
            };
            if !stored.contains(&(kind, id)) || !done.insert((kind, id.to_owned())) {
                continue;
            }
            if snapshot.foreign(one.record).is_some()
                || (early && one.record.object == Some(ObjectKind::Ingress))
            {
                continue;
            }
            if let Some(name) = may_go(run, records, cloud, one.record, id) {
                let reason = match one.record.object {
                    Some(_) => Reason::LeftInCloud { state: state.clone() },
                    None => Reason::Unreferenced,
                };
                steps.push((Act::DeleteInCloud { kind, id: id.to_owned(), name }, reason));
            }
        }
    }
    steps
}

/// Until when load balancers of Ingresses are left to octavia-ingress-controller. An Ingress is gone at once, and nothing shows
/// whether its controller runs. That one removes security groups from the Nodes' ports before it deletes a load balancer, one Ingress
/// after another, and not later.
fn is_early(run: &Run, phase_since: Option<Timestamp>, now: Timestamp) -> bool {
    let all = run.records.iter().filter(|record| {
        record.kind == Kind::LoadBalancer
            && record.object == Some(ObjectKind::Ingress)
            && record.kept.is_none()
    });
    let timeouts = &run.spec.timeouts;
    let each = timeouts.load_balancer_grace.duration();
    let grace = each.saturating_mul(u32::try_from(all.count()).unwrap_or(u32::MAX));
    let grace = grace.min(timeouts.per_object.duration() / 2);
    !phase_since.is_some_and(|since| is_over(since, grace, now))
}

/// Its name, if it may be deleted as it is now.
fn may_go(
    run: &Run,
    records: &[Arc<Recorded>],
    cloud: &Cloud,
    record: &Recorded,
    id: &str,
) -> Option<String> {
    // A floating IP or security group of another cluster's load balancer belongs to that cluster, also after the load
    // balancer is gone.
    let by_another =
        || record.object == Some(ObjectKind::Ingress) && balancers_of(records, record).any(|one| one.shared);
    match record.kind {
        Kind::Volume | Kind::Snapshot => {
            let seen = cloud.block_storage(record.kind, id)?;
            (!seen.keep && DELETABLE.contains(&seen.status.as_str())).then(|| seen.name.clone())
        }
        Kind::LoadBalancer => {
            let seen = cloud.load_balancers.get(id)?;
            let ready = matches!(seen.provisioning_status.as_str(), "ACTIVE" | "ERROR");
            if record.object == Some(ObjectKind::Ingress) {
                // Its Ingress had its address: that was checked when it was observed.
                let name =
                    names::ingress_load_balancer(&run.spec.cluster_name, &record.namespace, &record.name);
                let ours = record.seen && !record.shared && seen.name == name && seen.tags.is_empty();
                return (ready && ours).then(|| seen.name.clone());
            }
            let service = seen.name.starts_with(names::SERVICE_PREFIX);
            let users: Vec<Meta> = records
                .iter()
                .filter(|one| {
                    one.kind == Kind::LoadBalancer && one.id.as_deref() == Some(id) && one.kept.is_none()
                })
                .map(|one| Meta {
                    namespace: one.namespace.clone(),
                    name: one.name.clone(),
                    uid: one.uid.clone(),
                    ..Meta::default()
                })
                .collect();
            let users: Vec<&Meta> = users.iter().collect();
            let found_by_name = record.object.is_none() && discovery::is_ours(&run.spec.cluster_name, seen);
            // Clusters with the same name are distinguished by the Service's address: that was checked when it was observed.
            let known = names::is_distinctive(&run.spec.cluster_name) || record.seen;
            let alone = || sharing::is_only_ours(&run.spec.cluster_name, &users, seen);
            let ours = found_by_name || (!record.shared && known && alone());
            (ready && service && ours).then(|| seen.name.clone())
        }
        Kind::FloatingIP => {
            let seen = cloud.floating_ips.get(id)?;
            let made = [names::FLOATING_IP_DESCRIPTION, names::INGRESS_FLOATING_IP_DESCRIPTION]
                .iter()
                .any(|description| seen.description.starts_with(description));
            // A floating IP that is associated with another port now is in use.
            let free = seen.port_id.is_none() && !serves(cloud, records, record);
            (made && free && !by_another()).then(|| seen.floating_ip_address.clone())
        }
        Kind::SecurityGroup => {
            let seen = cloud.security_groups.get(id)?;
            (!serves(cloud, records, record) && !by_another()).then(|| seen.name.clone())
        }
    }
}

/// Whether the load balancer that it belongs to still exists.
fn serves(cloud: &Cloud, records: &[Arc<Recorded>], record: &Recorded) -> bool {
    balancers_of(records, record)
        .filter_map(|one| one.id.as_ref())
        .any(|id| cloud.load_balancers.contains_key(id))
}

/// The load balancers of a record's object.
fn balancers_of<'a>(
    records: &'a [Arc<Recorded>],
    record: &Recorded,
) -> impl Iterator<Item = &'a Arc<Recorded>> {
    let of =
        |one: &&Arc<Recorded>| one.kind == Kind::LoadBalancer && !one.uid.is_empty() && one.uid == record.uid;
    records.iter().filter(of)
}
