//! The datapath of a node: how the packets of bound pods leave, and how packets to a VIP reach a pod.
//!
//! ```text
//!   Services, Pods, Nodes, store binds ── observe ── plan ── Datapath ── driver (vxlan or ovs) ── kernel, Open vSwitch
//! ```
//!
//! * [`datapath`]: the desired datapath, without anything of a driver.
//! * [`driver`]: what a driver promises.
//! * [`ovs`]: the driver for openshift-sdn.
//! * [`args`], [`run`]: command line and start.

pub mod args;
pub mod datapath;
pub mod driver;
pub mod ovs;

use common::{args::RuntimeArgs, command::Work};

/// Checks the command line and returns the work of the role.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: args::Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    Ok((args.process.into_runtime(), Work::run(async |_runtime| Ok(()))))
}
