//! What the cluster holds in OpenStack, and what of it is left alone: the one place where "ours" is decided.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use common::api::deorbit::{Choice, Kind, Recorded, Retained};
use jiff::Timestamp;

use super::action::{Object, ObjectKind};
use super::sharing;
use crate::names;
use crate::observe::snapshot::{Claim, Cloud, Cluster, Meta, Run, Volume};
use crate::settings::Settings;

/// One thing in OpenStack, and the object of the cluster that it comes with.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What will be recorded of it.
    pub record: Recorded,
    /// The object whose deletion makes it go; None for what goes along with another.
    pub delete: Option<Object>,
    /// Since when that object is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whose policy has to be turned to Delete first.
    pub release: Option<Object>,
}

/// Everything of Cinder, Octavia and Neutron that the cluster names, kept things among it.
#[must_use]
pub fn found(settings: &Settings, run: &Run, cluster: &Cluster, cloud: Option<&Cloud>) -> Vec<Found> {
    let mut finder = Finder { settings, run, cluster, cloud, out: Vec::new() };
    let held = finder.snapshots();
    finder.claims(&held);
    finder.volumes();
    finder.services();
    finder.ingresses();
    finder.out
}

struct Finder<'a> {
    settings: &'a Settings,
    run: &'a Run,
    cluster: &'a Cluster,
    cloud: Option<&'a Cloud>,
    out: Vec<Found>,
}

/// Claims whose snapshots stay: Cinder refuses to delete a volume that has one.
type Held = HashSet<(String, String)>;

