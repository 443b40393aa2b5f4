//! Every decision of an election, and nothing else: no kube, no tokio, no clock.
//!
//! [`Machine::step`] takes an input and returns the next command. The caller runs one command at a time, and passes its outcome
//! to the next step:
//!
//! ```text
//!   Wait ── Tick ──▶ Update (we hold it: with the version that we know)──Done──▶ Wait
//!                │        └─Conflict, Failed─┐
//!                └─────▶ Read ◀──────────────┘
//!                         ├─NotFound──▶ Create ─▶ Wait
//!                         ├─free, expired or ours─▶ Update ─▶ Wait
//!                         └─held, or Failed─▶ Wait
//! ```
//!
//! Times are those of one process's monotonic clock, from an origin of its own. State is plain data, so that a model can
//! explore it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::record::Record;
use super::settings::JITTER_FACTOR;
use super::{Ended, Settings};

/// When something happened.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic, since an origin that is fixed for the process: all decisions are by this.
    pub local: Duration,
    /// Written into records; nothing is decided by it.
    pub wall: Timestamp,
}

/// An input of the machine: the end of a wait, the outcome of a command, or the request to release the lease.
#[derive(Clone, Debug)]
pub enum Input {
    /// The wait is over; also the very first input.
    Tick,
    /// The outcome of [`Command::Read`].
    Read(ReadOutcome),
    /// The outcome of [`Command::Create`] or [`Command::Update`].
    Written(WriteOutcome),
    /// Give the lease up and stop. Allowed at any time; a command under way is abandoned.
    Release,
}

/// Outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReadOutcome {
    /// There is no Lease.
    NotFound,
    /// There is one.
    Found {
        /// its spec
        record: Record,
        /// its metadata.resourceVersion
        version: String,
    },
    /// Not known.
    Failed,
}

/// Outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// Accepted.
    Done {
        /// metadata.resourceVersion of what was written
        version: String,
    },
    /// Refused: another contender was first.
    Conflict,
    /// Not known; it may have been accepted, or be accepted later.
    Failed,
}

/// The next operation of the caller: a request to the API server, a wait, or the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// GET the Lease.
    Read {
        /// give up after
        timeout: Duration,
    },
    /// POST the Lease.
    Create {
        /// its spec
        record: Record,
        /// give up after
        timeout: Duration,
    },
    /// PUT the Lease, on condition that its version is `version`.
    Update {
        /// its spec
        record: Record,
        /// metadata.resourceVersion that it must still have
        version: String,
        /// give up after
        timeout: Duration,
    },
    /// Wait for any time between the two, evenly at random, then send a [`Input::Tick`].
    Wait {
        /// no less than
        at_least: Duration,
        /// no more than
        at_most: Duration,
    },
    /// It is over; repeated if asked again.
    End(Ended),
}

/// The record as it was last read or written here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observed {
    /// what it says
    pub record: Record,
    /// of the Lease
    pub version: String,
    /// when it was first seen so, after the response had arrived; [`Now::local`]
    pub at: Duration,
}

/// The state of the machine: the input that it waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// the end of a wait
    Waiting,
    /// a read that belongs to a try
    Reading {
        /// when the try began; [`Now::local`]
        tried: Duration,
    },
    /// a write that makes or keeps us leader
    Writing {
        /// what is written
        record: Record,
        /// just before it was sent; [`Now::local`]
        sent: Duration,
        /// written with the known version, without a read before: read when it fails
        blind: bool,
    },
    /// the read before a release
    ReleaseReading {
        /// no more tries after
        by: Duration,
    },
    /// the write that releases
    ReleaseWriting {
        /// no more tries after
        by: Duration,
    },
    /// nothing
    Over(Ended),
}

/// One contender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// who it is and how fast
    pub settings: Arc<Settings>,
    /// None: never seen
    pub observed: Option<Observed>,
    /// leading until then; [`Now::local`]
    pub until: Option<Duration>,
    /// what it waits for
    pub phase: Phase,
    /// a write was sent: the Lease may name us
    pub wrote: bool,
}

impl Machine {
    /// A candidate that knows nothing. Its first input is a [`Input::Tick`].
    #[must_use]
    pub fn new(settings: Arc<Settings>) -> Machine {
        Machine { settings, observed: None, until: None, phase: Phase::Waiting, wrote: false }
    }

    /// Whether this contender leads at `local`: the last accepted renewal was sent less than `renew_deadline` before.
    #[must_use]
    pub fn is_leading(&self, local: Duration) -> bool {
        self.until.is_some_and(|until| local < until)
    }

    /// The holder as last observed; empty without a holder, and before the first read.
    #[must_use]
    pub fn holder(&self) -> &str {
        self.observed.as_ref().map_or("", |observed| &observed.record.holder)
    }

    /// Takes one input, at the time when it is taken: not when a response was sent or a timer was due.
    pub fn step(&mut self, now: Now, input: Input) -> Command {
        if let Phase::Over(ended) = self.phase {
            return Command::End(ended);
        }
        if matches!(input, Input::Release) {
            return self.release(now);
        }
        if self.until.is_some_and(|until| until <= now.local) {
            return self.end(Ended::Lost);
        }
        match (std::mem::replace(&mut self.phase, Phase::Waiting), input) {
            (Phase::Waiting, Input::Tick) => self.attempt(now),
            (Phase::Reading { tried }, Input::Read(outcome)) => self.judge(now, tried, outcome),
            (Phase::Writing { record, sent, .. }, Input::Written(WriteOutcome::Done { version })) => {
                self.confirmed(now, record, version, sent)
            }
            (Phase::Writing { sent, blind: true, .. }, Input::Written(_)) => self.read(now, sent),
            (Phase::ReleaseReading { by }, Input::Read(outcome)) => self.give_up(now, by, outcome),
            // Our own late renewal may have been accepted since the read; then the Lease still names us.
            (Phase::ReleaseWriting { by }, Input::Written(WriteOutcome::Conflict)) if now.local < by => {
                self.reread(now, by)
            }
            (Phase::ReleaseReading { .. } | Phase::ReleaseWriting { .. }, _) => self.end(Ended::Stopped),
            // A failed try, or the outcome of another command, which is ignored.
            _ => self.wait(now),
        }
    }

