//! What can go wrong between the kernel and us.

use std::io;

use super::message::{Malformed, Refusal};
use crate::cni;

/// A conversation that did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not do it.
    #[error("{0}")]
    Refused(Refusal),
    /// A system call failed.
    #[error("{intent}: {source}")]
    System {
        /// What was tried.
        intent: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
    /// The kernel's answer cannot be read.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// A dump changed under our eyes each time.
    #[error("the dump was interrupted by changes {0} times")]
    DumpInterrupted(u32),
    /// No answer came.
    #[error("the kernel did not reply")]
    NoReply,
    /// A request with an attribute beyond 65,535 bytes.
    #[error("the request is too long")]
    TooLong,
}

impl Error {
    /// The number of a refusal or a failed call.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused(refusal) => Some(refusal.errno),
            Self::System { source, .. } => source.raw_os_error(),
            Self::Malformed(_) | Self::DumpInterrupted(_) | Self::NoReply | Self::TooLong => None,
        }
    }

    /// Whether the errno is one of `numbers`.
    #[must_use]
    pub fn is(&self, numbers: &[i32]) -> bool {
        self.errno().is_some_and(|errno| numbers.contains(&errno))
    }

    /// The error that a runtime is told: `message` says what failed on which object, the kernel's words are its details.
    #[must_use]
    pub fn to_cni(&self, message: impl Into<String>) -> cni::Error {
        let code =
            if matches!(self, Self::DumpInterrupted(_)) { cni::Code::TryAgain } else { cni::Code::Kernel };
        cni::Error::new(code, message).details(self.to_string())
    }
}
