//! VERSION: what is spoken. It reads neither settings nor the pod.

use crate::cni::version::{requested, supported_json};

/// The answer to whatever stands on standard input, nothing among it.
#[must_use]
pub fn version(stdin: &[u8]) -> String {
    supported_json(&requested(stdin))
}
