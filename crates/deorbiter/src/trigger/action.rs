//! The actions of the bindings.

use std::collections::BTreeMap;
use std::fmt;

use common::plan::{self, Regarding};
use serde::Serialize;
use serde_json::Value;

use super::reason::Reason;
use super::snapshot::ObjectId;
use crate::names;

/// One write.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "action")]
pub enum Action {
    /// Adds a binding's own finalizer to it.
    GuardBinding {
        /// Name of the binding.
        binding: String,
        /// Its UID.
        uid: String,
    },
    /// Removes it.
    ReleaseBinding {
        /// Name of the binding.
        binding: String,
        /// Its UID.
        uid: String,
        /// The finalizer that no object may carry for it any more.
        finalizer: String,
        /// No Machine may carry its hook either.
        machines: bool,
    },
    /// Adds finalizer and annotation to an object.
    Bind {
        /// The object.
        target: ObjectId,
        /// The binding.
        binding: String,
        /// The finalizer.
        finalizer: String,
    },
    /// Removes finalizer and annotation from an object.
    Release {
        /// The object.
        target: ObjectId,
        /// The binding.
        binding: String,
        /// The finalizer.
        finalizer: String,
        /// Whether the object was being deleted when this was decided.
        terminating: bool,
    },
    /// Adds the pre-terminate hook to a Machine.
    HookMachine {
        /// The Machine.
        machine: ObjectId,
        /// The binding.
        binding: String,
    },
    /// Removes the hook from a Machine.
    UnhookMachine {
        /// The Machine.
        machine: ObjectId,
        /// Name of its Cluster.
        cluster: String,
        /// The value of the annotation: the binding that added the hook.
        hook: String,
        /// The finalizer of each binding with hooks: while the Cluster has it, a Machine that is deleted with the Cluster keeps the hook.
        #[serde(skip)]
        finalizers: BTreeMap<String, String>,
    },
    /// Creates the Deorbit of an object.
    CreateDeorbit {
        /// The object.
        target: ObjectId,
        /// The binding.
        binding: String,
        /// The object's resourceVersion when this was decided.
        resource_version: String,
        /// Namespace of the Deorbit.
        namespace: String,
        /// Name of the Deorbit.
        name: String,
        /// The whole Deorbit.
        manifest: Value,
    },
    /// Records the UID of the object's Deorbit on the object: it was created, and deorbiter stopped before it was recorded.
    RecordDeorbit {
        /// The object.
        target: ObjectId,
        /// Namespace and name of the Deorbit.
        deorbit: String,
        /// Its UID.
        uid: String,
    },
    /// Deletes a running Deorbit, which aborts it and lifts its block.
    AbortDeorbit {
        /// The object that it is for.
        target: ObjectId,
        /// Namespace of the Deorbit.
        namespace: String,
        /// Name of the Deorbit.
        name: String,
        /// Its UID.
        uid: String,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::GuardBinding { binding, .. } => {
                write!(f, "add the finalizer to DeorbitBinding {binding}")
            }
            Action::ReleaseBinding { binding, .. } => {
                write!(f, "remove the finalizer from DeorbitBinding {binding}")
            }
            Action::Bind { target, finalizer, .. } => write!(f, "add finalizer {finalizer} to {target}"),
            Action::Release { target, finalizer, .. } => {
                write!(f, "remove finalizer {finalizer} from {target}")
            }
            Action::HookMachine { machine, .. } => write!(f, "add the pre-terminate hook to {machine}"),
            Action::UnhookMachine { machine, .. } => {
                write!(f, "remove the pre-terminate hook from {machine}")
            }
            Action::CreateDeorbit { namespace, name, .. } => write!(f, "create Deorbit {namespace}/{name}"),
            Action::RecordDeorbit { target, deorbit, .. } => {
                write!(f, "record Deorbit {deorbit} on {target}")
            }
            Action::AbortDeorbit { namespace, name, .. } => {
                write!(f, "abort Deorbit {namespace}/{name} by deleting it")
            }
        }
    }
}

impl plan::Action for Action {
    type Reason = Reason;

    fn name(&self) -> &'static str {
        match self {
            Action::GuardBinding { .. } => "GuardBinding",
            Action::ReleaseBinding { .. } => "ReleaseBinding",
            Action::Bind { .. } => "Bind",
            Action::Release { .. } => "Release",
            Action::HookMachine { .. } => "HookMachine",
            Action::UnhookMachine { .. } => "UnhookMachine",
            Action::CreateDeorbit { .. } => "CreateDeorbit",
            Action::RecordDeorbit { .. } => "RecordDeorbit",
            Action::AbortDeorbit { .. } => "AbortDeorbit",
        }
    }

    fn regarding(&self) -> Regarding {
        match self {
            Action::GuardBinding { binding, uid } | Action::ReleaseBinding { binding, uid, .. } => {
                about_binding(binding, uid)
            }
            Action::HookMachine { machine: target, .. }
            | Action::UnhookMachine { machine: target, .. }
            | Action::Bind { target, .. }
            | Action::Release { target, .. }
            | Action::CreateDeorbit { target, .. }
            | Action::RecordDeorbit { target, .. }
            | Action::AbortDeorbit { target, .. } => about(target),
        }
    }
}

/// An object as Events have it.
#[must_use]
pub fn about(target: &ObjectId) -> Regarding {
    Regarding {
        api_version: target.api_version,
        kind: target.kind,
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        uid: Some(target.uid.clone()),
    }
}

/// A binding as Events have it.
#[must_use]
pub fn about_binding(name: &str, uid: &str) -> Regarding {
    Regarding {
        api_version: names::API_VERSION,
        kind: "DeorbitBinding",
        namespace: None,
        name: name.to_owned(),
        uid: Some(uid.to_owned()),
    }
}
