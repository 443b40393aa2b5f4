//! Why a trigger acts, and what it finds wrong.

use std::fmt;

use common::plan;
use serde::Serialize;

/// A closed set: the word is the reason of Events and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Reason {
    /// A binding is new.
    NewBinding,
    /// A binding selects the object.
    Selected {
        /// Its name.
        binding: String,
    },
    /// The object carries the finalizer already, put there by another program or an earlier installation.
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
    BindingRemoved {
        /// Its name.
        binding: String,
    },
    /// Nothing carries the finalizer of a binding that is being deleted.
    NothingBound,
    /// The object is being deleted.
    TargetDeleted {
        /// The object.
        target: String,
    },
    /// Everything of the cluster is gone.
    DeorbitComplete {
        /// namespace/name of the Deorbit.
        deorbit: String,
    },
    /// A Deorbit let the cluster go with something left.
    LeftDebris {
        /// namespace/name of the Deorbit.
        deorbit: String,
    },
    /// The object is not being deleted, though a Deorbit runs for it.
    TargetSurvives {
        /// The object.
        target: String,
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
    /// The Deorbit of the object cannot be made.
    CannotDeorbit {
        /// What is wrong.
        why: String,
    },
    /// A binding cannot be used as it is.
    BindingInvalid {
        /// What is wrong.
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
            Reason::NewBinding => f.write_str("so that deleting the binding takes its finalizers back"),
            Reason::Selected { binding } => write!(f, "binding {binding} selects it"),
            Reason::Adopted { binding } => write!(f, "it carries the finalizer of binding {binding} already"),
            Reason::NotSelected { binding } => write!(f, "binding {binding} does not select it any more"),
            Reason::BindingRemoved { binding } => write!(f, "binding {binding} is being deleted"),
            Reason::NothingBound => f.write_str("nothing carries its finalizer any more"),
            Reason::TargetDeleted { target } => write!(f, "{target} is being deleted"),
            Reason::DeorbitComplete { deorbit } => {
                write!(f, "Deorbit {deorbit} is complete: nothing of the cluster is left")
            }
            Reason::LeftDebris { deorbit } => write!(
                f,
                "Deorbit {deorbit} completed with debris: its status.debris lists what is left in OpenStack"
            ),
            Reason::TargetSurvives { target } => write!(f, "{target} is not being deleted"),
            Reason::Protected { annotation } => write!(
                f,
                "annotation {annotation} protects it: it is not deorbited and stays; remove the annotation to let it go"
            ),
            Reason::DeorbitFailed { deorbit } => write!(
                f,
                "Deorbit {deorbit} failed and keeps the cluster: see its status.debris; delete the Deorbit to have it tried again"
            ),
            Reason::CannotDeorbit { why } => write!(
                f,
                "its Deorbit cannot be made, so it stays: {why}; mend the binding's template or the object"
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
            Reason::NewBinding => "NewBinding",
            Reason::Selected { .. } => "Selected",
            Reason::Adopted { .. } => "Adopted",
            Reason::NotSelected { .. } => "NotSelected",
            Reason::BindingRemoved { .. } => "BindingRemoved",
            Reason::NothingBound => "NothingBound",
            Reason::TargetDeleted { .. } => "TargetDeleted",
            Reason::DeorbitComplete { .. } => "DeorbitComplete",
            Reason::LeftDebris { .. } => "LeftDebris",
            Reason::TargetSurvives { .. } => "TargetSurvives",
            Reason::Protected { .. } => "Protected",
            Reason::DeorbitFailed { .. } => "DeorbitFailed",
            Reason::CannotDeorbit { .. } => "CannotDeorbit",
            Reason::BindingInvalid { .. } => "BindingInvalid",
            Reason::Conflict { .. } => "Conflict",
        }
    }

    fn is_trouble(&self) -> bool {
        matches!(self, Reason::LeftDebris { .. } | Reason::Protected { .. } | Reason::TargetSurvives { .. })
    }
}
