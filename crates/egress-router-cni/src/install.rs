//! How the program gets onto a node: `egress-router install`.

use std::ffi::OsString;
use std::process::ExitCode;

/// `egress-router install`, with the arguments after that word.
#[must_use]
pub fn run(_args: impl Iterator<Item = OsString>) -> ExitCode {
    ExitCode::FAILURE
}
