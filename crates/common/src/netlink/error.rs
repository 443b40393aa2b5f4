//! Errors of netlink requests.

use std::io;

use super::message::{Malformed, Refusal};

/// Why a netlink request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses.
    #[error("{0}")]
    Refused(Refusal),
    /// A system call failed.
    #[error("{intent}: {source}")]
    System {
        /// The operation.
        intent: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// The kernel's reply cannot be read.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// Every attempt of a dump was interrupted by changes.
    #[error("the dump was interrupted by changes {0} times")]
    DumpInterrupted(u32),
    /// No reply within the timeout.
    #[error("the kernel did not reply")]
    NoReply,
    /// A request with an attribute beyond 65,535 bytes.
    #[error("the request is too long")]
    TooLong,
}

impl Error {
    /// The errno of a refusal or a failed call.
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
}
