//! routegc: removes router routes whose next hop no longer exists.
//!
//! ```text
//!   RouteGC, Secret ── source, login ─┐
//!                                     ├─ observe ── plan ── apply ─── the router's routes
//!   OpenStack (Nodes) ────────────────┘            │
//!                                                  └─ status ── the RouteGC's status, Events, metrics
//! ```
//!
//! observe, plan and apply of routes are in [`common::routes`], because deorbiter removes routes too. This crate has:
//!
//! * [`args`], [`command`], [`config`]: the command line.
//! * [`source`]: where a policy comes from and where its status is stored: a RouteGC, or flags and a ConfigMap.
//! * [`router`]: the router of a policy. [`conflict`]: policies that cover the same routes.
//! * [`login`]: credentials from a Secret. [`nodes`]: the cluster's Nodes as one more source of live addresses.
//! * [`mod@plan`]: a decision as the steps and problems that all controllers have. [`status`]: the RouteGC's status. [`show`]: `--dry-run`.
//! * [`reconcile`]: one reconciliation of one policy. [`controller`]: when, and how many at a time.

pub mod args;
pub mod command;
pub mod config;
pub mod conflict;
pub mod controller;
pub mod error;
pub mod login;
pub mod metrics;
pub mod nodes;
pub mod plan;
pub mod reconcile;
pub mod router;
pub mod show;
pub mod source;
pub mod status;
