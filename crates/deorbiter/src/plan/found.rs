//! What the cluster holds in OpenStack, and what of it is left alone: the one place where "ours" is decided.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use common::api::deorbit::{Choice, Kind, Recorded, Retained};
use jiff::Timestamp;

use super::action::{Object, ObjectKind};
use super::sharing;
use crate::names;
use crate::observe::snapshot::{Claim, Cloud, Cluster, Content, FloatingIp, Meta, Run, Volume};
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
    finder.volumes(&held);
    finder.services();
    finder.ingresses();
    let mut found = finder.out;
    agree(&mut found);
    found
}

/// Several objects can name one volume or snapshot: where one of them keeps it, none may go.
fn agree(found: &mut [Found]) {
    let mut kept = HashMap::<(Kind, String), String>::new();
    for Found { record, .. } in found.iter() {
        if let (Kind::Volume | Kind::Snapshot, Some(id), Some(why)) = (record.kind, &record.id, &record.kept)
        {
            let who = record.object.as_deref().unwrap_or_default();
            kept.entry((record.kind, id.clone()))
                .or_insert_with(|| format!("another {who} that has it stays: {why}"));
        }
    }
    for one in found.iter_mut().filter(|one| one.record.kept.is_none()) {
        let id = one.record.id.clone().unwrap_or_default();
        if let Some(why) = kept.get(&(one.record.kind, id)) {
            one.record.kept = Some(why.clone());
            one.release = None;
        }
    }
}

struct Finder<'a> {
    settings: &'a Settings,
    run: &'a Run,
    cluster: &'a Cluster,
    cloud: Option<&'a Cloud>,
    out: Vec<Found>,
}

/// What has a snapshot that stays: Cinder refuses to delete a volume that has one.
#[derive(Default)]
struct Held {
    /// By namespace and name.
    claims: HashSet<(String, String)>,
    /// By ID.
    volumes: HashSet<String>,
}

