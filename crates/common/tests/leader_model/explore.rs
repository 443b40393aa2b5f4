//! Two contenders, every order of events: breadth first until there is no new state.
//!
//! Nothing is urgent here: at any moment any message may arrive, fail or be lost, any timer that is due may fire, and time
//! may pass. A paused process is one whose turn does not come; a slow one as well. A call may fail for its caller while its
//! request lives on and is accepted any time later. Times are kept as ages and forgotten once they are too old to matter, so
//! the space is finite and its exploration complete: there is no bound on the length of an execution. The bounds that are left:
//! two contenders, steps of a retry period, and one abandoned write on its way for each contender beside its present call.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

use common::leader::machine::{Command, Input, Now, Phase, ReadOutcome, WriteOutcome};
use common::leader::record::Record;
use common::leader::{Ended, Settings};
use jiff::Timestamp;

use super::contender::{Contender, Flaw, Request, Server};
use super::key::Key;

/// The present, on each contender's clock: all times are kept relative to it.
const NOW: Duration = Duration::from_secs(100);
/// The same relations as 15 s, 10 s, 2 s, in as few steps as there can be: 3 : 2 : 1.
const LEASE: Duration = Duration::from_secs(3);
const RENEW: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);

/// The bounds of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How far each contender's clock goes in one step of time: their ratio is the skew.
    pub clocks: [Duration; 2],
    /// How often a process that has ended is started again, with a new identity; both together.
    pub restarts: u8,
    pub flaw: Flaw,
}

/// Statistics of an exploration. They show that the proof is not vacuous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub states: usize,
    pub moves: usize,
    pub both_have_led: usize,
    pub late_writes_accepted: usize,
    pub responses_lost: usize,
    pub conflicts: usize,
    pub lost: usize,
    pub released: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// One step of time, for all.
    Time,
    /// The wait of a contender is over.
    Wake(usize),
    /// A request reaches the server, which acts on it.
    Serve(usize),
    /// An answer reaches its contender.
    Deliver(usize),
    /// A call fails; the request or the answer is lost.
    Lose(usize),
    /// A call fails; the request is still on its way.
    GiveUp(usize),
    /// A request whose caller has given it up reaches the server.
    ServeLate(usize),
    Release(usize),
    Restart(usize),
}

#[derive(Clone, Debug)]
enum Call {
    Asked(Request),
    Responded(Request, Input),
}

#[derive(Clone, Debug)]
struct Seat {
    contender: Contender,
    /// end of the wait, at the earliest
    due: Duration,
    call: Option<Call>,
    /// a write that its caller has given up
    late: Option<Request>,
    has_led: bool,
}

impl Seat {
    fn new(identity: usize) -> Seat {
        let settings = Settings {
            lease_duration: LEASE,
            renew_deadline: RENEW,
            retry_period: RETRY,
            ..Settings::new("ns", "lease", identity.to_string())
        };
        Seat { contender: Contender::new(settings), due: NOW, call: None, late: None, has_led: false }
    }

    fn step(&mut self, input: Input, flaw: Flaw) {
        let now = Now { local: NOW, wall: Timestamp::UNIX_EPOCH };
        let command = self.contender.step(now, input, flaw);
        self.call = Request::of(&command).map(Call::Asked);
        if let Command::Wait { at_least, .. } = command {
            self.due = NOW + at_least;
        }
        self.has_led |= self.contender.is_leading(NOW, flaw);
    }

    /// All times, seen from `by` later, and no older than matters.
    fn age(&mut self, by: Duration, flaw: Flaw) {
        let (long_ago, expired) = (NOW - LEASE, |time: Duration| time.saturating_sub(by).max(NOW));
        let machine = &mut self.contender.machine;
        machine.until = machine.until.map(expired);
        self.due = expired(self.due);
        self.contender.leads_until = self.contender.leads_until.map(expired).filter(|until| *until > NOW);
        self.contender.asked = match flaw {
            Flaw::WaitsFromAsking => self.contender.asked.saturating_sub(by).max(long_ago),
            _ => NOW,
        };
        let mut seen = None;
        if let Some(observed) = &mut machine.observed {
            seen = Some((
                observed.at,
                observed.at + Duration::from_secs(observed.record.lease_duration_seconds as u64),
            ));
            observed.at = observed.at.saturating_sub(by).max(long_ago);
        }
        match &mut machine.phase {
            // All that is asked of it later is whether the record that was known had expired by then.
            Phase::Reading { tried } => {
                let had_expired = seen.is_none_or(|(_, valid_until)| *tried >= valid_until);
                *tried = if had_expired {
                    NOW
                } else {
                    machine.observed.as_ref().map_or(NOW, |observed| observed.at)
                };
                if let (true, Some(observed)) = (had_expired, &mut machine.observed) {
                    observed.at = long_ago;
                }
            }
            Phase::Writing { sent, .. } => *sent = sent.saturating_sub(by).max(NOW - RENEW),
            Phase::ReleaseReading { by: end } | Phase::ReleaseWriting { by: end } => *end = expired(*end),
            Phase::Waiting | Phase::Over(_) => {}
        }
    }
}

