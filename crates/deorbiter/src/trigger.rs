//! Triggers: what starts a Deorbit without a person.
//!
//! A `DeorbitBinding` puts a finalizer on a kind of object. The reconcile, in one direction:
//!
//! ```text
//!   watches  caches of the kinds that bindings name
//!   observe  → a snapshot::Snapshot
//!   plan     pure: which finalizers come and go, which Deorbits are made
//!   apply    JSON patches that test what they change
//! ```
//!
//! [`hook`]: Cluster API asks before it deletes a cluster, and waits.
//!
//! [`path`], [`template`], [`rules`]: what a binding says, read strictly. [`controller`]: when a reconcile is made.

pub mod action;
pub mod apply;
pub mod controller;
pub mod deorbit_name;
pub mod error;
pub mod hook;
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

use common::api::deorbit::Deorbit;
use common::cache::Cache;
use common::runtime::Runtime;

use self::hook::HookArgs;

/// Keeps the bindings and, where it is asked for, serves Cluster API's hook, until the process shall end.
///
/// # Errors
/// Settings of the hook that cannot be used; otherwise as [`controller::run`].
pub async fn run(runtime: Runtime, hook: &HookArgs, deorbits: Cache<Deorbit>) -> anyhow::Result<()> {
    let bindings = controller::run(runtime.clone(), deorbits);
    let Some(server) = hook::serve(&runtime, hook).await? else { return bindings.await };
    tokio::select! {
        done = bindings => done,
        () = server.serve() => Ok(()),
    }
}
