//! Decides what to write. Each function gets the settings and the neighbourhood of one source object, and returns the steps that its
//! inputs allow now.
//!
//! An API server allocates IDs and addresses while it creates an object, so the next steps follow from its response: the caller
//! executes the steps, puts the responses into the snapshot, and plans again until there are no steps.
//!
//! ```text
//!   steps    Action, Reason: the words of dry runs, logs, Events and metrics
//!   network, virtual_ip, nat_gateway, load_balancer, network_interface, network_policy     one kind each
//! ```

pub mod load_balancer;
pub mod nat_gateway;
pub mod network;
pub mod network_interface;
pub mod network_policy;
pub mod steps;
pub mod virtual_ip;

#[cfg(test)]
mod convergence;
#[cfg(test)]
mod fixtures;

use std::collections::BTreeMap;

use common::plan::Regarding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::api::VERSION;
use crate::config::Config;
use crate::names::{Flavor, Kind};
use crate::origin::{Keys, Origin};
pub use steps::{Action, Desired, Plan, Reason, Status};

/// Whether this program manages a source object: no other program does, and the watch filter selects it.
fn is_managed(config: &Config, metadata: &ObjectMeta) -> bool {
    let names = config.flavor.names();
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(names.watch_filter));
    let managed_by = metadata.annotations.as_ref().and_then(|all| all.get(names.managed_by));
    managed_by.is_none() && (config.watch_filter.is_none() || label == config.watch_filter.as_ref())
}

/// The source object as the subject of Events.
fn regarding(flavor: Flavor, kind: &'static str, metadata: &ObjectMeta) -> Regarding {
    Regarding {
        api_version: flavor.names().networking_version,
        kind,
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone(),
    }
}

/// The life of a source object with a counterpart of its own in the apinet cluster.
enum Life {
    /// Nothing is to be done.
    Foreign,
    /// It is being deleted: the counterpart is deleted, then the finalizer is removed.
    Deleted,
    /// The counterpart is applied.
    Live(Origin),
}

/// Plans the finalizer and the deletion. `counterpart`: the metadata of the object that has the UID as name, if there is one. It is
/// deleted only if it names the source object.
fn life(
    config: &Config,
    kind: Kind,
    regarding: &Regarding,
    metadata: &ObjectMeta,
    counterpart: Option<&ObjectMeta>,
    plan: &mut Plan,
) -> Life {
    let finalizer = config.flavor.finalizer(kind);
    let has_finalizer = metadata.finalizers.iter().flatten().any(|one| *one == finalizer);
    let Some(origin) = Origin::of(metadata).filter(|_| is_managed(config, metadata)) else {
        return Life::Foreign;
    };
    if metadata.deletion_timestamp.is_some() {
        if !has_finalizer {
            return Life::Foreign;
        }
        let keys = Keys::of(config.flavor, kind);
        let is_own = |one: &&ObjectMeta| keys.read(one).is_some_and(|of| of.uid == origin.uid);
        match counterpart.filter(is_own) {
            Some(counterpart) if counterpart.deletion_timestamp.is_none() => {
                let uid = counterpart.uid.clone().unwrap_or_default();
                plan.step(Action::delete(regarding, kind, &origin.uid, uid), Reason::SourceDeleted);
            }
            // It has a finalizer of its own: the end of its deletion is the next event.
            Some(_) => {}
            None => plan.step(Action::remove_finalizer(regarding, finalizer), Reason::CounterpartGone),
        }
        return Life::Deleted;
    }
    if !has_finalizer {
        plan.step(Action::add_finalizer(regarding, finalizer), Reason::FinalizerMissing);
    }
    Life::Live(origin)
}

/// The metadata of a counterpart: the UID of its source is its name.
fn counterpart(config: &Config, kind: Kind, origin: &Origin) -> ObjectMeta {
    let written = Keys::of(config.flavor, kind).write(origin, config.layout);
    let filled = |map: BTreeMap<String, String>| Some(map).filter(|map| !map.is_empty());
    ObjectMeta {
        name: Some(origin.uid.clone()),
        namespace: Some(config.namespace.clone()),
        labels: filled(written.labels),
        annotations: filled(written.annotations),
        ..ObjectMeta::default()
    }
}

/// The controller reference of an object that is deleted with its owner. The owner is as the API server has served it.
fn owned_by(flavor: Flavor, kind: &str, owner: &ObjectMeta) -> Option<Vec<OwnerReference>> {
    Some(vec![OwnerReference {
        api_version: format!("{}/{VERSION}", flavor.names().apinet),
        kind: kind.to_owned(),
        name: owner.name.clone()?,
        uid: owner.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    }])
}

/// Whether the observed metadata has all labels, annotations and owner references of the desired one.
fn is_applied_metadata(desired: &ObjectMeta, observed: &ObjectMeta) -> bool {
    let has_all = |desired: &Option<BTreeMap<String, String>>,
                   observed: &Option<BTreeMap<String, String>>| {
        let observed = observed.as_ref();
        desired.iter().flatten().all(|(key, value)| observed.and_then(|map| map.get(key)) == Some(value))
    };
    let owners = observed.owner_references.as_deref().unwrap_or_default();
    has_all(&desired.labels, &observed.labels)
        && has_all(&desired.annotations, &observed.annotations)
        && desired.owner_references.iter().flatten().all(|owner| owners.contains(owner))
}
