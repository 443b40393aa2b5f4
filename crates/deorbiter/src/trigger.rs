//! Triggers: what starts a Deorbit without a person.
//!
//! A `DeorbitBinding` puts a finalizer on a kind of object. The walk, in one direction:
//!
//! ```text
//!   watches  caches of the kinds that bindings name
//!   observe  → a snapshot::Snapshot
//!   plan     pure: which finalizers come and go, which Deorbits are made
//!   apply    JSON patches that test what they change
//! ```
//!
//! [`path`], [`template`], [`rules`]: what a binding says, read strictly. [`controller`]: when a walk is made.

pub mod action;
pub mod apply;
pub mod controller;
pub mod deorbit_name;
pub mod error;
pub mod kind;
pub mod metrics;
pub mod names;
pub mod observe;
pub mod patch;
pub mod path;
pub mod plan;
pub mod reason;
pub mod rules;
pub mod snapshot;
pub mod template;
pub mod watches;
