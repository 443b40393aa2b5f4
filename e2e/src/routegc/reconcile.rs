//! Reconciliations of routegc, each in its own process.

use anyhow::{Result, ensure};

use super::TestEnv;
use crate::natgw::run;
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

    /// One reconciliation of each RouteGC. Returns the exit code and the output.
    ///
    /// # Errors
    /// The process does not exit.
    pub async fn reconcile_once(&self) -> Result<(i32, String)> {
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