    /// One try to take or keep the lease.
    fn attempt(&mut self, now: Now) -> Command {
        match &self.observed {
            Some(observed) if self.is_ours(observed) && self.is_valid(observed, now.local) => {
                let record = observed.record.renewed(self.settings.lease_duration_seconds(), now.wall);
                let version = observed.version.clone();
                self.update(now, record, version, true)
            }
            _ => self.read(now, now.local),
        }
    }

    fn judge(&mut self, now: Now, tried: Duration, outcome: ReadOutcome) -> Command {
        let seconds = self.settings.lease_duration_seconds();
        let (record, version) = match outcome {
            ReadOutcome::Failed => return self.wait(now),
            ReadOutcome::NotFound => {
                let record = Record::first(&self.settings.identity, seconds, now.wall);
                self.begin_write(now, record.clone(), false);
                return Command::Create { record, timeout: self.timeout(now) };
            }
            ReadOutcome::Found { record, version } => (record, version),
        };
        let observed = self.observe(now, record, version);
        let (record, version) = (&observed.record, observed.version.clone());
        if self.is_ours(&observed) {
            return self.update(now, record.renewed(seconds, now.wall), version, false);
        }
        if self.until.is_some() {
            return self.end(Ended::Lost);
        }
        // By the start of the try, as client-go does: the earlier time is the more patient one.
        if !record.holder.is_empty() && self.is_valid(&observed, tried) {
            return self.wait(now);
        }
        self.update(now, record.taken_over(&self.settings.identity, seconds, now.wall), version, false)
    }

    /// The server has accepted what was sent at `sent`.
    fn confirmed(&mut self, now: Now, record: Record, version: String, sent: Duration) -> Command {
        self.observed = Some(Observed { record, version, at: now.local });
        let until = sent + self.settings.renew_deadline;
        // A response this late does not start leadership: the lease is ours, and the next try may make us leader.
        if now.local < until {
            self.until = Some(until);
        }
        self.wait(now)
    }

    fn release(&mut self, now: Now) -> Command {
        self.until = None;
        if self.wrote {
            self.reread(now, now.local + self.settings.renew_deadline)
        } else {
            self.end(Ended::Stopped)
        }
    }

    fn reread(&mut self, now: Now, by: Duration) -> Command {
        self.phase = Phase::ReleaseReading { by };
        Command::Read { timeout: self.timeout(now) }
    }

    /// Only what names us is released, and only in the version that was read.
    fn give_up(&mut self, now: Now, by: Duration, outcome: ReadOutcome) -> Command {
        let ReadOutcome::Found { record, version } = outcome else { return self.end(Ended::Stopped) };
        let observed = self.observe(now, record, version);
        if !self.is_ours(&observed) {
            return self.end(Ended::Stopped);
        }
        self.phase = Phase::ReleaseWriting { by };
        let record = observed.record.released(now.wall);
        Command::Update { record, version: observed.version, timeout: self.timeout(now) }
    }

    /// The time of an observation restarts with each change, and with nothing else.
    fn observe(&mut self, now: Now, record: Record, version: String) -> Observed {
        let seen = self.observed.take().filter(|seen| seen.version == version && seen.record == record);
        let observed = seen.unwrap_or(Observed { record, version, at: now.local });
        self.observed = Some(observed.clone());
        observed
    }

    fn is_ours(&self, observed: &Observed) -> bool {
        observed.record.holder == self.settings.identity
    }

    fn is_valid(&self, observed: &Observed, local: Duration) -> bool {
        local < observed.at.saturating_add(observed.record.lease_duration(self.settings.lease_duration))
    }

    fn read(&mut self, now: Now, tried: Duration) -> Command {
        self.phase = Phase::Reading { tried };
        Command::Read { timeout: self.timeout(now) }
    }

    fn update(&mut self, now: Now, record: Record, version: String, blind: bool) -> Command {
        self.begin_write(now, record.clone(), blind);
        Command::Update { record, version, timeout: self.timeout(now) }
    }

    fn begin_write(&mut self, now: Now, record: Record, blind: bool) {
        self.wrote = true;
        self.phase = Phase::Writing { record, sent: now.local, blind };
    }

    /// A leader retries in step and is awake when its time ends; a candidate adds jitter.
    fn wait(&mut self, now: Now) -> Command {
        self.phase = Phase::Waiting;
        let retry = self.settings.retry_period;
        match self.until {
            Some(until) => {
                let wait = retry.min(until.saturating_sub(now.local));
                Command::Wait { at_least: wait, at_most: wait }
            }
            None => Command::Wait { at_least: retry, at_most: retry.mul_f64(1.0 + JITTER_FACTOR) },
        }
    }

    /// A leader's call ends when its time does.
    fn timeout(&self, now: Now) -> Duration {
        let timeout = self.settings.call_timeout();
        self.until.map_or(timeout, |until| timeout.min(until.saturating_sub(now.local)))
    }

    fn end(&mut self, ended: Ended) -> Command {
        self.until = None;
        self.phase = Phase::Over(ended);
        Command::End(ended)
    }
}

#[cfg(test)]
mod tests;
