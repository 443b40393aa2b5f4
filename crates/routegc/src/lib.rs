//! routegc: removes router routes whose next hop no longer exists.
//!
//! ```text
//!   RouteGC, Secret ── home, login ─┐
//!                                   ├─ observe ── plan ── apply ─── the router's routes
//!   OpenStack (Nodes) ──────────────┘            │
//!                                                └─ status ── the RouteGC's status, Events, metrics
//! ```
//!
//! observe, plan and apply of routes are in [`common::routes`], because deorbiter walks the same way. Here is what stands around:
//!
//! * [`args`], [`command`], [`config`]: what a user says. [`names`]: every name of ours.
//! * [`home`]: where a policy comes from and its status goes: a RouteGC, or flags and a ConfigMap.
//! * [`login`]: from a Secret or a file to a cloud. [`nodes`]: the cluster's Nodes as one more witness.
//! * [`mod@plan`]: a decision in the grammar that all controllers speak. [`status`]: what a person is told. [`show`]: `--dry-run`.
//! * [`pass`]: one walk for one policy. [`controller`]: when, and how many at a time.

pub mod args;
pub mod command;
pub mod config;
pub mod controller;
pub mod error;
pub mod home;
pub mod login;
pub mod metrics;
pub mod names;
pub mod nodes;
pub mod pass;
pub mod plan;
pub mod show;
pub mod status;
