//! Which verb is asked for, and what the answer is.

use std::process::ExitCode;

/// The whole program.
#[must_use]
pub fn run() -> ExitCode {
    ExitCode::FAILURE
}
