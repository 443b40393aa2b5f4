//! The records whose objects or resources still exist, and the times from which the limits for their deletion count.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{Debris, Kind, Leftovers, Phase, Recorded, Retained};
use jiff::Timestamp;

use super::action::ObjectKind;
use super::{inventory, sharing, sweep};
use crate::observe::snapshot::{Cloud, Meta, Snapshot, key};

/// The state of one record.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// An object of the target still holds it.
    pub in_cluster: bool,
    /// That object exists, deorbiter deletes it, and it is not being deleted yet.
    pub untouched: bool,
    /// The last action on it failed.
    pub refused: bool,
    /// Its state in OpenStack, where it exists.
    pub in_cloud: Option<String>,
    /// It is not expected to change any more.
    pub stuck: bool,
    /// Why it still exists.
    pub why: String,
}

/// A record whose object or resource still exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Left<'a> {
    /// The record.
    pub record: &'a Recorded,
    /// Its state.
    pub outlook: Outlook,
}

impl Left<'_> {
    /// As it is listed at the end.
    #[must_use]
    pub fn debris(&self) -> Debris {
        Debris {
            kind: format!("{:?}", self.record.kind),
            id: self.record.id.clone(),
            name: self.record.name.clone(),
            namespace: self.record.namespace.clone(),
            reason: self.outlook.why.clone(),
        }
    }
}

/// Everything that is to be deleted and not verified to be gone. `given_up`: the target is not waited for any more.
#[must_use]
pub fn left<'a>(
    snapshot: &Snapshot,
    records: &'a [Arc<Recorded>],
    given_up: bool,
    now: Timestamp,
) -> Vec<Left<'a>> {
    let judge = Judge::new(snapshot, records, given_up, now);
    let shall_go = records.iter().filter(|record| record.kept.is_none());
    shall_go.filter_map(|record| judge.outlook(record).map(|outlook| Left { record, outlook })).collect()
}

struct Judge<'a> {
    snapshot: &'a Snapshot,
    given_up: bool,
    now: Timestamp,
    /// The objects of the target, by UID.
    objects: HashMap<&'a str, Object>,
    /// The login is for the cluster's own project. Until that is known, absence in OpenStack verifies nothing, even for what was
    /// being deleted before the run: another project does not have it either.
    in_own_project: bool,
    /// PersistentVolumes and VolumeSnapshotContents by what they hold.
    holders: HashMap<(Kind, &'a str), (&'a str, Option<Timestamp>)>,
}

/// An object of the target.
#[derive(Clone, Copy)]
struct Object {
    /// Since when it is being deleted.
    deleting: Option<Timestamp>,
    /// Whether deorbiter deletes it; otherwise its policy decides.
    by_us: bool,
}