#[derive(Clone, Debug)]
struct State {
    seats: Vec<Seat>,
    server: Server,
    restarts: u8,
    identities: usize,
}

impl State {
    fn moves(&self, bounds: &Bounds) -> Vec<Move> {
        let mut moves = vec![Move::Time];
        for (i, seat) in self.seats.iter().enumerate() {
            let phase = &seat.contender.machine.phase;
            match &seat.call {
                Some(Call::Asked(request)) => {
                    moves.extend([Move::Serve(i), Move::Lose(i)]);
                    if seat.late.is_none() && self.server.accepts(request, bounds.flaw) {
                        moves.push(Move::GiveUp(i));
                    }
                }
                Some(Call::Responded(..)) => moves.extend([Move::Deliver(i), Move::Lose(i)]),
                None if *phase == Phase::Waiting && seat.due <= NOW => moves.push(Move::Wake(i)),
                None => {}
            }
            if seat.late.is_some() {
                moves.push(Move::ServeLate(i));
            }
            match phase {
                Phase::Over(_) if self.restarts > 0 => moves.push(Move::Restart(i)),
                Phase::Over(_) | Phase::ReleaseReading { .. } | Phase::ReleaseWriting { .. } => {}
                // One that never wrote just ends, which is as if its turn never came again.
                _ if seat.contender.machine.wrote => moves.push(Move::Release(i)),
                _ => {}
            }
        }
        moves
    }

    fn make(&self, step: Move, bounds: &Bounds, seen: &mut Seen) -> State {
        let mut next = self.clone();
        let flaw = bounds.flaw;
        match step {
            Move::Time => {
                for (seat, clock) in next.seats.iter_mut().zip(bounds.clocks) {
                    seat.age(clock, flaw);
                }
            }
            Move::Wake(i) => next.seats[i].step(Input::Tick, flaw),
            Move::Serve(i) => {
                let Some(Call::Asked(request)) = next.seats[i].call.take() else { unreachable!("{step:?}") };
                let outcome = next.server.serve(&request, flaw);
                seen.conflicts += usize::from(matches!(outcome, Input::Written(WriteOutcome::Conflict)));
                next.seats[i].call = Some(Call::Responded(request, outcome));
            }
            Move::ServeLate(i) => {
                let Some(request) = next.seats[i].late.take() else { unreachable!("{step:?}") };
                next.server.serve(&request, flaw);
                seen.late_writes_accepted += 1;
            }
            Move::Deliver(i) => {
                let Some(Call::Responded(_, outcome)) = next.seats[i].call.take() else {
                    unreachable!("{step:?}")
                };
                next.seats[i].step(outcome, flaw);
            }
            Move::Lose(i) | Move::GiveUp(i) => {
                let (Call::Asked(request) | Call::Responded(request, _)) = next.seats[i].call.take().unwrap();
                seen.responses_lost += usize::from(matches!(self.seats[i].call, Some(Call::Responded(..))));
                next.seats[i].step(request.failed(), flaw);
                if let Move::GiveUp(_) = step {
                    next.seats[i].late = Some(request);
                }
            }
            Move::Release(i) => {
                // A write that was under way may be accepted yet.
                let seat = &mut next.seats[i];
                if let (Some(Call::Asked(request)), None) = (seat.call.take(), &seat.late) {
                    seat.late = Some(request).filter(Request::is_write);
                }
                next.seats[i].step(Input::Release, flaw);
            }
            Move::Restart(i) => {
                let late = next.seats[i].late.take();
                next.seats[i] = Seat { late, has_led: next.seats[i].has_led, ..Seat::new(next.identities) };
                next.identities += 1;
                next.restarts -= 1;
            }
        }
        next.settle(flaw);
        next
    }

    /// Forgets what has no effect any more.
    fn settle(&mut self, flaw: Flaw) {
        for seat in &mut self.seats {
            seat.late.take_if(|request| !self.server.accepts(request, flaw));
            seat.age(Duration::ZERO, flaw);
        }
    }

