//! The actions of a run.

use std::fmt;
use std::sync::Arc;

use common::api::deorbit::{self as api, Kind};
use common::plan::{self, Regarding, Related};
use common::routes::Route;
use serde::{Deserialize, Serialize};

use super::reason::Reason;
use crate::names;
use crate::observe::snapshot::{Block, Meta, Run, key};

/// Kind of an application credential in Events and debris.
pub const CREDENTIAL: &str = "ApplicationCredential";

/// One action. Its Events are on the Deorbit, since the objects are in another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// The Deorbit.
    #[serde(skip)]
    pub run: Arc<Regarding>,
    /// The operation.
    #[serde(flatten)]
    pub act: Act,
}

/// An operation on the Deorbit, in the target cluster or in OpenStack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Act {
    /// Adds the finalizer to the Deorbit.
    AddFinalizer,
    /// Removes it.
    RemoveFinalizer,
    /// Deletes the Deorbit itself.
    DeleteDeorbit,
    /// Blocks new objects in the target.
    Block {
        /// The form of the block.
        form: Form,
    },
    /// Lifts the block, in all its forms.
    Unblock {
        /// Name of its objects.
        name: String,
        /// Those that were read.
        #[serde(skip)]
        seen: Block,
    },
    /// Deletes an object of the target.
    DeleteObject {
        /// The object that is deleted.
        object: Object,
        /// The ID of what it holds in OpenStack.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Turns a Retain policy into Delete.
    SetDeletePolicy {
        /// A PersistentVolume or a VolumeSnapshotContent.
        object: Object,
    },
    /// Deletes something in OpenStack by its recorded ID.
    DeleteInCloud {
        /// Kind of the resource.
        kind: Kind,
        /// ID of the resource.
        id: String,
        /// Its name.
        name: String,
    },
    /// Deletes the application credential of the login.
    DeleteApplicationCredential {
        /// Its ID.
        id: String,
        /// ID of its user.
        user: String,
    },
    /// Removes routes of the cluster's pods from the router.
    RemoveRoutes {
        /// The router and the cluster's pod networks, from the spec.
        asked: api::Routes,
        /// Routes to recorded Nodes: they are removed, whether the Nodes still exist.
        recorded: Vec<Route>,
        /// Other routes, which are removed if they are still stale.
        stale: Vec<Route>,
    },
}

/// A form of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Form {
    /// ValidatingAdmissionPolicy and binding.
    Policy,
    /// ValidatingWebhookConfiguration.
    Webhook,
}

/// A kind of the target that is written to, named as the API has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// snapshot.storage.k8s.io
    VolumeSnapshot,
    /// snapshot.storage.k8s.io
    VolumeSnapshotContent,
    /// v1
    Pod,
    /// v1
    PersistentVolumeClaim,
    /// v1
    PersistentVolume,
    /// v1
    Service,
    /// networking.k8s.io/v1
    Ingress,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One object of the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Empty for kinds without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// metadata.name
    pub name: String,
    /// metadata.uid: another object of the name is never touched.
    pub uid: String,
    /// metadata.resourceVersion: the decision is valid for this version only.
    #[serde(skip)]
    pub version: String,
}

impl Object {
    /// The object of this name and UID.
    #[must_use]
    pub fn new(kind: ObjectKind, meta: &Meta) -> Object {
        Object {
            kind,
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            version: meta.version.clone(),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

impl Act {
    /// The key of this action's error in the Snapshot's failures.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Act::AddFinalizer | Act::RemoveFinalizer => key("Deorbit", "finalizer"),
            Act::DeleteDeorbit => key("Deorbit", "delete"),
            Act::Block { .. } => key("Block", "create"),
            Act::Unblock { .. } => key("Block", "lift"),
            Act::DeleteObject { object, .. } | Act::SetDeletePolicy { object } => key("Object", &object.uid),
            Act::DeleteInCloud { id, .. } | Act::DeleteApplicationCredential { id, .. } => key("Cloud", id),
            Act::RemoveRoutes { asked, .. } => key("Routes", &asked.router_id),
        }
    }
}

impl plan::Action for Action {
    type Reason = Reason;

    fn name(&self) -> &'static str {
        match self.act {
            Act::AddFinalizer => "AddFinalizer",
            Act::RemoveFinalizer => "RemoveFinalizer",
            Act::DeleteDeorbit => "DeleteDeorbit",
            Act::Block { .. } => "Block",
            Act::Unblock { .. } => "Unblock",
            Act::DeleteObject { .. } => "DeleteObject",
            Act::SetDeletePolicy { .. } => "SetDeletePolicy",
            Act::DeleteInCloud { .. } => "DeleteInCloud",
            Act::DeleteApplicationCredential { .. } => "DeleteApplicationCredential",
            Act::RemoveRoutes { .. } => "RemoveRoutes",
        }
    }

    fn regarding(&self) -> Regarding {
        (*self.run).clone()
    }

    fn related(&self) -> Option<Related> {
        match &self.act {
            Act::DeleteObject { object, .. } | Act::SetDeletePolicy { object } => Some(Related {
                kind: object.kind.to_string(),
                namespace: Some(object.namespace.clone()).filter(|namespace| !namespace.is_empty()),
                name: object.name.clone(),
            }),
            Act::DeleteInCloud { kind, id, .. } => {
                Some(Related { kind: kind.name().to_owned(), namespace: None, name: id.clone() })
            }
            Act::DeleteApplicationCredential { id, .. } => {
                Some(Related { kind: CREDENTIAL.to_owned(), namespace: None, name: id.clone() })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.act {
            Act::AddFinalizer => write!(f, "add the finalizer to {}", self.run),
            Act::RemoveFinalizer => write!(f, "remove the finalizer from {}", self.run),
            Act::DeleteDeorbit => write!(f, "delete {}", self.run),
            Act::Block { form: Form::Policy } => {
                f.write_str("refuse new claims, snapshots and load balancers by a ValidatingAdmissionPolicy")
            }
            Act::Block { form: Form::Webhook } => f.write_str(
                "refuse new claims, snapshots and load balancers by a ValidatingWebhookConfiguration",
            ),
            Act::Unblock { name, .. } => write!(f, "lift the block {name}"),
            Act::DeleteObject { object, id: Some(id) } => write!(f, "delete {object} ({id})"),
            Act::DeleteObject { object, id: None } => write!(f, "delete {object}"),
            Act::SetDeletePolicy { object } => write!(f, "set the policy of {object} to Delete"),
            Act::DeleteInCloud { kind, id, name } => {
                write!(f, "delete the {kind} {id} ({name}) in OpenStack")
            }
            Act::DeleteApplicationCredential { id, .. } => {
                write!(f, "delete the application credential {id} in OpenStack")
            }
            Act::RemoveRoutes { asked, recorded, stale } => {
                let count = recorded.len() + stale.len();
                write!(f, "remove {count} routes of router {}:", asked.router_id)?;
                recorded.iter().chain(stale).try_for_each(|route| write!(f, " {route}"))
            }
        }
    }
}

/// The Deorbit, as Events know it.
#[must_use]
pub fn regarding(run: &Run) -> Regarding {
    about(&run.namespace, &run.name, Some(run.uid.clone()))
}

/// A Deorbit, as Events know it.
#[must_use]
pub fn about(namespace: &str, name: &str, uid: Option<String>) -> Regarding {
    Regarding {
        api_version: names::API_VERSION,
        kind: "Deorbit",
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        uid,
    }
}
