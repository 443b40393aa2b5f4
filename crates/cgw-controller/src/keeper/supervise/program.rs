//! The program keepalived: its check of a configuration, its log lines, its VRRP process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::super::process::{Process, Stat};

/// keepalived's check of its configuration.
const CONFIGURATION_CHECK: Duration = Duration::from_secs(10);

/// The VRRP process in keepalived's file, if it belongs to this keepalived.
pub(super) fn vrrp_process(file: &Path, leader: Process) -> Option<Stat> {
    let pid = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    Stat::of(pid).filter(|stat| stat.parent == leader.pid && !stat.is_ended())
}

/// `keepalived --config-test`.
pub(super) async fn check(keepalived: &Path, configuration: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(keepalived);
    command.arg("--use-file").arg(configuration).arg("--config-test").stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(CONFIGURATION_CHECK, command.output()).await;
    let output = output
        .with_context(|| {
            format!("keepalived did not check its configuration within {CONFIGURATION_CHECK:?}")
        })?
        .with_context(|| format!("starting {}", keepalived.display()))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    ensure!(output.status.success(), "keepalived refuses the configuration: {message}");
    Ok(())
}

/// keepalived's log lines, without their times.
pub(super) async fn forward(output: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let line = line
            .split_once(": ")
            .filter(|(time, _)| time.len() == 24)
            .map_or(line.as_str(), |(_, rest)| rest);
        tracing::info!(target: "keepalived", "{line}");
    }
}
