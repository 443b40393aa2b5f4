//! Reconciliations of routegc, each in its own process.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use kube::api::ListParams;

use super::TestEnv;
use crate::natgw::{run, wait_for};
use crate::program::{Launch, Program};

impl TestEnv {
    /// routegc with its cluster and without other flags.
    ///
    /// # Errors
    /// It is not built.
    pub fn command(&self) -> Result<Launch> {
        Ok(self.configure(Program::binary("routegc")?).env("RUST_LOG", "info,routegc=debug"))
    }

    /// Configures any routegc program, such as a release build, for this environment and its proxies.
    #[must_use]
    pub fn configure(&self, routegc: Launch) -> Launch {
        routegc.env("KUBECONFIG", &self.kubeconfig)
    }

    /// routegc as it runs in a cluster.
    ///
    /// # Errors
    /// It is not built.
    pub fn routegc(&self) -> Result<Launch> {
        Ok(self.command()?.args(["--admin-address", "127.0.0.1:0", "--log-format", "json"]))
    }

    /// Waits until the API server's cache has the RouteGCs as they are: routegc's first list comes from it, and may be a moment old.
    ///
    /// # Errors
    /// It has not within [`crate::wait::TIMEOUT`].
    pub async fn wait_for_cache(&self) -> Result<()> {
        let versions = async |list: ListParams| {
            let objects = self.policies().list_metadata(&list).await?.items;
            let version = objects.into_iter().map(|one| (one.metadata.name, one.metadata.resource_version));
            anyhow::Ok(version.collect::<BTreeMap<_, _>>())
        };
        wait_for("the API server's cache of RouteGCs", || async {
            let cached = versions(ListParams::default().match_any()).await?;
            Ok(cached == versions(ListParams::default()).await?)
        })
        .await
    }

    /// One reconciliation of each RouteGC. Returns the exit code and the output.
    ///
    /// # Errors
    /// The process does not exit.
    pub async fn reconcile_once(&self) -> Result<(i32, String)> {
        self.wait_for_cache().await?;
        run(&self.routegc()?.arg("--once")).await
    }

    /// Reconciles `count` times; each must succeed.
    ///
    /// # Errors
    /// One of them fails; the error has routegc's output.
    pub async fn reconcile_times(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            let (code, output) = self.reconcile_once().await?;
            ensure!(code == 0, "exit code {code}: {output}");
        }
        Ok(())
    }

    /// One reconciliation that must fail. Returns the output.
    ///
    /// # Errors
    /// It succeeds, or panics.
    pub async fn failing_reconcile(&self) -> Result<String> {
        let (code, output) = self.reconcile_once().await?;
        ensure!(code == 1 && !output.contains("panicked"), "exit code {code}: {output}");
        Ok(output)
    }

    /// The output of `routegc --dry-run` with more arguments.
    ///
    /// # Errors
    /// It fails.
    pub async fn dry_run(&self, more: &[&str]) -> Result<String> {
        let launch = self.command()?.env("RUST_LOG", "error").arg("--dry-run").args(more.iter().copied());
        let (code, output) = run(&launch).await?;
        ensure!(code == 0, "exit code {code}: {output}");
        Ok(output)
    }
}
