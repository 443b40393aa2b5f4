//! The role `controller`.

pub mod args;

use common::{args::RuntimeArgs, command::Work};

/// Checks the command line and returns the work of the role.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: args::Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    Ok((args.process.into_runtime(), Work::run(async |_runtime| Ok(()))))
}
