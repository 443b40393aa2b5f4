//! Triggers: they create a Deorbit when an object that stands for a cluster is deleted.
//!
//! A `DeorbitBinding` adds a finalizer to objects of one kind. A reconciliation:
//!
//! ```text
//!   watches  caches of the kinds that bindings name
//!   observe  → a snapshot::Snapshot
//!   plan     pure: which finalizers are added and removed, which Deorbits are created
//!   apply    JSON patches that test what they change
//! ```
//!
//! [`hook`]: Cluster API calls it before it deletes a cluster, and waits.
//!
//! [`path`], [`template`], [`rules`]: the spec of a binding, parsed strictly. [`controller`]: when the bindings are reconciled.

pub mod action;
pub mod apply;
pub mod controller;
pub mod hook;
pub mod metrics;
pub mod observe;
pub mod patch;
pub mod path;
pub mod plan;
pub mod reason;
pub mod rules;
pub mod snapshot;
pub mod template;
pub mod watches;

use common::api::deorbit::Deorbit;
use common::cache::Cache;
use common::runtime::Runtime;

use self::hook::HookArgs;

/// Reconciles the bindings and, with an address for it, serves Cluster API's hook, until the process is asked to end.
///
/// # Errors
/// Invalid settings of the hook; otherwise as [`controller::run`].
pub async fn run(runtime: Runtime, hook: &HookArgs, deorbits: Cache<Deorbit>) -> anyhow::Result<()> {
    // The hook first: its settings are checked before anything is watched.
    tokio::try_join!(hook::serve(&runtime, hook), controller::run(runtime.clone(), deorbits)).map(|_| ())
}
