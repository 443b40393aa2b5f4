//! The records: what was found is stored before anything is deleted, and never removed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use common::api::deorbit::{Kind, Recorded};

use super::action::ObjectKind;
use super::found::{self, Found};
use super::outlook;
use crate::names;
use crate::observe::snapshot::{Cloud, Cluster};

/// The message about a login that verifies nothing.
pub const SHOWS_NOTHING: &str =
    "OpenStack has shown nothing of this cluster: is the login for its project and region?";

/// The records with what was found now. None is ever removed; an object that had no ID yet may get one.
#[must_use]
pub fn merge(records: &[Arc<Recorded>], found: &[Found]) -> Vec<Arc<Recorded>> {
    let mut merged = records.to_vec();
    let (mut by_id, mut by_uid) = (Places::new(), Places::new());
    for (place, record) in records.iter().enumerate() {
        index(&mut by_id, &mut by_uid, record, place);
    }
    for Found { record: new, .. } in found {
        let along = matches!(new.kind, Kind::FloatingIP | Kind::SecurityGroup);
        let same_id = new.id.as_deref().and_then(|id| by_id.get(&(new.kind, id)).copied());
        let same_object = by_uid.get(&(new.kind, new.uid.as_str())).copied().filter(|_| !along);
        // Several Services may share one load balancer: each has its own record.
        let place = match new.kind {
            Kind::LoadBalancer => same_object,
            _ => same_id.or(same_object),
        };
        let old = place.and_then(|place| merged.get_mut(place));
        match old {
            Some(old) if old.id.is_none() || new.id.is_none() || old.id == new.id => {
                change(old, |old| update(old, new));
            }
            _ => {
                index(&mut by_id, &mut by_uid, new, merged.len());
                merged.push(Arc::clone(new));
            }
        }
    }
    merged
}

/// The index of a record, by its ID or its object's UID.
type Places<'a> = HashMap<(Kind, &'a str), usize>;

fn index<'a>(by_id: &mut Places<'a>, by_uid: &mut Places<'a>, record: &'a Recorded, place: usize) {
    if let Some(id) = &record.id {
        by_id.insert((record.kind, id), place);
    }
    if !record.uid.is_empty() {
        by_uid.insert((record.kind, &record.uid), place);
    }
}

/// A record that does not change stays shared.
fn change(record: &mut Arc<Recorded>, how: impl FnOnce(&mut Recorded)) {
    let mut changed = (**record).clone();
    how(&mut changed);
    if changed != **record {
        *record = Arc::new(changed);
    }
}

/// The new observation counts, except that what is known of a load balancer that is gone stays known.
fn update(old: &mut Recorded, new: &Recorded) {
    old.id = old.id.take().or_else(|| new.id.clone());
    old.seen |= new.seen;
    // A floating IP that one of the Services of a shared load balancer keeps stays kept after that Service is gone,
    // whatever the others have.
    let same = |by: &String| *by == found::service(&new.namespace, &new.name);
    if old.kept_by.as_ref().is_none_or(same) {
        old.kept.clone_from(&new.kept);
        old.kept_by.clone_from(&new.kept_by);
    }
    // An Ingress gets its address after its load balancer.
    let is_known = ObjectKind::Ingress.has(new) && new.id.is_some();
    if new.tag.is_some() || new.shared || is_known {
        old.tag.clone_from(&new.tag);
        old.shared = new.shared;
    }
}

/// Adds the ID to records whose object was gone before it had one: both drivers name what they create after the UID, the cloud
/// controller manager after cluster and Service, and octavia-ingress-controller after cluster and Ingress.
pub fn name_late(records: &mut [Arc<Recorded>], cluster: &str, cloud: &Cloud) {
    if records.iter().all(|record| record.id.is_some()) {
        return;
    }
    let made = Made::of(cloud);
    for record in records.iter_mut().filter(|record| record.id.is_none()) {
        if let Some(id) = late_id(record, cluster, cloud, &made) {
            let record = Arc::make_mut(record);
            record.id = Some(id);
            // No Ingress was observed with the address of this one.
            record.shared |= ObjectKind::Ingress.has(record);
        }
    }
}

