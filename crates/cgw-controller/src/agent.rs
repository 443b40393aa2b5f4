//! The datapath of a node: how the packets of bound pods leave, and how packets to a VIP reach a pod.
//!
//! ```text
//!   Services, Pods, Nodes, store binds ── observe ── plan ── Datapath ── driver (vxlan or ovs) ── kernel, Open vSwitch
//! ```
//!
//! * [`observe`], [`snapshot`]: caches become a [`snapshot::Snapshot`].
//! * [`mod@plan`]: rules: `nodes` → `bindings` → `pods` → `ports`. [`trace`] explains them for one pod.
//! * [`datapath`]: the desired datapath, without anything of a driver.
//! * [`driver`]: what a driver promises.
//! * [`args`]: command line.

pub mod args;
pub mod datapath;
pub mod driver;
pub mod observe;
pub mod plan;
pub mod snapshot;
pub mod trace;

use common::{args::RuntimeArgs, command::Work};

/// Checks the command line and returns the work of the role.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: args::Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    Ok((args.process.into_runtime(), Work::run(async |_runtime| Ok(()))))
}