impl<'a> Judge<'a> {
    fn new(snapshot: &'a Snapshot, records: &[Arc<Recorded>], given_up: bool, now: Timestamp) -> Judge<'a> {
        let (mut objects, mut holders) = (HashMap::new(), HashMap::new());
        if let Ok(cluster) = &snapshot.cluster {
            let metas = cluster
                .claims
                .iter()
                .map(|one| &one.meta)
                .chain(cluster.snapshots.iter().map(|one| &one.meta))
                .chain(cluster.services.iter().map(|one| &one.meta))
                .chain(cluster.ingresses.iter().map(|one| &one.meta))
                .map(|meta| (meta, true));
            let retained = snapshot.run.spec.retained == Retained::Delete;
            let by_policy = cluster
                .volumes
                .iter()
                .map(|one| (&one.meta, one.was_never_bound()))
                .chain(cluster.contents.iter().map(|one| (&one.meta, retained)));
            let object = |(meta, by_us): (&'a Meta, bool)| {
                (meta.uid.as_str(), Object { deleting: meta.deleting, by_us })
            };
            objects.extend(metas.chain(by_policy).map(object));
            for volume in &cluster.volumes {
                holders.insert(
                    (Kind::Volume, volume.id.as_str()),
                    (volume.meta.name.as_str(), volume.meta.deleting),
                );
            }
            for content in &cluster.contents {
                if let Some(id) = &content.id {
                    holders.insert(
                        (Kind::Snapshot, id.as_str()),
                        (content.meta.name.as_str(), content.meta.deleting),
                    );
                }
            }
        }
        let in_own_project = inventory::is_own_project(records);
        Judge { snapshot, given_up, now, objects, in_own_project, holders }
    }

    /// None: it is gone.
    fn outlook(&self, record: &Recorded) -> Option<Outlook> {
        let along = matches!(record.kind, Kind::FloatingIP | Kind::SecurityGroup);
        let object = self.objects.get(record.uid.as_str()).copied().filter(|_| !along);
        let holder = record.id.as_deref().and_then(|id| self.holders.get(&(record.kind, id)).copied());
        let silent = self.snapshot.cluster.is_err();
        let blind = silent && !self.given_up && record.object.is_some();
        let (in_cloud, proven, cloud_error) = match &self.snapshot.cloud {
            None => (None, false, None),
            Some(Err(why)) => (None, false, Some(why)),
            Some(Ok(cloud)) => {
                let cluster = &self.snapshot.run.spec.cluster_name;
                let tells = self.in_own_project
                    && !is_known_to_the_cluster_only(record)
                    && !is_shared_unverifiably(record, cloud);
                let proven = tells && inventory::is_searched(record, cluster, cloud);
                (state_of(record, cluster, cloud), proven, None)
            }
        };
        let proven_by_id = proven && record.id.is_some();
        let object_stays = match object {
            // The run does not wait for the finalizer of a stopped controller once the resource is verified to be gone
            // in OpenStack.
            Some(object) => {
                !proven_by_id || in_cloud.is_some() || (object.by_us && object.deleting.is_none())
            }
            None => false,
        };
        let holder_stays = holder.is_some() && (!proven || in_cloud.is_some());
        let cluster_only = is_known_to_the_cluster_only(record) && record.id.is_some();
        // A cluster that is given up shows nothing any more: then only OpenStack counts.
        let unknown = blind || cloud_error.is_some() || (silent && self.given_up && !proven);
        if !(object_stays || holder_stays || in_cloud.is_some() || unknown) {
            return None;
        }
        let in_cluster = object_stays || holder_stays;
        let since = object
            .and_then(|object| object.deleting)
            .or(holder.and_then(|(_, deleting)| deleting))
            .map(|since| self.no_earlier_than_ours(since))
            .or_else(|| self.waiting_since(in_cluster));
        let over = since.is_some_and(|since| {
            is_over(since, self.snapshot.run.spec.timeouts.per_object.duration(), self.now)
        });
        let refused = in_cloud.as_deref() == Some("error_deleting")
            && self.snapshot.run.spec.leftovers == Leftovers::Report;
        let reported = sweep::reported(&self.snapshot.run, record);
        let mut why = Vec::new();
        if let (true, Some(kind)) = (object_stays, &record.object) {
            why.push(match object.and_then(|object| object.deleting) {
                Some(_) => format!("the {kind} is being deleted and still there"),
                None => format!("the {kind} is still there"),
            });
        } else if let (true, Some((name, _))) = (holder_stays, holder) {
            why.push(format!("{name} is still there"));
        }
        if let (Some((name, _)), Ok(cluster)) = (holder, &self.snapshot.cluster) {
            let node = cluster.attachments.get(name);
            why.extend(node.map(|node| format!("it is attached to Node {node}")));
        }
        why.extend(in_cloud.as_ref().map(|state| format!("the {} is {state} in OpenStack", record.kind)));
        if matches!(&self.snapshot.cloud, Some(Ok(_))) && record.id.is_some() && !self.in_own_project {
            why.push(inventory::SHOWS_NOTHING.to_owned());
        }
        if cluster_only && self.in_own_project && cloud_error.is_none() {
            why.push("OpenStack has shown no such snapshot: is it a backup?".to_owned());
        }
        if let Some(other) = self.snapshot.foreign(record) {
            why.push(format!("its {} is {other}: it is left to that cluster", crate::names::CSI_CLUSTER));
        }
        why.extend(reported.map(str::to_owned));
        if blind || (silent && record.object.is_some() && in_cloud.is_none()) {
            why.extend(
                self.snapshot
                    .cluster
                    .as_ref()
                    .err()
                    .map(|error| format!("the target cannot be read: {error}")),
            );
        }
        why.extend(cloud_error.map(|error| format!("OpenStack cannot be read: {error}")));
        why.extend(self.failure(record).map(|error| format!("last try: {error}")));
        if over {
            why.push(format!("not gone within {}", self.snapshot.run.spec.timeouts.per_object));
        }
        Some(Outlook {
            in_cluster,
            untouched: object_stays && object.is_some_and(|object| object.by_us && object.deleting.is_none()),
            refused: self.failure(record).is_some(),
            in_cloud,
            stuck: over || refused || reported.is_some(),
            why: why.join("; "),
        })
    }

    /// The time limit of what others began to delete before the run starts when the run begins to delete; and again where the run itself
    /// deletes it in OpenStack.
    fn no_earlier_than_ours(&self, since: Timestamp) -> Timestamp {
        let run = &self.snapshot.run;
        let since = run.status.started_at.map_or(since, |started| since.max(started));
        let ourselves = run.spec.leftovers == Leftovers::Delete
            && matches!(run.status.phase, Phase::Verify | Phase::Sweep);
        run.status.phase_since.filter(|_| ourselves).map_or(since, |begun| since.max(begun))
    }

    /// For what the target does not show as being deleted: the phase that waits for it.
    fn waiting_since(&self, in_cluster: bool) -> Option<Timestamp> {
        let status = &self.snapshot.run.status;
        match status.phase {
            Phase::Verify | Phase::Sweep | Phase::Routes => status.phase_since,
            _ if in_cluster => status.started_at,
            _ => None,
        }
    }

    fn failure(&self, record: &Recorded) -> Option<&str> {
        let of = |kind: &str, id: &str| self.snapshot.failures.get(&key(kind, id)).map(String::as_str);
        of("Object", &record.uid)
            .filter(|_| !record.uid.is_empty())
            .or_else(|| of("Cloud", record.id.as_deref()?))
    }
}

/// Whether so much time has passed.
#[must_use]
pub fn is_over(since: Timestamp, limit: Duration, now: Timestamp) -> bool {
    now.duration_since(since).unsigned_abs() >= limit && now >= since
}

/// Whether a load balancer exists that only the cluster's own Service refers to: it serves others, and has neither a name nor a tag
/// of the Service. Whether the Service's part of it is gone cannot be verified.
#[must_use]
pub fn is_shared_unverifiably(record: &Recorded, cloud: &Cloud) -> bool {
    let there = || record.id.as_deref().is_some_and(|id| cloud.load_balancers.contains_key(id));
    record.kind == Kind::LoadBalancer
        && record.shared
        && record.tag.is_none()
        && !ObjectKind::Ingress.has(record)
        && there()
}

/// Whether only the cluster can report that it is gone: a VolumeSnapshot may also be a backup of Cinder (a class of `type: backup`),
/// which is not among Cinder's snapshots.
#[must_use]
pub fn is_known_to_the_cluster_only(record: &Recorded) -> bool {
    record.kind == Kind::Snapshot && !record.seen
}

/// Its state in OpenStack; None where it is gone, or serves only others now. `cluster`: the run's clusterName.
fn state_of(record: &Recorded, cluster: &str, cloud: &Cloud) -> Option<String> {
    let id = record.id.as_deref()?;
    match record.kind {
        Kind::Volume => cloud.volumes.get(id).map(|seen| seen.status.clone()),
        Kind::Snapshot => cloud.snapshots.get(id).map(|seen| seen.status.clone()),
        Kind::LoadBalancer => {
            let seen = cloud.load_balancers.get(id)?;
            let tagged = record.tag.as_ref().is_some_and(|tag| seen.tags.contains(tag));
            // It has the name of one Ingress, and others have it only by accident: the run waits for it, also if it is shared.
            if !record.shared || ObjectKind::Ingress.has(record) {
                Some(seen.status.clone())
            } else if tagged {
                Some("shared, and has our tag".to_owned())
            } else {
                let other = sharing::other_cluster(cluster, record, seen)?;
                Some(format!(
                    "{}, and of a Service of this name in a cluster {other}: is spec.clusterName what the cloud controller manager has as --cluster-name?",
                    seen.status
                ))
            }
        }
        Kind::FloatingIP => cloud.floating_ips.get(id).map(|seen| format!("allocated ({})", seen.address)),
        Kind::SecurityGroup => cloud.security_groups.get(id).map(|_| "there".to_owned()),
    }
}
