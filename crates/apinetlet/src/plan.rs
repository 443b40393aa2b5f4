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
pub use steps::{Act, Action, Desired, Plan, Reason, Status};

/// Whether this program manages a source object: no other program does, and the watch filter selects it.
pub(crate) fn is_managed(config: &Config, metadata: &ObjectMeta) -> bool {
    let names = config.flavor.names();
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(names.watch_filter));
    let managed_by = metadata.annotations.as_ref().and_then(|all| all.get(names.managed_by));
    managed_by.is_none() && (config.watch_filter.is_none() || label == config.watch_filter.as_ref())
}

/// A source object that is gone, as its apinet object names it.
#[must_use]
pub fn regarding_origin(flavor: Flavor, kind: Kind, origin: &Origin) -> Regarding {
    Regarding {
        api_version: flavor.names().networking_version,
        kind: kind.name(),
        namespace: Some(origin.namespace.clone()),
        name: origin.name.clone(),
        uid: Some(origin.uid.clone()),
    }
}

/// The plan of one source object, while it is made.
struct Draft<'a> {
    config: &'a Config,
    kind: Kind,
    /// Of the source object.
    metadata: &'a ObjectMeta,
    /// The source object as the subject of Events.
    regarding: Regarding,
    plan: Plan,
}

impl<'a> Draft<'a> {
    fn new(config: &'a Config, kind: Kind, metadata: &'a ObjectMeta) -> Draft<'a> {
        let regarding = Regarding {
            api_version: config.flavor.names().networking_version,
            kind: kind.name(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone(),
        };
        Draft { config, kind, metadata, regarding, plan: Plan::default() }
    }

    fn step(&mut self, act: Act, because: Reason) {
        self.plan.step(Action { source: self.regarding.clone(), act }, because);
    }

    /// See [`Act::Apply`].
    fn apply(&mut self, desired: Desired, because: Reason) {
        self.step(Act::Apply(Box::new(desired)), because);
    }

    fn set_status(&mut self, status: Status) {
        self.step(Act::SetStatus(status), Reason::StatusOutdated);
    }

    fn problem(&mut self, because: Reason) {
        self.plan.problem(self.regarding.clone(), because);
    }

    /// The finalizer of the source object, if it is missing.
    fn missing_finalizer(&self) -> Option<String> {
        let finalizer = self.config.flavor.finalizer(self.kind);
        let has_finalizer = self.metadata.finalizers.iter().flatten().any(|one| *one == finalizer);
        (!has_finalizer).then_some(finalizer)
    }

    /// Plans the finalizer of a source object that is not being deleted.
    fn add_finalizer(&mut self) {
        if let Some(finalizer) = self.missing_finalizer() {
            self.step(Act::AddFinalizer(finalizer), Reason::FinalizerMissing);
        }
    }

    /// Plans the deletion of a source object with a counterpart of its own. Returns the object if its counterpart is to
    /// be applied. `counterpart`: the metadata of the object that has the UID as name, if there is one. It is deleted only if it names
    /// the source object.
    fn live(&mut self, counterpart: Option<&ObjectMeta>) -> Option<Origin> {
        let Draft { config, kind, metadata, .. } = *self;
        let origin = Origin::of(metadata).filter(|_| is_managed(config, metadata))?;
        if metadata.deletion_timestamp.is_none() {
            return Some(origin);
        }
        if self.missing_finalizer().is_none() {
            let keys = Keys::of(config.flavor, kind);
            let is_own = |one: &&ObjectMeta| keys.read(one).is_some_and(|of| of.uid == origin.uid);
            match counterpart.filter(is_own) {
                Some(counterpart) if counterpart.deletion_timestamp.is_none() => {
                    let uid = counterpart.uid.clone().unwrap_or_default();
                    self.step(Act::Delete { kind, name: origin.uid, uid }, Reason::SourceDeleted);
                }
                // It has a finalizer of its own: the end of its deletion is the next event.
                Some(_) => {}
                None => {
                    let finalizer = config.flavor.finalizer(kind);
                    let act = Act::RemoveFinalizer { finalizer, gone: Some(origin.uid) };
                    self.step(act, Reason::CounterpartGone);
                }
            }
        }
        None
    }
}

/// Why an object of the apinet cluster is to be applied; None if it is as desired.
fn outdated<K>(observed: Option<&K>, is_applied: impl FnOnce(&K) -> bool) -> Option<Reason> {
    match observed {
        None => Some(Reason::CounterpartMissing),
        Some(observed) => (!is_applied(observed)).then_some(Reason::CounterpartOutdated),
    }
}

/// The metadata of a counterpart: the UID of its source is its name.
fn counterpart(config: &Config, kind: Kind, origin: &Origin) -> ObjectMeta {
    let mut written = Keys::of(config.flavor, kind).write(origin, config.layout);
    written.labels.extend(mark(config));
    let filled = |map: BTreeMap<String, String>| Some(map).filter(|map| !map.is_empty());
    ObjectMeta {
        name: Some(origin.uid.clone()),
        namespace: Some(config.namespace.clone()),
        labels: filled(written.labels),
        annotations: filled(written.annotations),
        ..ObjectMeta::default()
    }
}

/// The label with the ID of the source cluster.
fn mark(config: &Config) -> Option<(String, String)> {
    Some((config.flavor.source_cluster_label(), config.source_cluster.clone()?))
}

/// The labels of a source object that its apinet object gets too. None of them can change what it is the counterpart of.
fn copied_labels(config: &Config, metadata: &ObjectMeta) -> BTreeMap<String, String> {
    if config.flavor == Flavor::Onmetal {
        return BTreeMap::new();
    }
    let is_ours = |key: &str| key.split('/').next() == Some(config.flavor.names().origin);
    let labels = metadata.labels.iter().flatten().filter(|(key, _)| !is_ours(key));
    labels.map(|(key, value)| (key.clone(), value.clone())).collect()
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

/// Whether the observed metadata has all labels, annotations and owner references of the desired one, and no other label that this
/// program has applied.
fn is_applied_metadata(config: &Config, desired: &ObjectMeta, observed: &ObjectMeta) -> bool {
    let has_all = |desired: &Option<BTreeMap<String, String>>,
                   observed: &Option<BTreeMap<String, String>>| {
        let observed = observed.as_ref();
        desired.iter().flatten().all(|(key, value)| observed.and_then(|map| map.get(key)) == Some(value))
    };
    let owners = observed.owner_references.as_deref().unwrap_or_default();
    has_all(&desired.labels, &observed.labels)
        && has_all(&desired.annotations, &observed.annotations)
        && desired.owner_references.iter().flatten().all(|owner| owners.contains(owner))
        && applied_labels(config, observed)
            .all(|key| desired.labels.as_ref().is_some_and(|labels| labels.contains_key(key)))
}

/// The keys of the labels that this program has applied, as far as a cache keeps `managedFields`.
fn applied_labels<'a>(config: &Config, observed: &'a ObjectMeta) -> impl Iterator<Item = &'a str> {
    let manager = config.flavor.names().field_manager.name();
    let entries = observed.managed_fields.iter().flatten();
    let own = entries.filter(move |entry| entry.manager.as_deref() == Some(manager));
    let labels =
        own.filter_map(|entry| entry.fields_v1.as_ref()?.0.pointer("/f:metadata/f:labels")?.as_object());
    labels.flat_map(|labels| labels.keys()).filter_map(|key| key.strip_prefix("f:"))
}
