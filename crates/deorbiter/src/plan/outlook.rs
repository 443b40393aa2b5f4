//! The records with an object or a resource that still exists, and those that take too long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{Debris, Kind, RetainedVolumes};
use jiff::Timestamp;

use super::discovery;
use super::presence::{AbsentBy, NOT_PROVEN, Presence, presence};
use crate::observe::snapshot::{Meta, Snapshot, key};
use crate::record::{Book, Recorded};

/// A record with an object or a resource that still exists, or may exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Left<'a> {
    /// The record.
    pub record: &'a Recorded,
    /// The presence of its resource in OpenStack.
    pub presence: Presence,
    /// An object of the target still holds it.
    pub in_cluster: bool,
    /// That object exists, deorbiter deletes it, and it is not being deleted yet.
    pub untouched: bool,
    /// The last action on it failed.
    pub refused: bool,
    /// It takes longer than `timeouts.perObject`, or its driver has given up.
    pub overdue: bool,
    /// It is only reported.
    pub reported: bool,
    /// The login is not proven for its service: nothing is deleted there.
    pub unproven: bool,
    /// Why it still exists.
    pub why: String,
}

impl Left<'_> {
    /// As it is listed at the end.
    #[must_use]
    pub fn debris(&self) -> Debris {
        Debris {
            kind: self.record.kind.name().to_owned(),
            id: self.record.id.clone(),
            name: self.record.name.clone(),
            namespace: self.record.namespace.clone(),
            reason: self.why.clone(),
        }
    }
}

/// Everything that is to be deleted and not known to be gone. `given_up`: the target is not waited for any more.
#[must_use]
pub fn left<'a>(
    snapshot: &Snapshot,
    book: &Book,
    records: &'a [Arc<Recorded>],
    given_up: bool,
    now: Timestamp,
) -> Vec<Left<'a>> {
    let judge = Judge::new(snapshot, book, given_up, now);
    let desired = records.iter().filter(|record| record.kept.is_none());
    desired.filter_map(|record| judge.left(record)).collect()
}

struct Judge<'a> {
    snapshot: &'a Snapshot,
    book: &'a Book,
    given_up: bool,
    now: Timestamp,
    /// The objects of the target, by UID.
    objects: HashMap<&'a str, Object>,
    /// PersistentVolumes and VolumeSnapshotContents by what they hold.
    holders: HashMap<(Kind, &'a str), &'a Meta>,
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
    fn new(snapshot: &'a Snapshot, book: &'a Book, given_up: bool, now: Timestamp) -> Judge<'a> {
        let (mut objects, mut holders) = (HashMap::new(), HashMap::new());
        if let Ok(cluster) = &snapshot.cluster {
            let retained = snapshot.run.spec.retained_volumes == RetainedVolumes::Delete;
            let object =
                |meta: &'a Meta, by_us: bool| (meta.uid.as_str(), Object { deleting: meta.deleting, by_us });
            objects.extend(cluster.metas().map(|meta| object(meta, true)));
            // Of these two, the policy may decide.
            objects.extend(cluster.volumes.iter().map(|one| object(&one.meta, one.was_never_bound())));
            objects.extend(cluster.contents.iter().map(|one| object(&one.meta, retained)));
            holders.extend(cluster.holders());
        }
        Judge { snapshot, book, given_up, now, objects, holders }
    }

    /// None: it is gone.
    fn left<'r>(&self, record: &'r Recorded) -> Option<Left<'r>> {
        let Snapshot { run, cluster, cloud, .. } = self.snapshot;
        let along = matches!(record.kind, Kind::FloatingIP | Kind::SecurityGroup);
        let object = self.objects.get(record.uid.as_str()).copied().filter(|_| !along);
        let holder = record.id.as_deref().and_then(|id| self.holders.get(&(record.kind, id)).copied());
        let presence = presence(run, cloud.as_ref(), &self.book.proof, record);
        let is_absent = matches!(presence, Presence::Absent(_));
        let untouched = object.is_some_and(|object| object.by_us && object.deleting.is_none());
        // The run does not wait for the finalizer of a stopped controller once the resource is known to be gone.
        let object_stays = object.is_some() && (presence != Presence::Absent(AbsentBy::Id) || untouched);
        let holder_stays = holder.is_some() && !is_absent;
        // The cluster shows whether an object is gone, as long as it responds.
        let unseen = cluster.is_err() && (record.object.is_some() || self.given_up);
        let unknown = !is_absent && (unseen || matches!(cloud, Some(Err(_))));
        if !(object_stays || holder_stays || matches!(presence, Presence::Present(_)) || unknown) {
            return None;
        }
        let in_cluster = object_stays || holder_stays;
        let deleting = object.and_then(|object| object.deleting).or(holder.and_then(|meta| meta.deleting));
        let since = match deleting {
            // The limit of what was being deleted before the run starts with the run.
            Some(since) => Some(self.book.deleting_since.map_or(since, |begun| since.max(begun))),
            None if in_cluster => self.book.deleting_since,
            None => self.book.phase_since,
        };
        let limit = run.spec.timeouts.per_object;
        let over = since.is_some_and(|since| is_over(since, limit.duration(), self.now));
        let failed = presence == Presence::Present("error_deleting".to_owned());
        let reported = discovery::reported(run, record);
        let mut why = Vec::new();
        if let (true, Some(kind)) = (object_stays, record.object) {
            why.push(match object.and_then(|object| object.deleting) {
                Some(_) => format!("the {kind} is being deleted and still there"),
                None => format!("the {kind} is still there"),
            });
        } else if let (true, Some(meta)) = (holder_stays, holder) {
            why.push(format!("{} is still there", meta.name));
        }
        if let (Some(meta), Ok(cluster)) = (holder, cluster) {
            why.extend(
                cluster.attachments.get(&meta.name).map(|node| format!("it is attached to Node {node}")),
            );
        }
        let unproven = !self.book.proof.covers(record.kind);
        match &presence {
            Presence::Present(state) => {
                why.push(format!("the {} is {state} in OpenStack", record.kind));
                why.extend(unproven.then(|| NOT_PROVEN.to_owned()));
            }
            Presence::Unknown(reason) if cloud.is_some() => why.push(reason.clone()),
            _ => {}
        }
        if let Some(other) = self.snapshot.foreign(record) {
            why.push(format!("its {} is {other}: it is left to that cluster", crate::names::CSI_CLUSTER));
        }
        why.extend(reported.map(str::to_owned));
        if unseen && !is_absent {
            why.extend(cluster.as_ref().err().map(|error| format!("the target cannot be read: {error}")));
        }
        let failure = self.failure(record);
        why.extend(failure.map(|error| format!("last try: {error}")));
        if over {
            why.push(format!("not gone within {limit}"));
        }
        Some(Left {
            record,
            presence,
            in_cluster,
            untouched: object_stays && untouched,
            refused: failure.is_some(),
            overdue: over || failed,
            reported: reported.is_some(),
            unproven,
            why: why.join("; "),
        })
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
