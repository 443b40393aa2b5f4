//! VERSION: the supported versions. It reads neither settings nor the pod.

use crate::cni::version::{requested, supported_json};

/// The response to any input, also to an empty one.
#[must_use]
pub fn version(stdin: &[u8]) -> String {
    supported_json(&requested(stdin))
}
