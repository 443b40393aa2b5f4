//! Whether anybody else is at work on this machine.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// The part of the machine that others may use while a chunk is measured: the lab of the spec's own figures had the same.
pub(crate) const OTHERS: f64 = 0.12;
/// So long the machine is watched before a chunk: ten of the kernel's ticks.
const WINDOW: Duration = Duration::from_millis(100);
/// And so often, before a chunk begins all the same; it will be thrown away then, if others go on.
const WINDOWS: usize = 100;

/// Processor time of the whole machine, and of this process with its children, in seconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    at: Instant,
    busy: f64,
    own: f64,
}

/// From the start of a chunk on.
#[derive(Debug)]
pub(crate) struct Watch {
    start: Times,
    cores: f64,
}

impl Watch {
    /// Begins when nobody is at work, or when it was waited for that long enough.
    ///
    /// # Errors
    /// /proc does not tell.
    pub(crate) fn when_idle() -> Result<Self> {
        let cores = std::thread::available_parallelism()?.get() as f64;
        for _ in 0..WINDOWS {
            let watch = Self { start: Times::now()?, cores };
            std::thread::sleep(WINDOW);
            if watch.others()? <= OTHERS {
                break;
            }
        }
        Ok(Self { start: Times::now()?, cores })
    }

    /// The part of the machine, 0 to 1, that others have used since.
    ///
    /// # Errors
    /// /proc does not tell.
    pub(crate) fn others(&self) -> Result<f64> {
        let now = Times::now()?;
        let others = (now.busy - self.start.busy) - (now.own - self.start.own);
        let all = now.at.duration_since(self.start.at).as_secs_f64() * self.cores;
        Ok((others / all).max(0.0))
    }
}

impl Times {
    fn now() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        // user nice system idle iowait irq softirq steal: all but idle and iowait, in ticks of 10 ms.
        let fields: Vec<f64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or_default())
            .collect();
        let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| fields.get(*index)).sum::<f64>() / 100.0;
        let mut own = 0.0;
        for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
            let usage = getrusage(who)?;
            own +=
                (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6;
        }
        Ok(Self { at: Instant::now(), busy, own })
    }
}
