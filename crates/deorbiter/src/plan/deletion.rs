//! Deletes in the target cluster: only objects whose OpenStack ID was recorded before.

use std::collections::HashMap;
use std::sync::Arc;

use common::api::deorbit::{Kind, PodDeletion};
use jiff::Timestamp;

use super::action::{Act, Object, ObjectKind};
use super::found::Found;
use super::reason::Reason;
use crate::observe::snapshot::{Cluster, Run};
use crate::record::Recorded;

/// The steps, in the order snapshots, pods, claims and volumes, Services, Ingresses.
#[must_use]
pub fn steps(run: &Run, records: &[Arc<Recorded>], cluster: &Cluster, found: &[Found]) -> Vec<(Act, Reason)> {
    let recorded: HashMap<(Kind, &str), &Arc<Recorded>> =
        records.iter().map(|record| ((record.kind, record.uid.as_str()), record)).collect();
    let by_id: HashMap<(Kind, &str), &Arc<Recorded>> =
        records.iter().filter_map(|record| Some(((record.kind, record.id.as_deref()?), record))).collect();
    let known = |one: &Found| {
        let of_object = recorded.get(&(one.record.kind, one.record.uid.as_str())).copied();
        of_object
            .or_else(|| one.record.id.as_deref().and_then(|id| by_id.get(&(one.record.kind, id)).copied()))
    };
    let goes = |(one, known): &(&Found, &Arc<Recorded>)| {
        // The object's resource in OpenStack may be gone meanwhile, and the object still has to be deleted.
        let same = one.record.id.is_none() || known.id == one.record.id;
        one.record.kept.is_none() && known.kept.is_none() && same
    };
    // With the records of each.
    let going: Vec<(&Found, &Arc<Recorded>)> =
        found.iter().filter_map(|one| Some((one, known(one)?))).filter(goes).collect();
    let mut steps = Vec::new();
    for (one, _) in &going {
        if let Some(object) = &one.release {
            steps.push((Act::SetDeletePolicy { object: object.clone() }, Reason::RetainOverridden));
        }
    }
    let delete = |kinds: &[ObjectKind], steps: &mut Vec<(Act, Reason)>| {
        for (one, known) in &going {
            match &one.delete {
                Some(object) if one.deleting.is_none() && kinds.contains(&object.kind) => {
                    let id = known.id.clone();
                    steps.push((Act::DeleteObject { object: object.clone(), id }, Reason::Requested));
                }
                _ => {}
            }
        }
    };
    delete(&[ObjectKind::VolumeSnapshot, ObjectKind::VolumeSnapshotContent], &mut steps);
    if run.spec.pod_deletion == PodDeletion::Delete {
        let claims: HashMap<(&str, &str), Option<Timestamp>> = going
            .iter()
            .filter_map(|(one, _)| Some((one.delete.as_ref()?, one.deleting)))
            .filter(|(object, _)| object.kind == ObjectKind::PersistentVolumeClaim)
            .map(|(object, since)| ((object.namespace.as_str(), object.name.as_str()), since))
            .collect();
        for pod in cluster.pods.iter().filter(|pod| pod.meta.deleting.is_none() && !pod.meta.keep) {
            let held = pod.claims.iter().find(|claim| {
                let since = claims.get(&(pod.meta.namespace.as_str(), claim.as_str()));
                // A recreated pod gets no Node while its claim is being deleted, so it does not block the deletion.
                since.is_some_and(|since| since.is_none() || !pod.unscheduled)
            });
            if let Some(claim) = held {
                let object = Object::new(ObjectKind::Pod, &pod.meta);
                steps.push((
                    Act::DeleteObject { object, id: None },
                    Reason::UsesClaim { claim: claim.clone() },
                ));
            }
        }
    }
    delete(&[ObjectKind::PersistentVolumeClaim, ObjectKind::PersistentVolume], &mut steps);
    delete(&[ObjectKind::Service], &mut steps);
    delete(&[ObjectKind::Ingress], &mut steps);
    steps
}
