//! natgw: one primary NAT-gateway Node per cluster; the private network's default route follows it.
//!
//! ```text
//!   Nodes, Jobs ─┐                                                      ┌─ Jobs on Nodes (setup, teardown)
//!                ├─ observe ── Snapshot ── plan ── Plan ── apply ───────┼─ annotations and labels of Nodes
//!   Hetzner ─────┘  (reads)               (pure)           (writes)     └─ the network's route 0.0.0.0/0
//! ```
//!
//! Data flows in one direction, and the process keeps no state: it is recorded on the Nodes.
//!
//! * [`observe`]: caches and cloud lists become a [`observe::snapshot::Snapshot`].
//! * [`mod@plan`]: `floating_ip` → `eligibility` → `primary` → `route` → `jobs`, one rule a file.
//! * [`apply`]: `route`, `node`, `job`: one file for each kind of object.
//! * [`controller`]: when natgw reconciles. [`args`], [`command`], [`config`]: the user's input. [`status`]: the output.
//! * [`names`]: natgw's names. [`task`]: what a Job does to a Node.

pub mod apply;
pub mod args;
pub mod command;
pub mod config;
pub mod controller;
pub mod error;
pub mod metrics;
pub mod names;
pub mod observe;
pub mod plan;
pub mod selector;
pub mod status;
pub mod task;
