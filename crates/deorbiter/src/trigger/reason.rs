//! Why a step is executed, or what is wrong.

use std::fmt;

use common::plan;
use serde::Serialize;

/// A closed set: the word is the reason of Events and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Reason {
    /// A binding is new.
    BindingCreated,
    /// A binding selects the object.
    Selected {
        /// Its name.
        binding: String,
    },
    /// The object carries the finalizer already, added by another program or an earlier installation.
    Adopted {
        /// The binding that takes it over.
        binding: String,
    },
    /// The binding does not select the object any more.
    NotSelected {
        /// Its name.
        binding: String,
    },
    /// The binding is being deleted.
    BindingDeleted {
        /// Its name.
        binding: String,
    },
    /// No object has the finalizer of a binding that is being deleted.
    NothingBound,
    /// The object is being deleted.
    TargetDeleted {
        /// The object.
        target: String,
    },
    /// Everything of the cluster is gone.
    DeorbitCompleted {
        /// namespace/name of the Deorbit.
        deorbit: String,
    },
    /// A Deorbit released the cluster with something left.
    DebrisLeft {
        /// namespace/name of the Deorbit.
        deorbit: String,
    },
    /// The object is not being deleted, though a Deorbit runs for it.
    TargetNotDeleted {
        /// The object.
        target: String,
    },
    /// The Machine's Cluster has the finalizer.
    ClusterBound {
        /// namespace/name of the Cluster.
        cluster: String,
    },
    /// The Machine's Cluster does not have the finalizer.
    ClusterReleased {
        /// namespace/name of the Cluster.
        cluster: String,
    },
    /// The Machine is deleted without its Cluster.
    MachineDeleted {
        /// namespace/name of the Cluster.
        cluster: String,
    },
    /// An annotation protects the object.
    Protected {
        /// The annotation.
        annotation: String,
    },
    /// A Deorbit failed, and its timeouts keep the cluster.
    DeorbitFailed {
        /// namespace/name of the Deorbit.
        deorbit: String,
    },
    /// The Deorbit of the object cannot be created.
    DeorbitNotCreated {
        /// The cause, for example an invalid binding or the API server's refusal.
        why: String,
    },
    /// A binding cannot be used as it is.
    BindingInvalid {
        /// One sentence: the field of the binding, and the problem.
        why: String,
    },
    /// Another binding has objects that this one selects.
    Conflict {
        /// Names of the others.
        others: String,
        /// How many objects.
        count: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::BindingCreated => f.write_str("so that its finalizers are removed when it is deleted"),
            Reason::Selected { binding } => write!(f, "binding {binding} selects it"),
            Reason::Adopted { binding } => write!(f, "it carries the finalizer of binding {binding} already"),
            Reason::NotSelected { binding } => write!(f, "binding {binding} does not select it any more"),
            Reason::BindingDeleted { binding } => write!(f, "binding {binding} is being deleted"),
            Reason::NothingBound => f.write_str("no object carries its finalizer any more"),
            Reason::TargetDeleted { target } => write!(f, "{target} is being deleted"),
            Reason::DeorbitCompleted { deorbit } => {
                write!(f, "Deorbit {deorbit} is complete: nothing of the cluster is left")
            }
            Reason::DebrisLeft { deorbit } => write!(
                f,
                "Deorbit {deorbit} completed with debris: its status.debris lists what is left in OpenStack"
            ),
            Reason::TargetNotDeleted { target } => write!(f, "{target} is not being deleted"),
            Reason::ClusterBound { cluster } => {
                write!(f, "when Cluster {cluster} is deleted, it stays until the Deorbit is done")
            }
            Reason::ClusterReleased { cluster } => write!(f, "Cluster {cluster} waits for no Deorbit"),
            Reason::MachineDeleted { cluster } => {
                write!(f, "it is being deleted, and Cluster {cluster} is not")
            }
            Reason::Protected { annotation } => write!(
                f,
                "annotation {annotation} protects it: it is not deorbited and not released; remove the annotation to release it"
            ),
            Reason::DeorbitFailed { deorbit } => write!(
                f,
                "Deorbit {deorbit} failed and keeps the cluster: see its status.debris; delete the Deorbit to retry"
            ),
            Reason::DeorbitNotCreated { why } => write!(
                f,
                "its Deorbit cannot be created, so it is not released: {why}; fix the binding's template or the object"
            ),
            Reason::BindingInvalid { why } => f.write_str(why),
            Reason::Conflict { others, count } => write!(
                f,
                "{count} of the selected objects belong to {others}: an object has one binding; make the selectors disjoint"
            ),
        }
    }
}

impl plan::Reason for Reason {
    fn code(&self) -> &'static str {
        match self {
            Reason::BindingCreated => "BindingCreated",
            Reason::Selected { .. } => "Selected",
            Reason::Adopted { .. } => "Adopted",
            Reason::NotSelected { .. } => "NotSelected",
            Reason::BindingDeleted { .. } => "BindingDeleted",
            Reason::NothingBound => "NothingBound",
            Reason::TargetDeleted { .. } => "TargetDeleted",
            Reason::DeorbitCompleted { .. } => "DeorbitCompleted",
            Reason::DebrisLeft { .. } => "DebrisLeft",
            Reason::TargetNotDeleted { .. } => "TargetNotDeleted",
            Reason::ClusterBound { .. } => "ClusterBound",
            Reason::ClusterReleased { .. } => "ClusterReleased",
            Reason::MachineDeleted { .. } => "MachineDeleted",
            Reason::Protected { .. } => "Protected",
            Reason::DeorbitFailed { .. } => "DeorbitFailed",
            Reason::DeorbitNotCreated { .. } => "DeorbitNotCreated",
            Reason::BindingInvalid { .. } => "BindingInvalid",
            Reason::Conflict { .. } => "Conflict",
        }
    }

    fn is_trouble(&self) -> bool {
        matches!(self, Reason::DebrisLeft { .. } | Reason::Protected { .. } | Reason::TargetNotDeleted { .. })
    }
}
