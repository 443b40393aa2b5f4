//! The standing of a binding: its counts and its condition.

use common::conditions::{Seen, Status};

/// For the status of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Objects that carry its finalizer.
    pub bound: i32,
    /// Objects that are being deleted and wait for their Deorbit, or for their phase.
    pub deorbiting: i32,
    /// Objects that are being deleted and wait for a person.
    pub held: i32,
    /// Whether it is in force.
    pub readiness: Readiness,
}

/// Whether a binding is in force, and why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// It is.
    #[default]
    InForce,
    /// Its rules cannot be used.
    Invalid(String),
    /// The API server does not know the kind.
    NotServed(String),
    /// The objects could not be listed, or one of them not be read.
    Unknown(String),
    /// Objects that it selects belong to another binding.
    Conflict(String),
    /// It is being deleted.
    Terminating,
}

impl Standing {
    /// The condition Ready.
    #[must_use]
    pub fn condition(&self, generation: Option<i64>) -> Seen {
        let (status, reason, message) = match &self.readiness {
            Readiness::InForce => (Status::True, "InForce", "every selected object is bound".to_owned()),
            Readiness::Invalid(why) => (Status::False, "Invalid", why.clone()),
            Readiness::NotServed(why) => (Status::False, "KindNotServed", why.clone()),
            Readiness::Unknown(why) => (Status::Unknown, "TargetsUnknown", why.clone()),
            Readiness::Conflict(why) => (Status::False, "Conflict", why.clone()),
            Readiness::Terminating => (
                Status::False,
                "Terminating",
                "objects that are not being deleted are given back; the others finish first".to_owned(),
            ),
        };
        Seen { kind: "Ready", status, observed_generation: generation, reason, message }
    }
}
