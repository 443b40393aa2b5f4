//! deorbiter: before a cluster dies: deletes what it made in the cloud, and proves that it is gone.
//!
//! ```text
//!   Deorbit ────────┐                                              ┌─ the Deorbit's status: phase, records, debris
//!   target cluster ─┼─ observe ── Snapshot ── plan ── Plan ── apply┼─ deletes in the target, and its freeze
//!   OpenStack ──────┘  (reads)               (pure)        (writes)└─ deletes in OpenStack, by recorded ID
//! ```
//!
//! One reconcile of one Deorbit is short and waits for nothing but answers; a run of hours is many reconciles. What a run knows stands
//! in its Deorbit, so any reconcile can be another process'.
//!
//! * [`observe`]: a target cluster and its project become a [`observe::snapshot::Snapshot`].
//! * [`mod@plan`]: what is ours, what is recorded, what is deleted, what is left, where to next: one question a file.
//! * [`routes`]: the router's routes, by routegc's own judgement.
//! * [`apply`]: `store` (the Deorbit), `object` and `freeze` (the target), `cloud` (OpenStack).
//! * [`controller`]: which Deorbit is reconciled when. [`args`], [`command`], [`settings`]: what a user says. [`status`],
//!   [`metrics`]: what a user is shown. [`names`]: every name of ours and of others.

pub mod apply;
pub mod args;
pub mod command;
pub mod controller;
pub mod error;
pub mod metrics;
pub mod names;
pub mod observe;
pub mod plan;
pub mod routes;
pub mod settings;
pub mod status;
pub mod trigger;
