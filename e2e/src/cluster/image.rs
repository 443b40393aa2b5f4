//! A program's image, as `make images` builds it.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// The OCI archive of a crate's image: for natgw the one that `E2E_NATGW_IMAGE` names, and so on; else from
/// `scripts/images.sh`.
///
/// # Errors
/// It cannot be built; the reason is on standard error.
pub async fn build(name: &str) -> Result<PathBuf> {
    let variable = format!("E2E_{}_IMAGE", name.to_uppercase().replace('-', "_"));
    if let Some(archive) = std::env::var_os(variable).filter(|archive| !archive.is_empty()) {
        return Ok(archive.into());
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/images.sh");
    let mut command = Command::new(script);
    command.arg(name).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = command.output().await.context(script)?;
    ensure!(output.status.success(), "{script} {name}: {}; it says why above", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}