/// Keeps what was recorded without an ID and is not found any more although its object exists: it belongs to another driver or
/// controller now.
pub fn disown(records: &mut [Arc<Recorded>], found: &[Found], cluster: &Cluster) {
    let waits = |record: &Recorded| record.id.is_none() && record.kept.is_none() && !record.uid.is_empty();
    if !records.iter().any(|record| waits(record)) {
        return;
    }
    let found: HashSet<&str> = found.iter().map(|one| one.record.uid.as_str()).collect();
    let there: HashSet<&str> = cluster.metas().map(|meta| meta.uid.as_str()).collect();
    for record in records.iter_mut().filter(|record| waits(record)) {
        let uid = record.uid.as_str();
        if there.contains(uid) && !found.contains(uid) {
            let object = record.object.as_deref().unwrap_or_default();
            let why = format!(
                "its {object} has nothing in OpenStack: another driver or controller serves it by now"
            );
            Arc::make_mut(record).kept = Some(why);
        }
    }
}

/// Records what OpenStack shows.
pub fn record_seen(records: &mut [Arc<Recorded>], cloud: &Cloud) {
    for record in records.iter_mut().filter(|record| !record.seen && cloud.shows(record)) {
        Arc::make_mut(record).seen = true;
    }
}

/// Whether OpenStack has shown something of the cluster, so the login is for its own project and region. Where objects of the
/// cluster name something, OpenStack must show part of that: what only has the cluster's name may belong to another cluster of that name.
#[must_use]
pub fn is_own_project(records: &[Arc<Recorded>]) -> bool {
    let any_named = records.iter().any(|record| is_named(record));
    records.iter().any(|record| record.seen && (!any_named || is_named(record)))
}

/// Whether objects of the cluster name something, and OpenStack has shown none of it.
#[must_use]
pub fn shows_nothing(records: &[Arc<Recorded>]) -> bool {
    records.iter().any(|record| is_named(record)) && !is_own_project(records)
}

/// Whether an object has its ID, and OpenStack shows it as long as it exists.
fn is_named(record: &Recorded) -> bool {
    let by_the_cluster_s_name = record.kind == Kind::FloatingIP
        || (ObjectKind::Ingress.has(record) && (record.kind != Kind::LoadBalancer || record.shared));
    record.object.is_some()
        && record.id.is_some()
        && !by_the_cluster_s_name
        && !outlook::is_known_to_the_cluster_only(record)
}

/// Whether OpenStack was searched for what a record is about: by its ID, or by a name that only it can have.
#[must_use]
pub fn is_searched(record: &Recorded, cluster: &str, cloud: &Cloud) -> bool {
    if record.id.is_some() || record.kind != Kind::LoadBalancer {
        return true;
    }
    let name = match record.object.as_deref() {
        Some("Ingress") => names::ingress_load_balancer(cluster, &record.namespace, &record.name),
        _ => names::service_tag(cluster, &record.namespace, &record.name),
    };
    names::is_distinctive(cluster) && cloud.load_balancers.values().all(|seen| seen.name != name)
}

fn late_id(record: &Recorded, cluster: &str, cloud: &Cloud, made: &Made<'_>) -> Option<String> {
    match (record.kind, record.object.as_deref()) {
        (Kind::LoadBalancer, Some("Service")) => {
            let legacy = names::legacy_load_balancer(&record.uid);
            let name = names::service_tag(cluster, &record.namespace, &record.name);
            let found = cloud.only_load_balancer(|seen| {
                seen.name == legacy || (names::is_distinctive(cluster) && seen.name == name)
            });
            found.map(|(id, _)| id.clone())
        }
        (Kind::LoadBalancer, Some("Ingress")) if names::is_distinctive(cluster) => {
            let name = names::ingress_load_balancer(cluster, &record.namespace, &record.name);
            cloud.only_load_balancer(|seen| seen.name == name).map(|(id, _)| id.clone())
        }
        (Kind::Volume, Some("PersistentVolumeClaim")) | (Kind::Snapshot, Some("VolumeSnapshot")) => {
            made.id(record.kind, &record.uid)
        }
        _ => None,
    }
}

/// IDs of volumes and snapshots in OpenStack by name. Drivers name what they create after the UID of its object. Of two with one name,
/// the first ID.
pub struct Made<'a>(HashMap<(Kind, &'a str), &'a str>);

impl<'a> Made<'a> {
    /// All that was read of a project.
    #[must_use]
    pub fn of(cloud: &'a Cloud) -> Made<'a> {
        let volumes = cloud.volumes.iter().rev().map(|(id, one)| ((Kind::Volume, &*one.name), &**id));
        let snapshots = cloud.snapshots.iter().rev().map(|(id, one)| ((Kind::Snapshot, &*one.name), &**id));
        Made(volumes.chain(snapshots).collect())
    }

    /// The ID of the volume or snapshot that was made for the object with this UID.
    #[must_use]
    pub fn id(&self, kind: Kind, uid: &str) -> Option<String> {
        self.0.get(&(kind, names::made_for(kind, uid).as_str())).map(|id| (*id).to_owned())
    }
}
