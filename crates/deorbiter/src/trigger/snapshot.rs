//! The observed state of bindings, the objects of their kinds, and Deorbits, at one time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use common::api::deorbit::DeorbitSpec;
use common::api::deorbit_binding::DeorbitBindingStatus;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::path::FieldPath;
use super::template::Template;

/// Everything, taken at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Bindings, in any order.
    pub bindings: Vec<Binding>,
    /// Deorbits of all namespaces.
    pub deorbits: Vec<Deorbit>,
}

/// A DeorbitBinding and what it is about.
#[derive(Clone, Debug)]
pub struct Binding {
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// metadata.generation
    pub generation: Option<i64>,
    /// metadata.creationTimestamp: of two that select one object, the older has it.
    pub created: Timestamp,
    /// It is being deleted.
    pub terminating: bool,
    /// It carries its own finalizer.
    pub guarded: bool,
    /// The finalizer that it puts on objects.
    pub finalizer: String,
    /// Its rules, or why they cannot be used.
    pub rules: Result<Rules, String>,
    /// API group and kind of its objects.
    pub kind: (String, String),
    /// The objects of its kind.
    pub targets: Targets,
    /// Its `machineHook` is PreTerminate.
    pub hooks: bool,
    /// In this case all Machines of Cluster API.
    pub machines: Vec<Machine>,
    /// Its status, which has the last counts.
    pub status: DeorbitBindingStatus,
}

/// The rules of a binding.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Only an object in this phase gets the finalizer.
    pub finalizer_when: Option<PhaseIs>,
    /// The Deorbit begins in this phase.
    pub when: Option<PhaseIs>,
    /// Annotations that protect.
    pub protections: BTreeSet<String>,
    /// The template of the binding's Deorbits.
    pub template: Template,
}

/// A field and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseIs {
    /// Path of the field.
    pub path: FieldPath,
    /// Its value.
    pub equals: String,
}

impl PhaseIs {
    /// Whether the field has this value; a missing field has none.
    #[must_use]
    pub fn holds(&self, object: &Value) -> bool {
        self.path.text(object).is_ok_and(|text| text == self.equals)
    }
}

/// The objects of a binding's kind.
#[derive(Clone, Debug)]
pub enum Targets {
    /// All of them: selected, or with the annotation of a binding.
    Whole(Vec<Target>),
    /// The API server does not serve the kind, so there are none.
    NotServed(String),
    /// They could not be listed, or one of them could not be read.
    Unknown(String),
}

/// An object that stands for a cluster.
#[derive(Clone, Debug)]
pub struct Target {
    /// The object's API version, kind, namespace, name and UID.
    pub object: ObjectId,
    /// metadata.resourceVersion
    pub resource_version: String,
    /// metadata.finalizers
    pub finalizers: Vec<String>,
    /// The binding in its annotation.
    pub bound_by: Option<String>,
    /// It is being deleted.
    pub terminating: bool,
    /// The binding selects it.
    pub selected: bool,
    /// UID of the Deorbit that its binding created, in its annotation.
    pub deorbit_uid: Option<String>,
    /// Those of its annotations that protect it, by the binding.
    pub annotations: BTreeMap<String, String>,
    /// The whole object, where its phase or its template has to be known (see [`super::plan::needs_body`]).
    pub body: Option<Value>,
    /// The API server's refusal of a Deorbit for this version of it and this generation of the binding.
    pub refused: Option<Refused>,
}

/// A Machine of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The Machine's API version, kind, namespace, name and UID.
    pub object: ObjectId,
    /// Name of its Cluster, which is in the same namespace.
    pub cluster: String,
    /// It is being deleted.
    pub terminating: bool,
    /// The binding in the annotation of our hook.
    pub hook: Option<String>,
}

/// The API server refused a Deorbit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub why: String,
    /// It was long enough ago to try again.
    pub stale: bool,
}

/// An object of any kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectId {
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// None for a kind without namespaces.
    pub namespace: Option<String>,
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The same text with a static lifetime, which Events need for kinds. Each text is stored once and never freed: there are a few, those of
/// the kinds that bindings have named.
#[must_use]
pub fn lasting(text: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = known.get(text) {
        return text;
    }
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    known.insert(text);
    text
}

/// A Deorbit.
#[derive(Clone, Debug)]
pub struct Deorbit {
    /// metadata.namespace
    pub namespace: String,
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// UID of the object that it was created for, by its label, which anyone can write.
    pub target_uid: Option<String>,
    /// Its spec.
    pub spec: DeorbitSpec,
    /// It is being deleted.
    pub terminating: bool,
    /// How it ended, if it has.
    pub end: Option<End>,
}

/// How a Deorbit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is gone.
    Complete,
    /// Something is left, and its timeouts release the cluster.
    CompletedWithDebris,
    /// Something is left, and the cluster must stay.
    Failed,
}
