//! Command lines of `cgw keeper`, `cgw keeper-guard` and `cgw keeper-check`.

use crate::args::ProcessArgs;

/// Runs keepalived on a gateway node and notifies the controller
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub process: ProcessArgs,
}

/// Removes the VIPs of the node when the keeper does not run
#[derive(clap::Args, Clone, Debug)]
pub struct GuardArgs {}

/// keepalived's check script: exits with 0 if this node may carry the VIPs
#[derive(clap::Args, Clone, Debug)]
pub struct CheckArgs {}