    fn is_safe(&self, flaw: Flaw) -> bool {
        self.seats.iter().filter(|seat| seat.contender.is_leading(NOW, flaw)).count() < 2
    }

    /// Equal only for states that have the same future. Versions count by which are equal; times and transitions of a record
    /// not at all, since nothing is decided by them.
    fn key(&self) -> Vec<u8> {
        let mut key = Key::new();
        key.version(self.server.version());
        key.holder(self.server.lease.as_ref().map(|(record, _)| record));
        key.bytes.extend([self.restarts, self.identities as u8]);
        for seat in &self.seats {
            let Contender { machine, leads_until, asked } = &seat.contender;
            key.holder(Some(&Record { holder: seat.contender.identity().to_owned(), ..Record::default() }));
            match &machine.phase {
                Phase::Waiting => key.bytes.push(0),
                Phase::Reading { tried } => key.times(NOW, 1, &[*tried]),
                Phase::Writing { sent, blind, .. } => key.times(NOW, 2 + u8::from(*blind), &[*sent]),
                Phase::ReleaseReading { by } => key.times(NOW, 4, &[*by]),
                Phase::ReleaseWriting { by } => key.times(NOW, 5, &[*by]),
                Phase::Over(Ended::Lost) => key.bytes.push(6),
                Phase::Over(Ended::Stopped) => key.bytes.push(7),
            }
            key.version(machine.observed.as_ref().map(|observed| observed.version.as_str()));
            key.holder(machine.observed.as_ref().map(|observed| &observed.record));
            let at = machine.observed.as_ref().map_or(NOW, |observed| observed.at);
            key.times(
                NOW,
                0,
                &[at, *asked, seat.due, machine.until.unwrap_or_default(), leads_until.unwrap_or_default()],
            );
            key.bytes.push(u8::from(machine.wrote));
            match &seat.call {
                None => key.bytes.push(0),
                Some(Call::Asked(request)) => key.request(1, request),
                Some(Call::Responded(request, outcome)) => {
                    key.request(2, request);
                    match outcome {
                        Input::Read(ReadOutcome::Found { record, version }) => {
                            key.version(Some(version));
                            key.holder(Some(record));
                        }
                        Input::Written(WriteOutcome::Done { version }) => key.version(Some(version)),
                        Input::Read(ReadOutcome::NotFound) => key.bytes.push(250),
                        _ => key.bytes.push(251),
                    }
                }
            }
            match &seat.late {
                None => key.bytes.push(0),
                Some(request) => key.request(1, request),
            }
        }
        key.bytes
    }
}

/// Explores all; an error is the shortest way to two leaders.
pub fn explore(bounds: Bounds) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let first = State {
        seats: vec![Seat::new(0), Seat::new(1)],
        server: Server::default(),
        restarts: bounds.restarts,
        identities: 2,
    };
    let mut known = HashSet::from([first.key()]);
    // The predecessor of each state and the move from it, for the error; and the queue of states still to explore.
    let mut ways = vec![(0, Move::Time)];
    let mut border = std::collections::VecDeque::from([(0, first)]);
    while let Some((index, state)) = border.pop_front() {
        for step in state.moves(&bounds) {
            let next = state.make(step, &bounds, &mut seen);
            seen.moves += 1;
            if !known.insert(next.key()) {
                continue;
            }
            ways.push((index, step));
            if !next.is_safe(bounds.flaw) {
                return Err(tell(&ways, &next));
            }
            seen.both_have_led += usize::from(next.seats.iter().all(|seat| seat.has_led));
            for seat in &next.seats {
                seen.lost += usize::from(seat.contender.machine.phase == Phase::Over(Ended::Lost));
            }
            seen.released +=
                usize::from(next.server.lease.as_ref().is_some_and(|(record, _)| record.holder.is_empty()));
            border.push_back((ways.len() - 1, next));
        }
    }
    seen.states = known.len();
    Ok(seen)
}

fn tell(ways: &[(usize, Move)], last: &State) -> String {
    let (mut index, mut steps) = (ways.len() - 1, Vec::new());
    while index > 0 {
        steps.push(ways[index].1);
        index = ways[index].0;
    }
    let mut text = format!("two leaders after {} moves:", steps.len());
    for step in steps.iter().rev() {
        write!(text, " {step:?}").unwrap();
    }
    write!(text, "\n{last:#?}").unwrap();
    text
}
