//! Snapshots, and what is kept because of them.

use std::collections::{HashMap, HashSet};

use common::api::deorbit::Kind;

use super::{Finder, Found, record};
use crate::observe::snapshot::{Claim, Content};
use crate::plan::action::{Object, ObjectKind};

/// Claims and volumes with a snapshot that is kept: Cinder refuses to delete a volume with a snapshot.
#[derive(Default)]
pub(super) struct Held {
    /// By namespace and name.
    pub claims: HashSet<(String, String)>,
    /// By ID.
    pub volumes: HashSet<String>,
}

impl Finder<'_> {
    /// VolumeSnapshots, and contents without one.
    pub(super) fn snapshots(&mut self) -> Held {
        let mut held = Held::default();
        let contents: HashMap<&str, _> =
            self.cluster.contents.iter().map(|content| (content.meta.name.as_str(), content)).collect();
        let claims: HashMap<(&str, &str), &Claim> = self
            .cluster
            .claims
            .iter()
            .map(|claim| ((claim.meta.namespace.as_str(), claim.meta.name.as_str()), claim))
            .collect();
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
                None if source.is_some_and(|claim| self.holds_volume(claim)) => None,
                None => continue,
            };
            named.extend(content.map(|content| content.meta.name.as_str()));
            let id = content.and_then(|content| content.id.clone());
            let retain = content.is_some_and(|content| content.retain);
            let is_annotated = snapshot.meta.keep || content.is_some_and(|content| content.meta.keep);
            let kept = self.kept(ObjectKind::VolumeSnapshot, id.as_deref(), is_annotated, retain);
            if kept.is_some() {
                let claim =
                    snapshot.claim.iter().map(|claim| (snapshot.meta.namespace.clone(), claim.clone()));
                held.claims.extend(claim);
                held.volumes.extend(content.and_then(|content| self.source(content)));
            }
            let release = content.filter(|content| content.retain && kept.is_none());
            self.out.push(Found {
                record: record(Kind::Snapshot, id, ObjectKind::VolumeSnapshot, &snapshot.meta, kept),
                delete: Some(Object::new(ObjectKind::VolumeSnapshot, &snapshot.meta)),
                deleting: snapshot.meta.deleting,
                release: release.map(|content| Object::new(ObjectKind::VolumeSnapshotContent, &content.meta)),
            });
        }
        // Contents that no VolumeSnapshot names.
        for content in &self.cluster.contents {
            if named.contains(content.meta.name.as_str()) {
                continue;
            }
            let object = Object::new(ObjectKind::VolumeSnapshotContent, &content.meta);
            let mut kept = self.kept(object.kind, content.id.as_deref(), content.meta.keep, content.retain);
            // Its policy applies when its VolumeSnapshot is deleted, and it never had one.
            if kept.is_none() && content.was_never_bound() && !self.retained() {
                kept = Some("no VolumeSnapshot was ever bound to it".to_owned());
            }
            if kept.is_some() {
                held.volumes.extend(self.source(content));
            }
            let go = self.retained() && content.retain && kept.is_none();
            self.out.push(Found {
                record: record(Kind::Snapshot, content.id.clone(), object.kind, &content.meta, kept),
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
}

impl Content {
    /// Whether no VolumeSnapshot was ever bound to it: one that is reserved by name is bound when it gets that one's UID.
    fn was_never_bound(&self) -> bool {
        self.snapshot.as_deref().is_none_or(str::is_empty)
    }
}

impl Held {
    /// Why a volume that has one is kept.
    pub const WHY: &str = "it has a snapshot that is kept";

    /// Whether it has the volume of this ID.
    pub fn holds(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.volumes.contains(id))
    }
}
