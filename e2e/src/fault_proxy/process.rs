//! Stops a process, and waits for its end.

use std::time::Duration;

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Sends SIGKILL and returns once no thread of the process can run any more; its parent still has to collect it.
/// A process that is gone already is no error.
///
/// # Errors
/// It may not be signalled, or the pid is no pid.
pub async fn kill_process(pid: u32) -> anyhow::Result<()> {
    let target = Pid::from_raw(i32::try_from(pid).context("pid")?);
    match kill(target, Signal::SIGKILL) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("SIGKILL to {pid}")),
    }
    while runs(pid).await {
        // The kernel needs microseconds; there is nothing to wait on for a process that may be another's child.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Whether one of its threads still runs; the leader may have ended before the others.
async fn runs(pid: u32) -> bool {
    let Ok(stat) = tokio::fs::read_to_string(format!("/proc/{pid}/stat")).await else { return false };
    // The name in parentheses may contain anything: the state is after the last parenthesis.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    if !matches!(state, Some('Z' | 'X')) {
        return true;
    }
    let Ok(mut tasks) = tokio::fs::read_dir(format!("/proc/{pid}/task")).await else { return false };
    let mut threads = 0;
    while let Ok(Some(_)) = tasks.next_entry().await {
        threads += 1;
    }
    threads > 1
}
