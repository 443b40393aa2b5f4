//! What the figures were measured on.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Processors, memory, kernel.
///
/// # Errors
/// /proc does not tell.
pub(crate) fn hardware() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    // Not all architectures name their processor.
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|_| "unnamed processor".to_owned());
    let memory = field("/proc/meminfo", "MemTotal")?;
    let kibibytes: f64 = memory.trim_end_matches(" kB").parse().with_context(|| memory.clone())?;
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let gibibytes = kibibytes / f64::from(1 << 20);
    let arch = std::env::consts::ARCH;
    Ok(format!("{cores} cores of {model}, {gibibytes:.1} GiB of memory, Linux {} ({arch})", kernel.trim()))
}

/// The load average of the last 1, 5 and 15 minutes.
///
/// # Errors
/// /proc does not tell.
pub(crate) fn load() -> Result<String> {
    let line = read("/proc/loadavg")?;
    Ok(line.split_whitespace().take(3).collect::<Vec<_>>().join(", "))
}

/// What a program says about its version.
///
/// # Errors
/// It cannot be started, or says nothing.
pub(crate) fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output().context("--version")?;
    ensure!(output.status.success(), "{} --version: {}", program.display(), output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// What a process has in memory, by /proc/PID/smaps_rollup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Pages in memory, those of its file included, in bytes.
    pub(crate) rss: u64,
    /// The same, with each page shared between processes divided by their number.
    pub(crate) pss: u64,
    /// Pages that belong to no file: heap and stacks; in bytes.
    pub(crate) anonymous: u64,
}

impl Memory {
    /// As it is now.
    ///
    /// # Errors
    /// The process has ended, or is somebody else's.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        Self::parse(&read(&format!("/proc/{pid}/smaps_rollup"))?)
    }

    fn parse(text: &str) -> Result<Self> {
        let bytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kibibytes = line.with_context(|| format!("smaps_rollup has no {name}"))?.trim();
            let number: u64 = kibibytes.trim_end_matches(" kB").parse()?;
            anyhow::Ok(number * 1024)
        };
        Ok(Self { rss: bytes("Rss")?, pss: bytes("Pss")?, anonymous: bytes("Anonymous")? })
    }
}

/// The greatest RSS that a process ever had, in bytes.
///
/// # Errors
/// The process has ended.
pub(crate) fn peak_rss(pid: u32) -> Result<u64> {
    let line = field(&format!("/proc/{pid}/status"), "VmHWM")?;
    let kibibytes: u64 = line.trim_end_matches(" kB").parse().with_context(|| line.clone())?;
    Ok(kibibytes * 1024)
}

/// The processor time that the threads of a process have used so far. A thread that has ended does not count: the controllers
/// have one that works, and it stays.
///
/// # Errors
/// The process has ended.
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

/// How many sockets a process has open.
///
/// # Errors
/// The process has ended.
pub(crate) fn sockets(pid: u32) -> Result<usize> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    Ok(targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count())
}

fn field(path: &str, name: &str) -> Result<String> {
    let text = read(path)?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    value.with_context(|| format!("{path} has no {name}"))
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_read() {
        let text = "55-77 ---p 0 00:00 0 [rollup]\nRss:                1752 kB\nPss:                 147 kB\n\
                    Pss_Dirty:           116 kB\nAnonymous:           100 kB\n";
        let memory = Memory::parse(text).unwrap();
        assert_eq!((memory.rss, memory.pss, memory.anonymous), (1752 << 10, 147 << 10, 100 << 10));
        assert!(Memory::parse("Rss: 1 kB").is_err());
    }

    #[test]
    fn this_machine_can_be_described() {
        assert!(hardware().unwrap().contains("GiB"));
        assert_eq!(load().unwrap().split(", ").count(), 3);
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.anonymous > 0 && memory.pss <= memory.rss);
        assert!(peak_rss(std::process::id()).unwrap() > 0);
        assert!(processor_time(std::process::id()).unwrap() > Duration::ZERO);
    }
}
