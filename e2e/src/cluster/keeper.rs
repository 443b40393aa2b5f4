//! The process that removes a cluster when its owner ends, also if the owner is killed.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// The folder of the scripts.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster")
}

/// A process that holds a cluster's number, waits until the pipe to it closes, and then takes the cluster down.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Child,
    number: u8,
}

impl Keeper {
    pub(super) fn start() -> Result<Self> {
        // Its own process group, so that Ctrl-C of a terminal does not reach it.
        let mut child = Command::new(folder().join("hold.sh"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("the keeper of the cluster")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let number =
            line.trim().parse().context("no cluster could be begun; the reason is on standard error")?;
        Ok(Self { child, number })
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
