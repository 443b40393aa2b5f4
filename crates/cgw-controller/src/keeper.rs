//! The role `keeper`.

pub mod args;

use common::{args::RuntimeArgs, command::Work};

/// Checks the command line and returns the work of the role.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: args::Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    Ok((args.process.into_runtime(), Work::run(async |_runtime| Ok(()))))
}

/// Runs `cgw keeper-guard`.
#[must_use]
pub fn guard(_args: args::GuardArgs) -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}

/// Runs `cgw keeper-check`.
#[must_use]
pub fn check(_args: args::CheckArgs) -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
