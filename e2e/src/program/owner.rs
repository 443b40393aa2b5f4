//! A test's own program, started again as the owner of something, to be killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// An owner that lives until it is killed.
#[derive(Debug)]
pub struct Owner(Child);

/// Tells a test, started as a process of its own, that it is the owner.
const ROLE: &str = "E2E_OWNER_TO_BE_KILLED";

impl Owner {
    /// Whether this process is an owner: then it makes what is owned, says so by [`Owner::hold`], and returns.
    #[must_use]
    pub fn is_this() -> bool {
        std::env::var_os(ROLE).is_some()
    }

    /// In the owner: says `what` it owns, and waits until the pipe closes, which it does not before this process is killed.
    pub fn hold(what: &str) {
        println!("\nowns {what}");
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    /// Starts `test` (its whole path) of this program as an owner; with what it says it owns.
    ///
    /// # Errors
    /// It cannot be started, or ends without a word.
    pub fn start(test: &str) -> Result<(Self, String)> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let said = lines.find_map(|line| line.ok()?.strip_prefix("owns ").map(str::to_owned));
        Ok((Self(child), said.with_context(|| format!("{test} as an owner said nothing"))?))
    }

    /// SIGKILL; returns when it is gone.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}
