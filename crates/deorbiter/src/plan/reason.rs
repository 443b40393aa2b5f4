//! Why a step is taken, or what is wrong.

use std::fmt;

use common::plan::{self, Related};
use serde::Serialize;

use crate::names;

/// A closed set; each is one word in Events and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum Reason {
    /// The Deorbit asks for it.
    Asked,
    /// The object holds a claim that shall go.
    HoldsClaim {
        /// Which.
        claim: String,
    },
    /// The volume's policy is Retain, and the Deorbit says that retained ones go too.
    Retained,
    /// It stands in the way of a clean end: new objects must not be made meanwhile.
    MustNotGrow,
    /// The run is over or was aborted.
    Over,
    /// The cluster's own controllers have not removed it.
    LeftInCloud {
        /// Its state there.
        state: String,
    },
    /// No object of the cluster names it any more; its name says whose it is.
    Unnamed,
    /// A run begins: whoever deletes the Deorbit must not leave a freeze behind.
    Begins,
    /// Nothing of it stands in the cluster any more.
    NothingFrozen,
    /// The cluster has not answered, or not let it be lifted, for so long that it is left to a person.
    FreezeMayRemain {
        /// What a person deletes there.
        name: String,
    },
    /// It is left alone.
    Kept {
        /// Why.
        why: String,
    },
    /// It goes as well, without an act of its own at the beginning: only a preview says so.
    GoesAlong {
        /// What, and how.
        what: String,
    },
    /// The target cluster cannot be read.
    TargetUnavailable {
        /// What it said.
        why: String,
    },
    /// OpenStack cannot be read.
    CloudUnavailable {
        /// What it said.
        why: String,
    },
    /// Objects of the target name things in OpenStack, and the login shows none of them.
    CloudShowsNothing,
    /// The routes that lead to nobody are not known.
    RoutesUnknown {
        /// The router's ID.
        router: String,
        /// What could not be seen.
        why: String,
    },
    /// A controller that removes things in OpenStack does not renew its Lease.
    CleanerNotRunning {
        /// The Lease.
        lease: String,
    },
    /// What was recorded is gone: nothing more can be done.
    RecordsLost {
        /// What is missing.
        why: String,
    },
    /// A freeze could not be put in place; the run goes on without.
    NotFrozen {
        /// Why.
        why: String,
    },
    /// Something is left.
    Debris {
        /// How much.
        count: usize,
        /// Kind of the first of them.
        kind: String,
        /// Its ID or name.
        first: String,
    },
}

impl plan::Reason for Reason {
    fn code(&self) -> &'static str {
        match self {
            Reason::Asked => "Asked",
            Reason::HoldsClaim { .. } => "HoldsClaim",
            Reason::Retained => "Retained",
            Reason::MustNotGrow => "MustNotGrow",
            Reason::Over => "Over",
            Reason::LeftInCloud { .. } => "LeftInCloud",
            Reason::Unnamed => "Unnamed",
            Reason::Begins => "Begins",
            Reason::NothingFrozen => "NothingFrozen",
            Reason::FreezeMayRemain { .. } => "FreezeMayRemain",
            Reason::Kept { .. } => "Kept",
            Reason::GoesAlong { .. } => "GoesAlong",
            Reason::TargetUnavailable { .. } => "TargetUnavailable",
            Reason::CloudUnavailable { .. } => "CloudUnavailable",
            Reason::CloudShowsNothing => "CloudShowsNothing",
            Reason::RoutesUnknown { .. } => "RoutesUnknown",
            Reason::CleanerNotRunning { .. } => "CleanerNotRunning",
            Reason::RecordsLost { .. } => "RecordsLost",
            Reason::NotFrozen { .. } => "NotFrozen",
            Reason::Debris { .. } => "Debris",
        }
    }

    fn is_trouble(&self) -> bool {
        matches!(self, Reason::FreezeMayRemain { .. } | Reason::Debris { .. })
    }

    fn related(&self) -> Option<Related> {
        match self {
            Reason::CleanerNotRunning { lease } => Some(Related {
                kind: "Lease".to_owned(),
                namespace: Some(names::LEASES.to_owned()),
                name: lease.clone(),
            }),
            Reason::Debris { kind, first, .. } => {
                Some(Related { kind: kind.clone(), namespace: None, name: first.clone() })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Asked => f.write_str("the Deorbit asks for it"),
            Reason::HoldsClaim { claim } => write!(f, "it holds the claim {claim}, which shall go"),
            Reason::Retained => f.write_str("its policy is Retain, and spec.retained is Delete"),
            Reason::MustNotGrow => f.write_str("nothing new may be made while the rest is deleted"),
            Reason::Over => f.write_str("the run is over"),
            Reason::LeftInCloud { state } => write!(f, "the cluster has not removed it; it is {state}"),
            Reason::Unnamed => f.write_str("no object of the cluster names it any more"),
            Reason::Begins => {
                f.write_str("a run begins, and what it freezes must be lifted even if it is aborted")
            }
            Reason::NothingFrozen => f.write_str("nothing of it stands in the target cluster"),
            Reason::FreezeMayRemain { name } => {
                write!(
                    f,
                    "the target cluster does not answer, or does not let it be lifted; as soon as it can be done, delete the ValidatingAdmissionPolicy, its binding and the ValidatingWebhookConfiguration {name} there"
                )
            }
            Reason::Kept { why } => write!(f, "it is left alone: {why}"),
            Reason::GoesAlong { what } => f.write_str(what),
            Reason::TargetUnavailable { why } => write!(f, "the target cluster cannot be read: {why}"),
            Reason::CloudUnavailable { why } => write!(f, "OpenStack cannot be read: {why}"),
            Reason::CloudShowsNothing => f.write_str(super::inventory::STRANGE),
            Reason::RoutesUnknown { router, why } => {
                write!(f, "which routes of router {router} lead to nobody is not known: {why}")
            }
            Reason::CleanerNotRunning { lease } => {
                write!(f, "{lease} renews its Lease no more: start it again, or set spec.leftovers to Delete")
            }
            Reason::RecordsLost { why } => f.write_str(why),
            Reason::NotFrozen { why } => write!(f, "new objects cannot be prevented: {why}"),
            Reason::Debris { count, kind, first } => {
                write!(f, "{count} left, first {kind} {first}; status.debris lists them")
            }
        }
    }
}
