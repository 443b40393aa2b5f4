//! The programs etcd, kube-apiserver and kube-controller-manager.

use std::path::PathBuf;

use anyhow::{Result, ensure};

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
        let own = std::env::var_os("KUBEBUILDER_ASSETS").is_some_and(|folder| !folder.is_empty());
        let kubernetes = kubernetes.to_owned();
        let folder = tokio::task::spawn_blocking(move || crate::assets::control_plane(&kubernetes)).await??;
        Ok(Self { folder, from: if own { "KUBEBUILDER_ASSETS" } else { "scripts/assets.sh" } })
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
