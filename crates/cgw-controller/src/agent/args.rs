//! Command line of `cgw agent`.

use crate::args::ProcessArgs;

/// Programs the datapath of this node
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub process: ProcessArgs,
}
