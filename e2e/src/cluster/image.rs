//! A program's image, as `make images` builds it.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// The OCI archive of a crate's image.
///
/// # Errors
/// It cannot be built; the reason is on standard error.
pub async fn build(name: &str) -> Result<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/images.sh");
    let mut command = Command::new(script);
    command.arg(name).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = command.output().await.context(script)?;
    ensure!(output.status.success(), "{script} {name}: {}; it says why above", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}
