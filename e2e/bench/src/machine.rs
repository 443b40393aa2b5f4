//! The machine: what it is, what a process uses of it, and what everything else uses.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// How this program was compiled.
pub(crate) const BUILD: &str = if cfg!(debug_assertions) { "DEBUG build" } else { "release build" };

/// Processors, memory, kernel.
pub(crate) fn hardware() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    // Not all architectures name their processor.
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|_| "unnamed processor".to_owned());
    let memory = kibibytes("/proc/meminfo", "MemTotal")? as f64 / f64::from(1 << 20);
    let (kernel, arch) = (read("/proc/sys/kernel/osrelease")?, std::env::consts::ARCH);
    Ok(format!("{cores} cores of {model}, {memory:.1} GiB of memory, Linux {} ({arch})", kernel.trim()))
}

/// The load average of the last 1, 5 and 15 minutes.
pub(crate) fn load() -> Result<String> {
    Ok(read("/proc/loadavg")?.split_whitespace().take(3).collect::<Vec<_>>().join(", "))
}

/// The trimmed output of `--version` of a program.
pub(crate) fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output().context("--version")?;
    ensure!(output.status.success(), "{} --version: {}", program.display(), output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The memory of a process in bytes, from /proc/PID/smaps_rollup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Pages in memory, including those of its file.
    pub(crate) rss: u64,
    /// The same, with each page shared between processes divided by their number.
    pub(crate) pss: u64,
    /// Pages without a file: heap and stacks.
    pub(crate) anonymous: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let bytes = |name| Ok::<_, anyhow::Error>(kibibytes(&path, name)? * 1024);
        Ok(Self { rss: bytes("Rss")?, pss: bytes("Pss")?, anonymous: bytes("Anonymous")? })
    }
}

/// The greatest RSS that a process ever had, in bytes.
pub(crate) fn peak_rss(pid: u32) -> Result<u64> {
    Ok(kibibytes(&format!("/proc/{pid}/status"), "VmHWM")? * 1024)
}

/// The processor time of all threads of a process. Threads that have ended are not counted, but the thread in which a controller
/// works never ends.
pub(crate) fn processor_time(pid: u32) -> Result<Duration> {
    let mut used = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path().join("schedstat");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let nanoseconds = text.split_whitespace().next().with_context(|| path.display().to_string())?;
        used += Duration::from_nanos(nanoseconds.parse()?);
    }
    Ok(used)
}

/// The number of open sockets of a process.
pub(crate) fn sockets(pid: u32) -> Result<usize> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    Ok(targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count())
}

/// The processor time of this process (SELF) or of its children that have ended (CHILDREN), in milliseconds.
pub(crate) fn own_time(who: UsageWho) -> Result<f64> {
    let usage = getrusage(who)?;
    // Exact up to centuries.
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e3)
}

/// How much of the machine other processes use, from some time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    at: Instant,
    /// Processor time of the whole machine, in seconds.
    busy: f64,
    /// The part of it that is this process and its children.
    own: f64,
}

impl Others {
    pub(crate) fn from_now() -> Result<Self> {
        // user nice system idle iowait irq softirq steal: all except idle and iowait, in ticks of 10 ms.
        let stat = read("/proc/stat")?;
        let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let busy = fields.enumerate().filter(|(index, _)| [0, 1, 2, 5, 6, 7].contains(index));
        let busy: f64 = busy.map(|(_, ticks)| ticks.parse().unwrap_or(0.0)).sum();
        let own = own_time(UsageWho::RUSAGE_SELF)? + own_time(UsageWho::RUSAGE_CHILDREN)?;
        Ok(Self { at: Instant::now(), busy: busy / 100.0, own: own / 1e3 })
    }

    /// The share that others have used since then, from 0 to 1.
    pub(crate) fn share(&self) -> Result<f64> {
        let now = Self::from_now()?;
        let cores = std::thread::available_parallelism()?.get() as f64;
        let others = (now.busy - self.busy) - (now.own - self.own);
        Ok((others / (now.at.duration_since(self.at).as_secs_f64() * cores)).max(0.0))
    }
}

fn field(path: &str, name: &str) -> Result<String> {
    let text = read(path)?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let value = pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned());
    value.with_context(|| format!("{path} has no {name}"))
}

fn kibibytes(path: &str, name: &str) -> Result<u64> {
    let value = field(path, name)?;
    value.trim_end_matches(" kB").parse().with_context(|| format!("{path}: {name}: {value}"))
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_this_process_can_be_measured() {
        assert!(hardware().unwrap().contains("GiB"));
        assert_eq!(load().unwrap().split(", ").count(), 3);
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.anonymous > 0 && memory.pss <= memory.rss && memory.anonymous <= memory.rss);
        assert!(peak_rss(std::process::id()).unwrap() > 0);
        assert!(processor_time(std::process::id()).unwrap() > Duration::ZERO);
        assert!(Others::from_now().unwrap().busy > 0.0);
        assert!(kibibytes("/proc/meminfo", "NoSuchField").is_err());
    }
}