impl Finder<'_> {
    fn retained(&self) -> bool {
        self.run.spec.retained == Retained::Delete
    }

    /// Why an object stays that has one of these marks, switches or policies.
    fn kept(
        &self,
        choice: Choice,
        field: &str,
        marks: &[bool],
        retain: bool,
        policy: &str,
    ) -> Option<String> {
        if choice == Choice::Keep {
            return Some(format!("spec.resources.{field} is Keep"));
        }
        if marks.iter().any(|mark| *mark) {
            return Some(format!("it carries {} or {}", names::KEEP, names::JANITOR_KEEP));
        }
        (retain && !self.retained()).then(|| format!("its {policy} is Retain"))
    }

    fn snapshots(&mut self) -> Held {
        let mut held = Held::new();
        let contents: HashMap<&str, _> =
            self.cluster.contents.iter().map(|content| (content.meta.name.as_str(), content)).collect();
        let claims: HashMap<(&str, &str), &Claim> = self
            .cluster
            .claims
            .iter()
            .map(|claim| ((claim.meta.namespace.as_str(), claim.meta.name.as_str()), claim))
            .collect();
        let volumes: HashSet<&str> = self.cluster.volumes.iter().map(|one| one.meta.name.as_str()).collect();
        let choice = self.run.spec.resources.snapshots;
        let mut named = HashSet::new();
        for snapshot in &self.cluster.snapshots {
            let source = snapshot
                .claim
                .as_deref()
                .and_then(|name| claims.get(&(snapshot.meta.namespace.as_str(), name)));
            let content = match &snapshot.content {
                Some(name) => match contents.get(name.as_str()) {
                    Some(content) => Some(*content),
                    None => continue,
                },
                None if source.is_some_and(|claim| self.is_cinder(claim, &volumes)) => None,
                None => continue,
            };
            named.extend(content.map(|content| content.meta.name.as_str()));
            let id = content.and_then(|content| content.id.clone());
            let retain = content.is_some_and(|content| content.retain);
            let marks = [
                snapshot.meta.keep,
                content.is_some_and(|content| content.meta.keep),
                self.snapshot_kept(id.as_deref()),
            ];
            let kept = self.kept(choice, "snapshots", &marks, retain, "deletion policy");
            if let (Some(_), Some(claim)) = (&kept, &snapshot.claim) {
                held.insert((snapshot.meta.namespace.clone(), claim.clone()));
            }
            let release = content.filter(|content| content.retain && kept.is_none());
            self.out.push(Found {
                record: record(Kind::Snapshot, id, ObjectKind::VolumeSnapshot, &snapshot.meta, kept),
                delete: Some(Object::new(ObjectKind::VolumeSnapshot, &snapshot.meta)),
                deleting: snapshot.meta.deleting,
                release: release.map(|content| Object::new(ObjectKind::VolumeSnapshotContent, &content.meta)),
            });
        }
        // Contents that no VolumeSnapshot names any more.
        for content in &self.cluster.contents {
            if named.contains(content.meta.name.as_str()) {
                continue;
            }
            let marks = [content.meta.keep, self.snapshot_kept(content.id.as_deref())];
            let kept = self.kept(choice, "snapshots", &marks, content.retain, "deletion policy");
            let object = Object::new(ObjectKind::VolumeSnapshotContent, &content.meta);
            let go = self.retained() && content.retain && kept.is_none();
            self.out.push(Found {
                record: record(
                    Kind::Snapshot,
                    content.id.clone(),
                    ObjectKind::VolumeSnapshotContent,
                    &content.meta,
                    kept,
                ),
                delete: self.retained().then(|| object.clone()),
                deleting: content.meta.deleting,
                release: go.then_some(object),
            });
        }
        held
    }

    /// A bound claim is what its volume is, whatever its class says; an unbound one is what its provisioner will make of it.
    fn is_cinder(&self, claim: &Claim, volumes: &HashSet<&str>) -> bool {
        match &claim.volume {
            Some(name) => volumes.contains(name.as_str()),
            None => claim.provisioner.as_deref().map_or_else(
                || claim.class.as_ref().is_some_and(|class| self.cluster.classes.contains(class)),
                |provisioner| self.settings.is_cinder(provisioner),
            ),
        }
    }

    fn claims(&mut self, held: &Held) {
        let volumes: HashMap<&str, &Volume> =
            self.cluster.volumes.iter().map(|volume| (volume.meta.name.as_str(), volume)).collect();
        let names: HashSet<&str> = volumes.keys().copied().collect();
        for claim in &self.cluster.claims {
            if !self.is_cinder(claim, &names) {
                continue;
            }
            let volume = claim.volume.as_deref().and_then(|name| volumes.get(name).copied());
            let id = volume.map(|volume| volume.id.clone()).or_else(|| self.provisioned_late(claim));
            let retain = volume.is_some_and(|volume| volume.retain);
            let marks = [
                claim.meta.keep,
                volume.is_some_and(|volume| volume.meta.keep),
                self.volume_kept(id.as_deref()),
            ];
            let choice = self.run.spec.resources.persistent_volume_claims;
            let mut kept = self.kept(choice, "persistentVolumeClaims", &marks, retain, "reclaim policy");
            if kept.is_none() && held.contains(&(claim.meta.namespace.clone(), claim.meta.name.clone())) {
                kept = Some("it has a snapshot that is kept".to_owned());
            }
            let object = Object::new(ObjectKind::PersistentVolumeClaim, &claim.meta);
            let release = volume.filter(|volume| volume.retain && kept.is_none());
            self.out.push(Found {
                // Until it is bound it may still become another driver's.
                delete: Some(if volume.is_some() { object } else { object.as_seen(&claim.meta) }),
                record: record(Kind::Volume, id, ObjectKind::PersistentVolumeClaim, &claim.meta, kept),
                deleting: claim.meta.deleting,
                release: release.map(|volume| Object::new(ObjectKind::PersistentVolume, &volume.meta)),
            });
        }
    }

    /// The volume that a provisioner made for a claim before it said so.
    fn provisioned_late(&self, claim: &Claim) -> Option<String> {
        let name = format!("pvc-{}", claim.meta.uid);
        self.cloud?.volumes.iter().find(|(_, volume)| volume.name == name).map(|(id, _)| id.clone())
    }

    /// PersistentVolumes whose claim is gone, or never was.
    fn volumes(&mut self) {
        let claims: HashSet<&str> = self.cluster.claims.iter().map(|claim| claim.meta.uid.as_str()).collect();
        let bound: HashSet<&str> =
            self.cluster.claims.iter().filter_map(|claim| claim.volume.as_deref()).collect();
        for volume in &self.cluster.volumes {
            let has_claim = volume.claim.as_deref().is_some_and(|uid| claims.contains(uid));
            if has_claim || bound.contains(volume.meta.name.as_str()) {
                continue;
            }
            let choice = self.run.spec.resources.persistent_volume_claims;
            let marks = [volume.meta.keep, self.volume_kept(Some(&volume.id))];
            let mut kept =
                self.kept(choice, "persistentVolumeClaims", &marks, volume.retain, "reclaim policy");
            let never_bound = volume.claim.is_none();
            if kept.is_none() && never_bound && !self.retained() {
                kept = Some("no claim was ever bound to it".to_owned());
            }
            let object = Object::new(ObjectKind::PersistentVolume, &volume.meta);
            let go = kept.is_none() && volume.retain;
            self.out.push(Found {
                record: record(
                    Kind::Volume,
                    Some(volume.id.clone()),
                    ObjectKind::PersistentVolume,
                    &volume.meta,
                    kept,
                ),
                // A released one goes by its policy.
                delete: never_bound.then(|| object.clone()),
                deleting: volume.meta.deleting,
                release: go.then_some(object),
            });
        }
    }

    fn services(&mut self) {
        let choice = self.run.spec.resources.services;
        let ours: Vec<_> = self
            .cluster
            .services
            .iter()
            .filter(|service| self.settings.is_octavia(service.class.as_deref()))
            .map(|service| (service, self.kept(choice, "services", &[service.meta.keep], false, "")))
            .collect();
        // Who goes of those that share one load balancer.
        let mut going = BTreeMap::<&str, Vec<&Meta>>::new();
        for (service, _) in ours.iter().filter(|(_, kept)| kept.is_none()) {
            if let Some(id) = &service.load_balancer {
                going.entry(id).or_default().push(&service.meta);
            }
        }
        for (service, kept) in &ours {
            let meta = &service.meta;
            let id = service.load_balancer.clone();
            let seen = id.as_deref().and_then(|id| self.cloud?.load_balancers.get(id));
            let users = id.as_deref().and_then(|id| going.get(id)).map_or(&[][..], Vec::as_slice);
            let mut load_balancer = record(Kind::LoadBalancer, id, ObjectKind::Service, meta, kept.clone());
            if let Some(seen) = seen {
                load_balancer.tag = sharing::tag_of(&self.run.spec.cluster_name, meta, &seen.tags);
                load_balancer.shared = !sharing::is_only_ours(&self.run.spec.cluster_name, users, seen);
            }
            let (shared, port) = (load_balancer.shared, seen.and_then(|seen| seen.port.as_deref()));
            self.out.push(Found {
                record: load_balancer,
                delete: Some(Object::new(ObjectKind::Service, meta)),
                deleting: meta.deleting,
                release: None,
            });
            let Some(cloud) = self.cloud else { continue };
            for (id, ip) in
                cloud.floating_ips.iter().filter(|(_, ip)| port.is_some() && ip.port.as_deref() == port)
            {
                let kept = kept.clone().or_else(|| {
                    if service.keep_floating_ip {
                        Some(format!("its Service carries {}", names::KEEP_FLOATING_IP))
                    } else if !ip.description.starts_with(names::FLOATING_IP_DESCRIPTION) {
                        Some("the cloud controller manager did not make it".to_owned())
                    } else {
                        shared.then(|| "its load balancer also serves others".to_owned())
                    }
                });
                self.along(Kind::FloatingIP, id, meta, kept);
            }
            let group = names::security_group(&meta.uid, &meta.namespace, &meta.name);
            for (id, _) in cloud.security_groups.iter().filter(|(_, seen)| seen.name == group) {
                self.along(Kind::SecurityGroup, id, meta, kept.clone());
            }
        }
    }

    fn along(&mut self, kind: Kind, id: &str, meta: &Meta, kept: Option<String>) {
        let record = record(kind, Some(id.to_owned()), ObjectKind::Service, meta, kept);
        self.out.push(Found { record, delete: None, deleting: meta.deleting, release: None });
    }

    fn ingresses(&mut self) {
        let choice = self.run.spec.resources.ingresses;
        for ingress in &self.cluster.ingresses {
            if ingress.class.as_deref() != Some(names::INGRESS_CLASS) {
                continue;
            }
            let meta = &ingress.meta;
            let cluster = &self.run.spec.cluster_name;
            let name = names::ingress_load_balancer(cluster, &meta.namespace, &meta.name);
            let seen = self.cloud.filter(|_| !cluster.is_empty()).and_then(|cloud| {
                let mut named = cloud.load_balancers.iter().filter(|(_, seen)| seen.name == name);
                // Two of one name: nobody knows which is ours.
                named.next().filter(|_| named.next().is_none()).map(|(id, _)| id.clone())
            });
            let kept = self.kept(choice, "ingresses", &[meta.keep], false, "");
            self.out.push(Found {
                record: record(Kind::LoadBalancer, seen, ObjectKind::Ingress, meta, kept),
                delete: Some(Object::new(ObjectKind::Ingress, meta)),
                deleting: meta.deleting,
                release: None,
            });
        }
    }

    fn volume_kept(&self, id: Option<&str>) -> bool {
        id.and_then(|id| self.cloud?.volumes.get(id)).is_some_and(|volume| volume.keep)
    }

    fn snapshot_kept(&self, id: Option<&str>) -> bool {
        id.and_then(|id| self.cloud?.snapshots.get(id)).is_some_and(|snapshot| snapshot.keep)
    }
}

fn record(kind: Kind, id: Option<String>, object: ObjectKind, meta: &Meta, kept: Option<String>) -> Recorded {
    Recorded {
        kind,
        id,
        object: Some(object.word().to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        tag: None,
        shared: false,
        kept,
    }
}

/// IDs that the cluster names and that OpenStack is asked about, by kind.
#[must_use]
pub fn ids(records: &[Recorded], cluster: Option<&Cluster>) -> BTreeMap<Kind, BTreeSet<String>> {
    let mut ids = BTreeMap::<Kind, BTreeSet<String>>::new();
    for record in records {
        if let Some(id) = &record.id {
            ids.entry(record.kind).or_default().insert(id.clone());
        }
    }
    if let Some(cluster) = cluster {
        let volumes = cluster.volumes.iter().map(|volume| volume.id.clone());
        ids.entry(Kind::Volume).or_default().extend(volumes);
        let snapshots = cluster.contents.iter().filter_map(|content| content.id.clone());
        ids.entry(Kind::Snapshot).or_default().extend(snapshots);
        let balancers = cluster.services.iter().filter_map(|service| service.load_balancer.clone());
        ids.entry(Kind::LoadBalancer).or_default().extend(balancers);
    }
    ids
}
