//! Why a step is executed, or what is wrong.

use common::plan;
use serde::Serialize;

/// A closed set: the word is the reason of Events and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Reason {
    /// A binding is new.
    #[error("so that its finalizers are removed when it is deleted")]
    BindingCreated,
    /// A binding selects the object.
    #[error("binding {binding} selects it")]
    Selected {
        /// Its name.
        binding: String,
    },
    /// The object carries the finalizer already, added by another program or an earlier installation.
    #[error("it carries the finalizer of binding {binding} already")]
    Adopted {
        /// The binding that takes it over.
        binding: String,
    },
    /// The binding does not select the object any more.
    #[error("binding {binding} does not select it any more")]
    NotSelected {
        /// Its name.
        binding: String,
    },
    /// The binding is being deleted.
    #[error("binding {binding} is being deleted")]
    BindingDeleted {
        /// Its name.
        binding: String,
    },
    /// No object has the finalizer of a binding that is being deleted.
    #[error("no object carries its finalizer any more")]
    NothingBound,
    /// The object is being deleted.
    #[error("{target} is being deleted")]
    TargetDeleted {
        /// The object.
        target: String,
    },
    /// Everything of the cluster is gone.
    #[error("Deorbit {deorbit} is complete: nothing of the cluster is left")]
    DeorbitCompleted {
        /// namespace/name of the Deorbit.
        deorbit: String,
    },
    /// A Deorbit released the cluster with something left.
    #[error("Deorbit {deorbit} completed with debris: its status.debris lists what is left in OpenStack")]
    DebrisLeft {
        /// namespace/name of the Deorbit.
        deorbit: String,
    },
    /// The object is not being deleted, though a Deorbit runs for it.
    #[error("{target} is not being deleted")]
    TargetNotDeleted {
        /// The object.
        target: String,
    },
    /// The Machine's Cluster has the finalizer.
    #[error("when Cluster {cluster} is deleted, it stays until the Deorbit is done")]
    ClusterBound {
        /// namespace/name of the Cluster.
        cluster: String,
    },
    /// The Machine's Cluster does not have the finalizer.
    #[error("Cluster {cluster} waits for no Deorbit")]
    ClusterReleased {
        /// namespace/name of the Cluster.
        cluster: String,
    },
    /// The Machine is deleted without its Cluster.
    #[error("it is being deleted, and Cluster {cluster} is not")]
    MachineDeleted {
        /// namespace/name of the Cluster.
        cluster: String,
    },
    /// An annotation protects the object.
    #[error(
        "annotation {annotation} protects it: it is not deorbited and not released; remove the annotation to release it"
    )]
    Protected {
        /// The annotation.
        annotation: String,
    },
    /// A Deorbit failed, and its timeouts keep the cluster.
    #[error(
        "Deorbit {deorbit} failed and keeps the cluster: see its status.debris; delete the Deorbit to retry"
    )]
    DeorbitFailed {
        /// namespace/name of the Deorbit.
        deorbit: String,
    },
    /// The Deorbit of the object cannot be created.
    #[error(
        "its Deorbit cannot be created, so it is not released: {why}; fix the binding's template or the object"
    )]
    DeorbitNotCreated {
        /// The cause, for example an invalid binding or the API server's refusal.
        why: String,
    },
    /// A binding cannot be used as it is.
    #[error("{why}")]
    BindingInvalid {
        /// One sentence: the field of the binding, and the problem.
        why: String,
    },
    /// Another binding has objects that this one selects.
    #[error(
        "{count} of the selected objects belong to {others}: an object has one binding; make the selectors disjoint"
    )]
    Conflict {
        /// Names of the others.
        others: String,
        /// How many objects.
        count: usize,
    },
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
