//! The writes that the API server has served, by its audit log.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Cluster;

/// A served request that is no read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The user: `system:serviceaccount:cgw-controller:cgw-agent`.
    pub user: String,
    /// `patch`, `create` and others.
    pub verb: String,
    /// Resource, namespace and name, as the request's path has them.
    pub path: String,
}

impl Cluster {
    /// All writes since the start, in the order of their ends.
    ///
    /// # Errors
    /// The API server has not begun its log.
    pub fn writes(&self) -> Result<Vec<Write>> {
        let file = self.scripts.state.join("control-plane/audit.log");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        // The last line may be incomplete.
        let complete = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
        complete.lines().map(|line| write(line).with_context(|| line.to_owned())).collect()
    }
}

fn write(line: &str) -> Option<Write> {
    let event: Value = serde_json::from_str(line).ok()?;
    let text = |pointer: &str| Some(event.pointer(pointer)?.as_str()?.to_owned());
    Some(Write { user: text("/user/username")?, verb: text("/verb")?, path: text("/requestURI")? })
}
