//! What has to hold before a demo begins.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// A cluster of the user's is not played with, also where the tests are told to use it.
pub(crate) fn no_cluster_of_yours() -> Result<()> {
    ensure!(
        std::env::var_os("E2E_EXISTING_CLUSTER").is_none_or(|value| value != "1"),
        "E2E_EXISTING_CLUSTER=1 is set, but the demo never touches a cluster of yours: unset it"
    );
    Ok(())
}

/// The program of the crate of that name, built beside this one.
pub(crate) fn built(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("where is this program?")?;
    let program = own.with_file_name(name);
    ensure!(program.is_file(), "{} is not built: cargo build -p {name}", program.display());
    Ok(program)
}
