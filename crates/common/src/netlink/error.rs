//! Errors of netlink requests.

use std::{fmt, io};

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
    /// An operation on an object failed.
    #[error("{operation} failed: {cause}")]
    Operation {
        /// The operation and the object, for example "adding the neighbour 192.0.2.1 dev 7".
        operation: String,
        /// Why.
        cause: Box<Self>,
    },
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
            Self::Operation { cause, .. } => cause.errno(),
            Self::Malformed(_) | Self::DumpInterrupted(_) | Self::NoReply | Self::TooLong => None,
        }
    }

    /// The error of this operation on this object ("adding the neighbour 192.0.2.1 dev 7").
    #[must_use]
    pub fn during(self, operation: impl fmt::Display) -> Self {
        Self::Operation { operation: operation.to_string(), cause: Box::new(self) }
    }

    /// Whether the errno is one of `numbers`.
    #[must_use]
    pub fn is(&self, numbers: &[i32]) -> bool {
        self.errno().is_some_and(|errno| numbers.contains(&errno))
    }
}
