//! The resources that the cluster holds in OpenStack, and the decision to keep or delete each. Ownership is decided
//! only here.

mod balancers;
mod snapshots;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use common::api::deorbit::{Choice, Kind, RetainedVolumes};
use common::cloud::openstack::is_id;
use jiff::Timestamp;

use super::action::{Object, ObjectKind};
use crate::names;
use crate::observe::snapshot::{Cloud, Cluster, Meta, Run, Volume};
use crate::record::Recorded;
use crate::settings::{Scope, Settings};

/// One resource in OpenStack, and the object of the cluster that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Its record.
    pub record: Arc<Recorded>,
    /// The object whose deletion deletes it; None for what is deleted with another resource.
    pub delete: Option<Object>,
    /// Since when that object is being deleted.
    pub deleting: Option<Timestamp>,
    /// The object whose policy must be set to Delete first.
    pub release: Option<Object>,
}

/// Everything in the cloud that the cluster names, including what is kept.
#[must_use]
pub fn found(settings: &Settings, run: &Run, cluster: &Cluster, cloud: Option<&Cloud>) -> Vec<Found> {
    let by_name = cluster.volumes.iter().map(|volume| (volume.meta.name.as_str(), volume)).collect();
    let scope = Scope::new(settings, run.spec.provider, &cluster.drivers);
    let mut finder = Finder { scope, run, cluster, cloud, by_name, out: Vec::new() };
    let held = finder.snapshots();
    finder.claims(&held);
    finder.volumes(&held);
    finder.services();
    finder.ingresses();
    let mut found = finder.out;
    agree(&mut found);
    found
}

/// A Service, as [`Recorded::kept_by`] has it.
#[must_use]
pub fn service(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Several objects can have one volume, snapshot or floating IP: if one of them keeps it, it is kept.
fn agree(found: &mut [Found]) {
    let mut kept = HashMap::<(Kind, String), (String, Option<String>)>::new();
    for Found { record, .. } in found.iter() {
        let (Some(id), Some(why)) = (&record.id, &record.kept) else { continue };
        let why = match record.kind {
            Kind::Volume | Kind::Snapshot => {
                let who = record.object.map(|object| object.to_string()).unwrap_or_default();
                format!("another {who} that has it stays: {why}")
            }
            // Any other reason depends on what one Service shows of the load balancer, and holds for that one only.
            Kind::FloatingIP if record.kept_by.is_some() => why.clone(),
            _ => continue,
        };
        kept.entry((record.kind, id.clone())).or_insert((why, record.kept_by.clone()));
    }
    for one in found.iter_mut().filter(|one| one.record.kept.is_none()) {
        let id = one.record.id.clone().unwrap_or_default();
        if let Some((why, by)) = kept.get(&(one.record.kind, id)) {
            let record = Arc::make_mut(&mut one.record);
            record.kept = Some(why.clone());
            record.kept_by.clone_from(by);
            one.release = None;
        }
    }
}

struct Finder<'a> {
    scope: Scope<'a>,
    run: &'a Run,
    cluster: &'a Cluster,
    cloud: Option<&'a Cloud>,
    /// PersistentVolumes.
    by_name: HashMap<&'a str, &'a Volume>,
    out: Vec<Found>,
}

impl Finder<'_> {
    fn retained(&self) -> bool {
        self.run.spec.retained_volumes == RetainedVolumes::Delete
    }

    /// Why an object is kept; none if it is to be deleted. Metadata of the volume or snapshot with this `id` may keep it. `is_annotated`:
    /// the object, or the one that it is bound to, has the annotation that keeps it. `retain`: its policy is Retain.
    fn kept(&self, object: ObjectKind, id: Option<&str>, is_annotated: bool, retain: bool) -> Option<String> {
        let resources = &self.run.spec.resources;
        let (kind, choice, field, policy) = match object {
            ObjectKind::VolumeSnapshot | ObjectKind::VolumeSnapshotContent => {
                (Kind::Snapshot, resources.snapshots, "snapshots", "deletion policy")
            }
            ObjectKind::PersistentVolumeClaim | ObjectKind::PersistentVolume | ObjectKind::Pod => {
                let choice = resources.persistent_volume_claims;
                (Kind::Volume, choice, "persistentVolumeClaims", "reclaim policy")
            }
            ObjectKind::Service => (Kind::LoadBalancer, resources.services, "services", "policy"),
            ObjectKind::Ingress => (Kind::LoadBalancer, resources.ingresses, "ingresses", "policy"),
        };
        if choice == Choice::Keep {
            return Some(format!("spec.resources.{field} is Keep"));
        }
        let seen = id.and_then(|id| self.cloud?.block_storage(kind, id));
        if is_annotated || seen.is_some_and(|seen| seen.keep) {
            return Some(format!("it carries {} or {}", names::KEEP, names::JANITOR_KEEP));
        }
        (retain && !self.retained()).then(|| format!("its {policy} is Retain"))
    }
}

fn record(
    kind: Kind,
    id: Option<String>,
    object: ObjectKind,
    meta: &Meta,
    kept: Option<String>,
) -> Arc<Recorded> {
    Arc::new(Recorded {
        named: id.is_some(),
        kind,
        id,
        object: Some(object),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        tag: None,
        shared: false,
        seen: false,
        kept,
        kept_by: None,
    })
}

/// IDs that the cluster names, by kind: these are read from OpenStack. A handle that cannot be an ID is left out, since the request
/// for it would fail and with it the whole observation.
#[must_use]
pub fn ids(records: &[Arc<Recorded>], cluster: Option<&Cluster>) -> BTreeMap<Kind, BTreeSet<String>> {
    let mut ids = BTreeMap::<Kind, BTreeSet<String>>::new();
    for record in records {
        if let Some(id) = &record.id {
            ids.entry(record.kind).or_default().insert(id.clone());
        }
    }
    if let Some(cluster) = cluster {
        for ((kind, id), _) in cluster.holders() {
            ids.entry(kind).or_default().insert(id.to_owned());
        }
        let balancers = cluster.services.iter().filter_map(|service| service.load_balancer.clone());
        ids.entry(Kind::LoadBalancer).or_default().extend(balancers);
    }
    for all in ids.values_mut() {
        all.retain(|id| is_id(id));
    }
    ids
}
