//! Starts a test again as a process that owns resources, to be killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A process that owns resources until it is killed.
#[derive(Debug)]
pub struct Owner(Child);

/// Variable that starts a test as the owner.
const ROLE: &str = "E2E_OWNER_TO_BE_KILLED";

impl Owner {
    /// Whether this process is the owner. Then it creates the resources, reports them with [`Owner::hold`], and returns.
    #[must_use]
    pub fn is_this() -> bool {
        std::env::var_os(ROLE).is_some()
    }

    /// In the owner: prints `what` it owns, and waits until it is killed.
    pub fn hold(what: &str) {
        println!("\nowns {what}");
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    /// Starts `test` (its full path) of this program as an owner. Returns its report too.
    ///
    /// # Errors
    /// It cannot be started, or exits without a report.
    pub fn start(test: &str) -> Result<(Self, String)> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let owned = lines.find_map(|line| line.ok()?.strip_prefix("owns ").map(str::to_owned));
        Ok((Self(child), owned.with_context(|| format!("{test} as an owner wrote nothing"))?))
    }

    /// Kills it (SIGKILL), and waits for its end.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}
