//! The CNI protocol: the call (environment), the response (result or error), and versions.
//!
//! Source of all of it: the CNI specification, 0.3.0 to 1.1.0 (github.com/containernetworking/cni, SPEC.md).

pub mod args;
pub mod call;
pub mod error;
pub mod field;
pub mod result;
pub mod version;

pub use call::{Call, Command};
pub use error::{Code, Error, ToCni};
pub use version::Version;