/// Why a volume stays that has a snapshot.
const HELD: &str = "it has a snapshot that is kept";

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
        let mut held = Held::default();
        let api = self.cluster.snapshot_api;
        let contents: HashMap<&str, _> =
            self.cluster.contents.iter().map(|content| (content.meta.name.as_str(), content)).collect();
        let claims: HashMap<(&str, &str), &Claim> = self
            .cluster
            .claims
            .iter()
            .map(|claim| ((claim.meta.namespace.as_str(), claim.meta.name.as_str()), claim))
            .collect();
        let volumes = by_name(&self.cluster.volumes);
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
            if kept.is_some() {
                let claim =
                    snapshot.claim.iter().map(|claim| (snapshot.meta.namespace.clone(), claim.clone()));
                held.claims.extend(claim);
                held.volumes.extend(content.and_then(|content| self.source(content)));
            }
            let release = content.filter(|content| content.retain && kept.is_none());
            self.out.push(Found {
                record: record(Kind::Snapshot, id, ObjectKind::VolumeSnapshot, &snapshot.meta, kept),
                delete: Some(Object::new(ObjectKind::VolumeSnapshot, &snapshot.meta).served_in(api)),
                deleting: snapshot.meta.deleting,
                release: release.map(|content| {
                    Object::new(ObjectKind::VolumeSnapshotContent, &content.meta).served_in(api)
                }),
            });
        }
        // Contents that no VolumeSnapshot names any more.
        for content in &self.cluster.contents {
            if named.contains(content.meta.name.as_str()) {
                continue;
            }
            let marks = [content.meta.keep, self.snapshot_kept(content.id.as_deref())];
            let kept = self.kept(choice, "snapshots", &marks, content.retain, "deletion policy");
            if kept.is_some() {
                held.volumes.extend(self.source(content));
            }
            let object = Object::new(ObjectKind::VolumeSnapshotContent, &content.meta).served_in(api);
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

    /// ID of the volume that a snapshot was taken of.
    fn source(&self, content: &Content) -> Option<String> {
        let shown = || Some(self.cloud?.snapshots.get(content.id.as_deref()?)?.volume.clone());
        content.volume.clone().or_else(shown)
    }

    /// A bound claim is what its volume is, whatever its class says; an unbound one is what its provisioner will make of it.
    /// One that names the volume of another claim holds nothing, and never will.
    fn is_cinder(&self, claim: &Claim, volumes: &HashMap<&str, &Volume>) -> bool {
        match &claim.volume {
            Some(name) => volumes.get(name.as_str()).is_some_and(|volume| volume.is_for(claim)),
            None => claim.provisioner.as_deref().map_or_else(
                || claim.class.as_ref().is_some_and(|class| self.cluster.classes.contains(class)),
                |provisioner| self.settings.is_cinder(provisioner),
            ),
        }
    }

    fn claims(&mut self, held: &Held) {
        let volumes = by_name(&self.cluster.volumes);
        let kept_pods = self.cluster.pods.iter().filter(|pod| pod.meta.keep);
        let in_use: HashSet<(&str, &str)> = kept_pods
            .flat_map(|pod| pod.claims.iter().map(|claim| (pod.meta.namespace.as_str(), claim.as_str())))
            .collect();
        for claim in &self.cluster.claims {
            if !self.is_cinder(claim, &volumes) {
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
            let name = (claim.meta.namespace.clone(), claim.meta.name.clone());
            if kept.is_none() && (held.claims.contains(&name) || held.holds(id.as_deref())) {
                kept = Some(HELD.to_owned());
            }
            if kept.is_none() && in_use.contains(&(name.0.as_str(), name.1.as_str())) {
                kept = Some(format!("a pod that holds it carries {}", names::KEEP));
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
    fn volumes(&mut self, held: &Held) {
        let claims: HashSet<&str> = self.cluster.claims.iter().map(|claim| claim.meta.uid.as_str()).collect();
        let mut bound = HashMap::<&str, Vec<&Claim>>::new();
        for claim in &self.cluster.claims {
            bound.entry(claim.volume.as_deref().unwrap_or_default()).or_default().push(claim);
        }
        for volume in &self.cluster.volumes {
            let has_claim = volume.claim.as_deref().is_some_and(|uid| claims.contains(uid));
            let named = bound.get(volume.meta.name.as_str()).into_iter().flatten();
            if has_claim || named.into_iter().any(|claim| volume.is_for(claim)) {
                continue;
            }
            let choice = self.run.spec.resources.persistent_volume_claims;
            let marks = [volume.meta.keep, self.volume_kept(Some(&volume.id))];
            let mut kept =
                self.kept(choice, "persistentVolumeClaims", &marks, volume.retain, "reclaim policy");
            if kept.is_none() && held.holds(Some(&volume.id)) {
                kept = Some(HELD.to_owned());
            }
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
        let cluster = self.run.spec.cluster_name.as_str();
        // Who goes, and who stays, of those that share one load balancer.
        let mut going = BTreeMap::<&str, Vec<&Meta>>::new();
        for (service, _) in ours.iter().filter(|(_, kept)| kept.is_none()) {
            if let Some(id) = &service.load_balancer {
                going.entry(id).or_default().push(&service.meta);
            }
        }
        let gone: HashSet<&str> = going.values().flatten().map(|meta| meta.uid.as_str()).collect();
        let others = self.cluster.services.iter().filter(|one| !gone.contains(one.meta.uid.as_str()));
        let staying: HashSet<&str> = others.filter_map(|one| one.load_balancer.as_deref()).collect();
        for (service, kept) in &ours {
            let meta = &service.meta;
            let id = service.load_balancer.clone().or_else(|| sharing::of(cluster, service, self.cloud?));
            let seen = id.as_deref().and_then(|id| self.cloud?.load_balancers.get(id));
            let alone = [meta];
            let users = match service.load_balancer.as_deref() {
                Some(id) => going.get(id).map_or(&[][..], Vec::as_slice),
                None => &alone[..],
            };
            let mut load_balancer =
                record(Kind::LoadBalancer, id.clone(), ObjectKind::Service, meta, kept.clone());
            if let (Some(seen), Some(cloud)) = (seen, self.cloud) {
                load_balancer.tag = sharing::tag_of(cluster, meta, &seen.tags);
                // Clusters of one name, or of none, cannot be told apart by names alone.
                let known = names::is_telling(cluster)
                    || seen.name == names::legacy_load_balancer(&meta.uid)
                    || sharing::is_attached(service, seen, cloud);
                let stays = id.as_deref().is_some_and(|id| staying.contains(id));
                load_balancer.shared = stays || !known || !sharing::is_only_ours(cluster, users, seen);
            }
            let (shared, port) = (load_balancer.shared, seen.and_then(|seen| seen.port.as_deref()));
            let object = Object::new(ObjectKind::Service, meta);
            self.out.push(Found {
                record: load_balancer,
                // One that has lost its load balancer meanwhile has nothing in OpenStack any more.
                delete: Some(if service.former { object.as_seen(meta) } else { object }),
                deleting: meta.deleting,
                release: None,
            });
            let Some(cloud) = self.cloud else { continue };
            for (id, ip) in leading_to(cloud, port) {
                let kept = kept.clone().or_else(|| {
                    if service.keep_floating_ip {
                        Some(format!("its Service carries {}", names::KEEP_FLOATING_IP))
                    } else if !ip.description.starts_with(names::FLOATING_IP_DESCRIPTION) {
                        Some("the cloud controller manager did not make it".to_owned())
                    } else {
                        shared.then(|| "its load balancer also serves others".to_owned())
                    }
                });
                self.along(Kind::FloatingIP, id, (ObjectKind::Service, meta), kept);
            }
            let group = names::security_group(&meta.uid, &meta.namespace, &meta.name);
            for (id, _) in cloud.security_groups.iter().filter(|(_, seen)| seen.name == group) {
                self.along(Kind::SecurityGroup, id, (ObjectKind::Service, meta), kept.clone());
            }
        }
    }

    fn along(&mut self, kind: Kind, id: &str, (object, meta): (ObjectKind, &Meta), kept: Option<String>) {
        let record = record(kind, Some(id.to_owned()), object, meta, kept);
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
                named.next().filter(|_| named.next().is_none())
            });
            let kept = self.kept(choice, "ingresses", &[meta.keep], false, "");
            let id = seen.map(|(id, _)| id.clone());
            self.out.push(Found {
                record: record(Kind::LoadBalancer, id, ObjectKind::Ingress, meta, kept.clone()),
                delete: Some(Object::new(ObjectKind::Ingress, meta)),
                deleting: meta.deleting,
                release: None,
            });
            let (Some((_, seen)), Some(cloud)) = (seen, self.cloud) else { continue };
            for (id, ip) in leading_to(cloud, seen.port.as_deref()) {
                let kept = kept.clone().or_else(|| {
                    if ingress.keep_floating_ip {
                        return Some(format!("its Ingress carries {}", names::INGRESS_KEEP_FLOATING_IP));
                    }
                    let made = ip.description.starts_with(names::INGRESS_FLOATING_IP_DESCRIPTION);
                    (!made).then(|| "octavia-ingress-controller did not make it".to_owned())
                });
                self.along(Kind::FloatingIP, id, (ObjectKind::Ingress, meta), kept);
            }
            let mut groups = cloud.security_groups.iter().filter(|(_, seen)| seen.name == name);
            if let (Some((id, _)), None) = (groups.next(), groups.next()) {
                self.along(Kind::SecurityGroup, id, (ObjectKind::Ingress, meta), kept.clone());
            }
        }
    }

    fn volume_kept(&self, id: Option<&str>) -> bool {
        id.and_then(|id| self.cloud?.volumes.get(id)).is_some_and(|volume| volume.keep)
    }

    fn snapshot_kept(&self, id: Option<&str>) -> bool {
        id.and_then(|id| self.cloud?.snapshots.get(id)).is_some_and(|snapshot| snapshot.keep)
    }
}

impl Held {
    fn holds(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.volumes.contains(id))
    }
}

impl Volume {
    /// Whether a claim that names it is the one that it is for.
    fn is_for(&self, claim: &Claim) -> bool {
        self.claim.as_deref().is_none_or(|uid| uid.is_empty() || uid == claim.meta.uid)
    }
}

fn by_name(volumes: &[Volume]) -> HashMap<&str, &Volume> {
    volumes.iter().map(|volume| (volume.meta.name.as_str(), volume)).collect()
}

/// Floating IPs of a port.
fn leading_to<'a>(
    cloud: &'a Cloud,
    port: Option<&str>,
) -> impl Iterator<Item = (&'a String, &'a FloatingIp)> {
    cloud.floating_ips.iter().filter(move |(_, ip)| port.is_some() && ip.port.as_deref() == port)
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
        seen: false,
        kept,
    }
}

/// IDs that the cluster names and that OpenStack is asked about, by kind. A handle that can be nobody's ID is not asked about:
/// it would be refused, and nothing else could be read.
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
    for all in ids.values_mut() {
        all.retain(|id| names::is_id(id));
    }
    ids
}
