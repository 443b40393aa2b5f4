//! deorbiter: before a cluster is deleted, removes what it created in the cloud and verifies that it is gone.
//!
//! ```text
//!   Deorbit ────────┐                                              ┌─ the Deorbit's status, its records in ConfigMaps
//!   target cluster ─┼─ observe ── Snapshot ── plan ── Plan ── apply┼─ deletes in the target, and its block of new objects
//!   OpenStack ──────┘  (reads)               (pure)        (writes)└─ deletes in OpenStack, by recorded ID
//! ```
//!
//! One reconciliation of one Deorbit is short and waits only for responses; a run of hours is many reconciliations. The state of a
//! run is stored in its Deorbit and ConfigMaps, so each reconciliation can happen in another process.
//!
//! * [`observe`]: a target cluster and its project become a [`observe::snapshot::Snapshot`].
//! * [`mod@plan`]: what belongs to the cluster, what is recorded, deleted and left. [`plan::machine`] has the table of the phases.
//! * [`record`]: the bookkeeping of a run.
//! * [`routes`]: the router's routes, decided by the rules that routegc has.
//! * [`apply`]: `store` (the Deorbit and its ConfigMaps), `object` and `block` (the target), `cloud` (OpenStack).
//! * [`trigger`]: creates Deorbits. [`unserved`]: refuses to, with `--watch-namespace`.
//! * [`controller`]: which Deorbit is reconciled when. [`args`], [`command`], [`settings`]: the command line. [`status`],
//!   [`metrics`]: what is reported. [`names`]: every name, our own and those of others.

pub mod apply;
pub mod args;
pub mod command;
pub mod controller;
pub mod error;
pub mod metrics;
pub mod names;
pub mod observe;
pub mod plan;
pub mod record;
pub mod routes;
pub mod settings;
pub mod status;
pub mod trigger;
pub mod unserved;
