//! Processes, as /proc shows them.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sys;

/// The name of keepalived's processes in /proc/PID/comm.
const KEEPALIVED: &str = "keepalived";

/// Identity of a process: its ID is used again after its end, but not with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Process ID, in the PID namespace of the reader.
    pub pid: u32,
    /// Start time in clock ticks since the boot.
    pub start: u64,
}

/// The fields of /proc/PID/stat that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process.
    pub process: Process,
    /// Name of the program, cut after 15 bytes.
    pub name: String,
    /// `T`: stopped by a signal. `t`: stopped by a debugger. `Z`, `X`: ended.
    pub state: char,
    /// Parent.
    pub parent: u32,
    /// Process group.
    pub group: u32,
}

impl Stat {
    /// Reads the line of /proc/PID/stat. The name is in parentheses and can contain any character.
    #[must_use]
    pub fn parse(line: &str) -> Option<Stat> {
        let (pid, rest) = line.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse().ok();
        Some(Stat {
            process: Process { pid: pid.parse().ok()?, start: fields.get(19)?.trim().parse().ok()? },
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: number(1)?,
            group: number(2)?,
        })
    }

    /// The process with this ID, if there is one.
    #[must_use]
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether the process is stopped: it makes no progress until it gets SIGCONT.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

impl Process {
    /// The calling process.
    #[must_use]
    pub fn current() -> Option<Process> {
        Stat::of(std::process::id()).map(|stat| stat.process)
    }

    /// The process, unless it has ended, or its ID belongs to another process.
    #[must_use]
    pub fn stat(self) -> Option<Stat> {
        Stat::of(self.pid).filter(|stat| stat.process == self && !stat.is_ended())
    }

    /// Context switches of the process: they increase while it makes progress. keepalived's VRRP process sleeps and wakes up at least
    /// once for each advert.
    #[must_use]
    pub fn switches(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let numbers = status.lines().filter_map(|line| {
            let (name, number) = line.split_once(':')?;
            name.ends_with("ctxt_switches").then(|| number.trim().parse::<u64>().ok())?
        });
        Some(numbers.fold(0, u64::saturating_add))
    }
}

/// The processes of a keepalived: those of the process group that `leader` leads or led.
#[must_use]
pub fn keepalived_of(leader: Process) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Stat::of)
        .filter(|stat| {
            // A group ID is used again only when no process of the group is left, and then for younger processes of another name.
            let member = stat.group == leader.pid && stat.process.start >= leader.start;
            let leads = stat.process.pid != leader.pid || stat.process == leader;
            member && leads && stat.name == KEEPALIVED && !stat.is_ended()
        })
        .map(|stat| stat.process)
        .collect()
}

/// Ends all processes of a keepalived at once. Returns the number of those that ran. The caller repeats it until there is none: a
/// process may have started another one in between.
pub fn kill_keepalived(leader: Process) -> usize {
    let processes = keepalived_of(leader);
    for process in &processes {
        // It may have ended by itself.
        let _ = sys::send(process.pid, libc::SIGKILL);
    }
    processes.len()
}

/// Why a process makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    /// Stopped by a signal.
    Stopped,
    /// Not scheduled for this time.
    Stalled(Duration),
}

/// Detects a process that makes no progress.
#[derive(Clone, Debug, Default)]
pub struct Watchdog {
    last: Option<Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    process: Process,
    switches: u64,
    at: Duration,
    /// Observations without a change. When the observer did not run either, there were few.
    observations: u32,
}

/// Observations without progress, beside the time: after a stall of the whole node the observer and the observed run again at the
/// same time.
const OBSERVATIONS: u32 = 3;

impl Watchdog {
    /// An observation of the process. `limit`: the longest time without progress.
    pub fn observe(&mut self, now: Duration, stat: &Stat, switches: u64, limit: Duration) -> Option<Frozen> {
        if stat.is_stopped() {
            return Some(Frozen::Stopped);
        }
        match &mut self.last {
            Some(last) if last.process == stat.process && last.switches == switches => {
                last.observations = last.observations.saturating_add(1);
                let stalled = now.saturating_sub(last.at);
                (stalled >= limit && last.observations >= OBSERVATIONS).then_some(Frozen::Stalled(stalled))
            }
            last => {
                *last = Some(Progress { process: stat.process, switches, at: now, observations: 0 });
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "28870 (keep) alived) T 28867 28866 28865 0 -1 4194304 88 0 0 0 0 1 0 0 20 0 1 0 16243 10444800 1500 18446744073709551615 1 1 0\n";

    #[test]
    fn stat_is_read_whatever_the_name_contains() {
        let stat = Stat::parse(LINE).unwrap();
        assert_eq!(stat.process, Process { pid: 28870, start: 16243 });
        assert_eq!((stat.name.as_str(), stat.parent, stat.group), ("keep) alived", 28867, 28866));
        assert!(stat.is_stopped() && !stat.is_ended());
        let own = Process::current().unwrap();
        assert!(own.stat().is_some() && own.switches().is_some());
        assert!(Process { start: own.start + 1, ..own }.stat().is_none(), "another process");
    }

    proptest! {
        #[test]
        fn no_line_causes_a_panic(line: String) {
            let _ = Stat::parse(&line);
        }
    }

    #[test]
    fn a_stopped_process_is_frozen_at_once_and_a_silent_one_after_the_limit() {
        let stopped = Stat::parse(LINE).unwrap();
        let running = Stat { state: 'S', ..stopped.clone() };
        let at = |milliseconds| Duration::from_millis(milliseconds);
        let mut watchdog = Watchdog::default();
        assert_eq!(watchdog.observe(at(0), &stopped, 1, at(800)), Some(Frozen::Stopped));
        for time in [0, 100, 700] {
            assert_eq!(watchdog.observe(at(time), &running, 1, at(800)), None);
        }
        assert_eq!(watchdog.observe(at(900), &running, 1, at(800)), Some(Frozen::Stalled(at(900))));
        assert_eq!(watchdog.observe(at(1000), &running, 2, at(800)), None, "progress");
        // The observer did not run.
        assert_eq!(watchdog.observe(at(9000), &running, 2, at(800)), None);
        // Another process.
        let next = Stat { process: Process { pid: 1, start: 2 }, ..running };
        assert_eq!(watchdog.observe(at(20_000), &next, 2, at(800)), None);
    }
}
