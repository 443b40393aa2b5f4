//! Command line of `cgw controller`.

use crate::args::ProcessArgs;

/// Serves the HTTP API and writes the annotations of the tenants' Services
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub process: ProcessArgs,
}
