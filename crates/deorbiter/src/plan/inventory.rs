//! The records: what was found is written down before anything is deleted, and never forgotten.

use std::collections::HashMap;

use common::api::deorbit::{Kind, Recorded};

use super::found::Found;
use crate::names;
use crate::observe::snapshot::Cloud;

/// The records with what was found now. Nothing is ever taken out; an object that had no ID yet may get one.
#[must_use]
pub fn merge(records: &[Recorded], found: &[Found]) -> Vec<Recorded> {
    let mut merged = records.to_vec();
    let mut by_id = HashMap::<(Kind, String), usize>::new();
    let mut by_uid = HashMap::<(Kind, String), usize>::new();
    for (place, record) in merged.iter().enumerate() {
        index(&mut by_id, &mut by_uid, record, place);
    }
    for Found { record: new, .. } in found {
        let along = matches!(new.kind, Kind::FloatingIP | Kind::SecurityGroup);
        let same_id = new.id.as_ref().and_then(|id| by_id.get(&(new.kind, id.clone())).copied());
        let same_object = by_uid.get(&(new.kind, new.uid.clone())).copied().filter(|_| !along);
        // Several Services may share one load balancer: each has its own record.
        let place = match new.kind {
            Kind::LoadBalancer => same_object,
            _ => same_id.or(same_object),
        };
        let old = place.and_then(|place| merged.get_mut(place));
        match old {
            Some(old) if old.id.is_none() || new.id.is_none() || old.id == new.id => update(old, new),
            _ => {
                index(&mut by_id, &mut by_uid, new, merged.len());
                merged.push(new.clone());
            }
        }
    }
    merged
}

fn index(
    by_id: &mut HashMap<(Kind, String), usize>,
    by_uid: &mut HashMap<(Kind, String), usize>,
    record: &Recorded,
    place: usize,
) {
    if let Some(id) = &record.id {
        by_id.insert((record.kind, id.clone()), place);
    }
    if !record.uid.is_empty() {
        by_uid.insert((record.kind, record.uid.clone()), place);
    }
}

/// What is seen now counts, but what was known of a load balancer that is gone stays known.
fn update(old: &mut Recorded, new: &Recorded) {
    old.id = old.id.take().or_else(|| new.id.clone());
    old.seen |= new.seen;
    old.kept.clone_from(&new.kept);
    if new.tag.is_some() || new.shared {
        old.tag.clone_from(&new.tag);
        old.shared = new.shared;
    }
}

/// Gives records their IDs whose object was gone before it could name one: both drivers name what they make after the UID, and
/// the cloud controller manager after cluster and Service.
pub fn name_late(records: &mut [Recorded], cluster: &str, cloud: &Cloud) {
    for record in records.iter_mut().filter(|record| record.id.is_none()) {
        record.id = late_id(record, cluster, cloud);
    }
}

/// Notes what OpenStack shows.
pub fn note_seen(records: &mut [Recorded], cloud: &Cloud) {
    for record in records.iter_mut().filter(|record| !record.seen) {
        record.seen = record.id.as_deref().is_some_and(|id| match record.kind {
            Kind::Volume => cloud.volumes.contains_key(id),
            Kind::Snapshot => cloud.snapshots.contains_key(id),
            Kind::LoadBalancer => cloud.load_balancers.contains_key(id),
            Kind::FloatingIP => cloud.floating_ips.contains_key(id),
            Kind::SecurityGroup => cloud.security_groups.contains_key(id),
        });
    }
}

fn late_id(record: &Recorded, cluster: &str, cloud: &Cloud) -> Option<String> {
    let by_uid = |prefix: &str| format!("{prefix}-{}", record.uid);
    match (record.kind, record.object.as_deref()) {
        (Kind::LoadBalancer, Some("Service")) => {
            let legacy = names::legacy_load_balancer(&record.uid);
            let name = names::service_tag(cluster, &record.namespace, &record.name);
            let is_it =
                |name_seen: &str| name_seen == legacy || (names::is_telling(cluster) && name_seen == name);
            let mut found = cloud.load_balancers.iter().filter(|(_, seen)| is_it(&seen.name));
            found.next().filter(|_| found.next().is_none()).map(|(id, _)| id.clone())
        }
        (Kind::Volume, Some("PersistentVolumeClaim")) => {
            let name = by_uid("pvc");
            cloud.volumes.iter().find(|(_, seen)| seen.name == name).map(|(id, _)| id.clone())
        }
        (Kind::Snapshot, Some("VolumeSnapshot")) => {
            let name = by_uid("snapshot");
            cloud.snapshots.iter().find(|(_, seen)| seen.name == name).map(|(id, _)| id.clone())
        }
        _ => None,
    }
}
