//! The records: what was found is stored before anything is deleted, and never removed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use common::api::deorbit::{Kind, Provider};

use super::action::ObjectKind;
use super::found::{self, Found};
use super::presence::NOT_PROVEN;
use crate::names;
use crate::observe::snapshot::{Cloud, Cluster, Run, Unread};
use crate::record::{Proof, Recorded};

/// The records with what was found now. None is ever removed; an object that had no ID yet may get one. `is_known`: OpenStack was read,
/// so that what it keeps is known.
#[must_use]
pub fn merge(records: &[Arc<Recorded>], found: &[Found], is_known: bool) -> Vec<Arc<Recorded>> {
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
                change(old, |old| update(old, new, is_known));
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
fn update(old: &mut Recorded, new: &Recorded, is_known: bool) {
    old.id = old.id.take().or_else(|| new.id.clone());
    old.seen |= new.seen;
    old.named |= new.named;
    // A floating IP that one of the Services of a shared load balancer keeps stays kept after that Service is gone,
    // whatever the others have.
    let same = |by: &String| *by == found::service(&new.namespace, &new.name);
    if (is_known || new.kept.is_some()) && old.kept_by.as_ref().is_none_or(same) {
        old.kept.clone_from(&new.kept);
        old.kept_by.clone_from(&new.kept_by);
    }
    // An Ingress gets its address after its load balancer.
    let is_known = new.object == Some(ObjectKind::Ingress) && new.id.is_some();
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
            // Named after the UID of its object, or after the cluster only.
            record.named = record.kind != Kind::LoadBalancer;
            record.id = Some(id);
            // No Ingress was observed with the address of this one.
            record.shared |= record.object == Some(ObjectKind::Ingress);
        }
    }
}

/// Keeps what was recorded without an ID and is not found any more although its object exists: it belongs to another driver or
/// controller now.
pub fn disown(records: &mut [Arc<Recorded>], found: &[Found], cluster: &Cluster, provider: Provider) {
    let waits = |record: &Recorded| record.id.is_none() && record.kept.is_none() && !record.uid.is_empty();
    if !records.iter().any(|record| waits(record)) {
        return;
    }
    let found: HashSet<&str> = found.iter().map(|one| one.record.uid.as_str()).collect();
    let there: HashSet<&str> = cluster.metas().map(|meta| meta.uid.as_str()).collect();
    for record in records.iter_mut().filter(|record| waits(record)) {
        let uid = record.uid.as_str();
        if there.contains(uid) && !found.contains(uid) {
            let object = record.object.map(|object| object.to_string()).unwrap_or_default();
            let why = match provider {
                Provider::OpenStack => format!(
                    "its {object} has nothing in OpenStack: another driver or controller serves it by now"
                ),
                Provider::Any => format!("its {object} has nothing in a cloud: its volume has no driver"),
            };
            Arc::make_mut(record).kept = Some(why);
        }
    }
}

/// Before the first delete: a volume or snapshot whose objects are gone although it was recorded may have been kept on purpose, by the
/// policy Retain after a dry run. It counts as one that no object names.
pub fn unname(records: &mut [Arc<Recorded>], cluster: &Cluster, cloud: &Cloud) {
    let uids: HashSet<&str> = cluster.metas().map(|meta| meta.uid.as_str()).collect();
    let held: HashSet<(Kind, &str)> = cluster.holders().map(|(resource, _)| resource).collect();
    let is_released = |record: &Recorded| {
        let Some(id) = record.id.as_deref() else { return false };
        let seen = cloud.block_storage(record.kind, id);
        let is_unnamed = !uids.contains(record.uid.as_str()) && !held.contains(&(record.kind, id));
        record.kept.is_none() && is_unnamed && seen.is_some_and(|seen| seen.status != "deleting")
    };
    for record in records.iter_mut().filter(|record| record.object.is_some() && is_released(record)) {
        Arc::make_mut(record).object = None;
    }
}

/// Records what OpenStack shows.
pub fn record_seen(records: &mut [Arc<Recorded>], cloud: &Cloud) {
    for record in records.iter_mut().filter(|record| !record.seen && cloud.shows(record)) {
        Arc::make_mut(record).seen = true;
    }
}

/// Records what proves that the login is for the target's own project and region.
pub fn prove(proof: &mut Proof, run: &Run, records: &[Arc<Recorded>], cloud: &Cloud) {
    proof.project |= run.spec.cluster_gone.as_ref().is_some_and(|gone| gone.project_id == cloud.project);
    proof.server = proof.server.take().or_else(|| cloud.own_server.clone());
    for record in records.iter().filter(|record| record.named && cloud.shows(record)) {
        match record.kind {
            Kind::Volume | Kind::Snapshot => proof.block_storage = true,
            Kind::LoadBalancer => proof.load_balancer = true,
            Kind::FloatingIP | Kind::SecurityGroup => {}
        }
    }
}

/// Why the login is not proven, where Nodes or objects of the cluster name something that could prove it. A snapshot is not counted: its ID
/// may be that of a backup.
#[must_use]
pub fn unproven(
    proof: &Proof,
    run: &Run,
    records: &[Arc<Recorded>],
    cluster: Option<&Cluster>,
    cloud: &Cloud,
) -> Option<Unread> {
    let nodes = cluster.into_iter().flat_map(Cluster::known_nodes);
    let servers = nodes.filter(|node| node.server.is_some()).count();
    let is_evidence =
        |record: &&Arc<Recorded>| record.named && matches!(record.kind, Kind::Volume | Kind::LoadBalancer);
    let resources = records.iter().filter(is_evidence).count();
    if let (Some(gone), false) = (&run.spec.cluster_gone, proof.project) {
        return Some(Unread::NotProven(format!(
            "the login is for project {}, and spec.clusterGone.projectID is {}",
            cloud.project, gone.project_id
        )));
    }
    if proof.any() || servers + resources == 0 {
        return None;
    }
    Some(Unread::NotProven(format!(
        "{NOT_PROVEN} Project {} has none of the servers of {servers} Nodes, and none of {resources} recorded volumes and load balancers",
        cloud.place()
    )))
}

fn late_id(record: &Recorded, cluster: &str, cloud: &Cloud, made: &Made<'_>) -> Option<String> {
    match (record.kind, record.object) {
        (Kind::LoadBalancer, Some(ObjectKind::Service)) => {
            let legacy = names::legacy_load_balancer(&record.uid);
            let name = names::service_tag(cluster, &record.namespace, &record.name);
            let found = cloud.only_load_balancer(|seen| {
                seen.name == legacy || (names::is_distinctive(cluster) && seen.name == name)
            });
            found.map(|(id, _)| id.clone())
        }
        (Kind::LoadBalancer, Some(ObjectKind::Ingress)) if names::is_distinctive(cluster) => {
            let name = names::ingress_load_balancer(cluster, &record.namespace, &record.name);
            cloud.only_load_balancer(|seen| seen.name == name).map(|(id, _)| id.clone())
        }
        (Kind::Volume, Some(ObjectKind::PersistentVolumeClaim))
        | (Kind::Snapshot, Some(ObjectKind::VolumeSnapshot)) => made.id(record.kind, &record.uid),
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
