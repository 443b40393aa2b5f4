//! The parts that both models share: the API server, and a contender that may be broken on purpose.

use std::sync::Arc;
use std::time::Duration;

use common::leader::Settings;
use common::leader::machine::{Command, Input, Machine, Now, Phase, ReadOutcome, WriteOutcome};
use common::leader::record::Record;
use jiff::Timestamp;

/// Mistakes that real implementations make or could make: a model that does not catch each of them proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The real thing.
    None,
    /// Counts leadership from the answer to a renewal, not from when it was sent.
    CountsFromResponse,
    /// Compares the other's renewTime with its own wall clock, and these disagree.
    TrustsRemoteTime,
    /// Takes over after less than the lease duration.
    WaitsLess,
    /// Counts the wait from when it asked for the record, not from when it had it.
    WaitsFromAsking,
    /// Writes without a resourceVersion (a merge patch).
    NoPrecondition,
    /// Leads until told otherwise, not until a deadline.
    NeverEnds,
    /// Leads until its release was answered.
    LeadsWhileReleasing,
    /// Leads because the Lease that it reads names it: it may be an own write, of an unknown time.
    BelievesItsName,
    /// Its wall clock stands still, so that a renewal changes nothing and the server drops it.
    HidesRenewals,
    /// Releases whatever record it finds.
    ReleasesBlindly,
}

impl Flaw {
    /// Each of them.
    pub const ALL: [Flaw; 10] = [
        Flaw::CountsFromResponse,
        Flaw::TrustsRemoteTime,
        Flaw::WaitsLess,
        Flaw::WaitsFromAsking,
        Flaw::NoPrecondition,
        Flaw::NeverEnds,
        Flaw::LeadsWhileReleasing,
        Flaw::BelievesItsName,
        Flaw::HidesRenewals,
        Flaw::ReleasesBlindly,
    ];
}

/// A call on its way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read,
    Create(Record),
    Update(Record, String),
}

impl Request {
    /// The call of a command; None for a wait or an end.
    pub fn of(command: &Command) -> Option<Request> {
        match command {
            Command::Read { .. } => Some(Request::Read),
            Command::Create { record, .. } => Some(Request::Create(record.clone())),
            Command::Update { record, version, .. } => Some(Request::Update(record.clone(), version.clone())),
            Command::Wait { .. } | Command::End(_) => None,
        }
    }

    pub fn is_write(&self) -> bool {
        *self != Request::Read
    }

    /// The input for the caller when it gets no response.
    pub fn failed(&self) -> Input {
        match self {
            Request::Read => Input::Read(ReadOutcome::Failed),
            _ => Input::Written(WriteOutcome::Failed),
        }
    }
}

/// The API server's part: one Lease, with a version for each content.
#[derive(Clone, Debug, Default)]
pub struct Server {
    pub lease: Option<(Record, String)>,
    pub versions: u64,
}

impl Server {
    pub fn version(&self) -> Option<&str> {
        self.lease.as_ref().map(|(_, version)| version.as_str())
    }

    /// Whether a write could be accepted now.
    pub fn accepts(&self, request: &Request, flaw: Flaw) -> bool {
        match request {
            Request::Read => false,
            Request::Create(_) => self.lease.is_none(),
            Request::Update(_, version) => {
                self.version().is_some_and(|current| current == version || flaw == Flaw::NoPrecondition)
            }
        }
    }

    pub fn serve(&mut self, request: &Request, flaw: Flaw) -> Input {
        let accepted = self.accepts(request, flaw);
        let (Request::Create(record) | Request::Update(record, _)) = request else {
            return Input::Read(match self.lease.clone() {
                None => ReadOutcome::NotFound,
                Some((record, version)) => ReadOutcome::Found { record, version },
            });
        };
        if !accepted {
            return Input::Written(WriteOutcome::Conflict);
        }
        // A real one does the same: a write that changes nothing is answered, and not stored.
        let unchanged = self.lease.as_ref().is_some_and(|(stored, _)| stored == record);
        assert!(!unchanged || flaw != Flaw::None, "a write that others cannot see: {record:?}");
        if !unchanged {
            self.versions += 1;
            self.lease = Some((record.clone(), self.versions.to_string()));
        }
        Input::Written(WriteOutcome::Done { version: self.version().unwrap().to_owned() })
    }
}

/// A machine, and what its flaw makes of it.
#[derive(Clone, Debug)]
pub struct Contender {
    pub machine: Machine,
    /// leading until then although the machine knows better; local time
    pub leads_until: Option<Duration>,
    /// when the last command was given; local time
    pub asked: Duration,
}

impl Contender {
    pub fn new(settings: Settings) -> Contender {
        Contender { machine: Machine::new(Arc::new(settings)), leads_until: None, asked: Duration::ZERO }
    }

    pub fn identity(&self) -> &str {
        &self.machine.settings.identity
    }

    pub fn is_over(&self) -> bool {
        matches!(self.machine.phase, Phase::Over(_))
    }

    pub fn is_leading(&self, local: Duration, flaw: Flaw) -> bool {
        self.machine.is_leading(local)
            || self.leads_until.is_some_and(|until| local < until)
            || flaw == Flaw::NeverEnds && self.machine.until.is_some()
    }

    pub fn step(&mut self, now: Now, mut input: Input, flaw: Flaw) -> Command {
        let mut seen = now;
        let releasing = matches!(self.machine.phase, Phase::ReleaseReading { .. });
        let mut named = false;
        if let Input::Read(outcome) = &mut input {
            if flaw == Flaw::WaitsFromAsking {
                seen.local = self.asked;
            }
            if let ReadOutcome::Found { record, .. } = outcome {
                let ours = record.holder == self.identity();
                named = ours && !releasing;
                match flaw {
                    Flaw::TrustsRemoteTime if !ours => record.holder.clear(),
                    Flaw::WaitsLess => record.lease_duration_seconds = 1,
                    Flaw::ReleasesBlindly if releasing => record.holder = self.identity().to_owned(),
                    _ => {}
                }
            }
        }
        let until = self.machine.until;
        let kept = matches!(self.machine.phase, Phase::Writing { .. })
            && matches!(input, Input::Written(WriteOutcome::Done { .. }));
        let released = matches!(input, Input::Release);
        let mut command = self.machine.step(seen, input);
        self.asked = now.local;
        if released {
            self.leads_until = None;
        }
        match flaw {
            Flaw::CountsFromResponse if kept => {
                self.leads_until = Some(now.local + self.machine.settings.renew_deadline)
            }
            Flaw::BelievesItsName if named => {
                self.leads_until = Some(now.local + self.machine.settings.renew_deadline);
            }
            Flaw::LeadsWhileReleasing if released => self.leads_until = until,
            Flaw::HidesRenewals => {
                if let Command::Create { record, .. } | Command::Update { record, .. } = &mut command {
                    record.renew_time = Some(Timestamp::UNIX_EPOCH);
                }
            }
            _ => {}
        }
        if self.is_over() {
            self.leads_until = None;
        }
        command
    }
}
