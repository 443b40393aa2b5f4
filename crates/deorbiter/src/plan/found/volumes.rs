//! Volumes, by their claims or, where these are gone, by their PersistentVolumes.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};

use common::api::deorbit::{Kind, Provider};

use super::snapshots::Held;
use super::{Finder, Found, record};
use crate::names;
use crate::observe::snapshot::{Claim, Volume};
use crate::plan::action::{Object, ObjectKind};
use crate::plan::inventory::Made;

impl Finder<'_> {
    /// Whether a claim has a volume in scope, or waits for one. Of a bound claim, its volume decides, whatever its class. One that
    /// names the volume of another claim holds nothing, and never will.
    pub(super) fn holds_volume(&self, claim: &Claim) -> bool {
        match &claim.volume {
            Some(name) => self.by_name.get(name.as_str()).is_some_and(|volume| volume.is_for(claim)),
            None => self.cluster.awaits_volume(claim),
        }
    }

    /// PersistentVolumeClaims.
    pub(super) fn claims(&mut self, held: &Held) {
        let kept_pods = self.cluster.pods.iter().filter(|pod| pod.meta.keep);
        let in_use: HashSet<(&str, &str)> = kept_pods
            .flat_map(|pod| pod.claims.iter().map(|claim| (pod.meta.namespace.as_str(), claim.as_str())))
            .collect();
        let cloud = self.cloud;
        let made = LazyCell::new(move || cloud.map(Made::of));
        for claim in &self.cluster.claims {
            if !self.holds_volume(claim) {
                continue;
            }
            let volume = claim.volume.as_deref().and_then(|name| self.by_name.get(name).copied());
            // A provisioner may have created it before the claim was bound.
            let late = || made.as_ref()?.id(Kind::Volume, &claim.meta.uid);
            let id = volume.map(|volume| volume.id.clone()).or_else(late);
            let retain = volume.is_some_and(|volume| volume.retain);
            let is_annotated = claim.meta.keep || volume.is_some_and(|volume| volume.meta.keep);
            let object = Object::new(ObjectKind::PersistentVolumeClaim, &claim.meta);
            let mut kept = self.kept(object.kind, id.as_deref(), is_annotated, retain);
            let name = (claim.meta.namespace.clone(), claim.meta.name.clone());
            if kept.is_none() && (held.claims.contains(&name) || held.holds(id.as_deref())) {
                kept = Some(Held::WHY.to_owned());
            }
            if kept.is_none() && in_use.contains(&(name.0.as_str(), name.1.as_str())) {
                kept = Some(format!("a pod that holds it carries {}", names::KEEP));
            }
            let release = volume.filter(|volume| volume.retain && kept.is_none());
            self.out.push(Found {
                record: record(Kind::Volume, id, object.kind, &claim.meta, kept),
                delete: Some(object),
                deleting: claim.meta.deleting,
                release: release.map(|volume| Object::new(ObjectKind::PersistentVolume, &volume.meta)),
            });
        }
    }

    /// PersistentVolumes whose claim is gone, or never existed.
    pub(super) fn volumes(&mut self, held: &Held) {
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
            let object = Object::new(ObjectKind::PersistentVolume, &volume.meta);
            let mut kept = self.kept(object.kind, Some(&volume.id), volume.meta.keep, volume.retain);
            if kept.is_none() && held.holds(Some(&volume.id)) {
                kept = Some(Held::WHY.to_owned());
            }
            let never_bound = volume.was_never_bound();
            // No controller of the cluster deletes its volume, and without the object the volume's ID would be lost.
            let is_only_name = self.run.spec.provider == Provider::Any;
            if kept.is_none() && never_bound && (is_only_name || !self.retained()) {
                kept = Some("no claim was ever bound to it".to_owned());
            }
            let go = kept.is_none() && volume.retain;
            self.out.push(Found {
                record: record(Kind::Volume, Some(volume.id.clone()), object.kind, &volume.meta, kept),
                // A released one is deleted by its policy.
                delete: never_bound.then(|| object.clone()),
                deleting: volume.meta.deleting,
                release: go.then_some(object),
            });
        }
    }
}

impl Volume {
    /// Whether it is bound to or reserved for the claim that names it.
    fn is_for(&self, claim: &Claim) -> bool {
        self.claim.as_deref().is_none_or(|uid| uid.is_empty() || uid == claim.meta.uid)
    }

    /// Whether no claim was ever bound to it: one that is reserved for a claim by name is bound when it gets that claim's UID. No
    /// controller of the cluster deletes such a one.
    pub(in crate::plan) fn was_never_bound(&self) -> bool {
        self.claim.as_deref().is_none_or(str::is_empty)
    }
}
