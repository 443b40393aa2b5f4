//! Passes of routegc, each a process of its own.

use anyhow::{Result, ensure};

use super::TestEnv;
use crate::natgw::run;
use crate::program::{Launch, Program};

impl TestEnv {
    /// routegc with nothing but its cluster on the command line.
    ///
    /// # Errors
    /// It is not built.
    pub fn command(&self) -> Result<Launch> {
        Ok(self.equip(Program::binary("routegc")?).env("RUST_LOG", "info,routegc=debug"))
    }

    /// Any routegc, such as the one that users get, which serves the RouteGCs of this environment through its proxies.
    #[must_use]
    pub fn equip(&self, routegc: Launch) -> Launch {
        routegc.env("KUBECONFIG", &self.kubeconfig)
    }

    /// routegc as it runs in a cluster.
    ///
    /// # Errors
    /// It is not built.
    pub fn routegc(&self) -> Result<Launch> {
        Ok(self.command()?.args(["--admin-address", "127.0.0.1:0", "--log-format", "json"]))
    }

    /// One pass for each RouteGC: the exit code, and what routegc said.
    ///
    /// # Errors
    /// It does not end.
    pub async fn pass(&self) -> Result<(i32, String)> {
        run(&self.routegc()?.arg("--once")).await
    }

    /// As many passes, each of which must succeed.
    ///
    /// # Errors
    /// One of them fails; the error has what routegc said.
    pub async fn passes(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            let (code, said) = self.pass().await?;
            ensure!(code == 0, "exit code {code}: {said}");
        }
        Ok(())
    }

    /// One pass that must fail; what routegc said.
    ///
    /// # Errors
    /// It succeeds, or panics.
    pub async fn failing_pass(&self) -> Result<String> {
        let (code, said) = self.pass().await?;
        ensure!(code == 1 && !said.contains("panicked"), "exit code {code}: {said}");
        Ok(said)
    }

    /// What `routegc --dry-run` prints, with more arguments.
    ///
    /// # Errors
    /// It does not end well.
    pub async fn dry_run(&self, more: &[&str]) -> Result<String> {
        let launch = self.command()?.env("RUST_LOG", "error").arg("--dry-run").args(more.iter().copied());
        let (code, said) = run(&launch).await?;
        ensure!(code == 0, "exit code {code}: {said}");
        Ok(said)
    }
}
