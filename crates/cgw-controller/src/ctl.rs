//! The role `ctl`: commands of an administrator.

pub mod args;

use common::{args::RuntimeArgs, command::Work};

/// Checks the command line and returns the work of the command.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: args::Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    Ok((args.process.into_runtime(), Work::command(async |_runtime| Ok(()))))
}
