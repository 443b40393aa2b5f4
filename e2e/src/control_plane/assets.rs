//! Where etcd, kube-apiserver and kube-controller-manager come from.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::program::{Launch, Program};

/// A folder with the programs of a control plane.
#[derive(Debug)]
pub(super) struct Assets {
    folder: PathBuf,
    from: &'static str,
}

impl Assets {
    /// The folder of `KUBEBUILDER_ASSETS`; else that of `scripts/assets.sh`, which builds what is missing (minutes, once;
    /// it shows its progress on standard error) and returns at once otherwise.
    pub(super) async fn locate(kubernetes: &str) -> Result<Self> {
        if let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
            return Ok(Self { folder: folder.into(), from: "KUBEBUILDER_ASSETS" });
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/assets.sh");
        let mut command = Command::new(script);
        command.arg(kubernetes).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = tokio::task::spawn_blocking(move || command.output()).await?.context(script)?;
        ensure!(output.status.success(), "{script} {kubernetes}: {}; it says why above", output.status);
        let folder = String::from_utf8(output.stdout)?.trim_end().into();
        Ok(Self { folder, from: "scripts/assets.sh" })
    }

    /// How to start one of them.
    pub(super) fn program(&self, name: &str) -> Result<Launch> {
        let path = self.folder.join(name);
        ensure!(
            path.is_file(),
            "{} has no {name}: {} (setup-envtest brings no kube-controller-manager: add it, or unset KUBEBUILDER_ASSETS \
             and let scripts/assets.sh build all)",
            self.from,
            path.display()
        );
        Ok(Program::at(path))
    }
}
