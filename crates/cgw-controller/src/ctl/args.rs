//! Command line of `cgw ctl`.

use crate::args::ProcessArgs;

/// Binds, lists and traces VIPs
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub process: ProcessArgs,
}
