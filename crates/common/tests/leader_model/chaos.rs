//! Many contenders in real time: random clocks, delays, losses, pauses, releases and restarts; then quiet.

use std::collections::BTreeMap;
use std::time::Duration;

use common::leader::machine::{Command, Input, Now};
use common::leader::{Ended, Settings};
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};

use super::contender::{Contender, Flaw, Request, Server};

/// Faults end here; all that is late has arrived by then, and all that are paused or ended are back.
pub const QUIET: Duration = Duration::from_secs(180);
/// In quiet, a message takes no longer.
pub const PROMPT: Duration = Duration::from_millis(50);

/// One execution.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// one for each contender: how fast its clock runs, in thousandths
    pub rates: Vec<u32>,
    /// one for each: what its wall clock shows at the start, in seconds since 1970; every third stands still
    pub walls: Vec<i64>,
    /// how many in a hundred messages, turns and releases go wrong
    pub trouble: u8,
    pub flaw: Flaw,
}

/// Statistics of an execution. They show that the simulated events did occur.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub events: u64,
    pub takeovers: u64,
    pub lost: u64,
    pub released: u64,
    pub conflicts: u64,
    pub late_writes_accepted: u64,
    /// quiet began with no leader, and how long it took at most
    pub longest_without: Duration,
    /// from a release in quiet to the next leader, at most
    pub longest_succession: Duration,
}

impl Seen {
    pub fn add(&mut self, other: &Seen) {
        self.events += other.events;
        self.takeovers += other.takeovers;
        self.lost += other.lost;
        self.released += other.released;
        self.conflicts += other.conflicts;
        self.late_writes_accepted += other.late_writes_accepted;
        self.longest_without = self.longest_without.max(other.longest_without);
        self.longest_succession = self.longest_succession.max(other.longest_succession);
    }
}

#[derive(Clone, Debug)]
enum Event {
    Wake,
    Arrive(Request),
    Response(Input),
    Timeout(Request),
    Release,
    Restart,
}

struct Seat {
    contender: Contender,
    rate: f64,
    wall: (i64, bool),
    /// a new one with each command: what belongs to an older one is late
    incarnation: u64,
    paused_until: Duration,
    was_leading: bool,
}

/// Three contenders at one server, in real time.
pub struct Simulation {
    plan: Plan,
    rng: Rng,
    now: Duration,
    server: Server,
    seats: Vec<Seat>,
    /// in the order of time and serial number: the contender, its incarnation, and the event
    events: BTreeMap<(Duration, u64), (usize, u64, Event)>,
    serial: u64,
    /// the contender that was released after the faults: it is not restarted
    gone: Option<usize>,
    pub seen: Seen,
}

impl Simulation {
    pub fn new(plan: Plan) -> Simulation {
        let rng = Rng::with_seed(plan.seed);
        let mut simulation = Simulation {
            rng,
            now: Duration::ZERO,
            server: Server::default(),
            seats: Vec::new(),
            events: BTreeMap::new(),
            serial: 0,
            gone: None,
            seen: Seen::default(),
            plan,
        };
        for i in 0..simulation.plan.rates.len() {
            let seat = Seat {
                contender: Contender::new(Settings::new("ns", "lease", format!("{i}_0"))),
                rate: f64::from(simulation.plan.rates[i]) / 1000.0,
                wall: (simulation.plan.walls[i], i % 3 == 2),
                incarnation: 0,
                paused_until: Duration::ZERO,
                was_leading: false,
            };
            simulation.seats.push(seat);
            let start = simulation.between(Duration::ZERO, Duration::from_secs(5));
            simulation.plan_event(start, i, Event::Wake);
        }
        simulation
    }

    /// Until `end`, or until `is_reached` holds; whether it did. An error is a violation of safety.
    pub fn run(&mut self, end: Duration, is_reached: impl Fn(&Simulation) -> bool) -> Result<bool, String> {
        while !is_reached(self) {
            let Some((&(time, serial), _)) = self.events.first_key_value() else { return Ok(false) };
            if time > end {
                self.now = end;
                return Ok(is_reached(self));
            }
            self.now = time;
            let (i, incarnation, event) = self.events.remove(&(time, serial)).unwrap();
            self.happen(i, incarnation, event);
            self.seen.events += 1;
            let leaders: Vec<_> = (0..self.seats.len()).filter(|i| self.leads(*i)).collect();
            if leaders.len() > 1 {
                return Err(format!("{leaders:?} lead at {:?}: {:?}", self.now, self.plan));
            }
        }
        Ok(true)
    }

    /// Seat and identity of who leads.
    pub fn leader(&self) -> Option<(usize, &str)> {
        (0..self.seats.len()).find(|i| self.leads(*i)).map(|i| (i, self.seats[i].contender.identity()))
    }

    /// Real time since the start.
    pub fn now(&self) -> Duration {
        self.now
    }

    pub fn release(&mut self, i: usize) {
        self.gone = Some(i);
        self.step(i, Input::Release);
    }

    fn leads(&self, i: usize) -> bool {
        self.seats[i].contender.is_leading(self.local(i), self.plan.flaw)
    }

    /// A contender's own clock: it has its own origin and rate.
    fn local(&self, i: usize) -> Duration {
        Duration::from_secs(1_000 * (i as u64 + 1)) + self.now.mul_f64(self.seats[i].rate)
    }

    fn wall(&mut self, i: usize) -> Timestamp {
        let (start, stands_still) = self.seats[i].wall;
        let mut wall = Timestamp::from_second(start).unwrap();
        if !stands_still {
            wall += SignedDuration::try_from(self.now).unwrap();
        }
        // Set forward or back, at times by a lot.
        if self.trouble() { wall + SignedDuration::from_secs(self.rng.i64(-40..40)) } else { wall }
    }

    fn trouble(&mut self) -> bool {
        self.now < QUIET && self.rng.u8(0..100) < self.plan.trouble
    }

    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.rng.f64())
    }

    fn plan_event(&mut self, after: Duration, i: usize, event: Event) {
        self.serial += 1;
        self.events.insert((self.now + after, self.serial), (i, self.seats[i].incarnation, event));
    }

    /// How long a message travels: in trouble up to a minute, but not into quiet.
    fn travel(&mut self) -> Duration {
        let most = if !self.trouble() {
            PROMPT
        } else if self.rng.bool() {
            Duration::from_secs(8)
        } else {
            Duration::from_secs(60)
        };
        let most = if self.now < QUIET { most.min(QUIET.saturating_sub(self.now).max(PROMPT)) } else { most };
        self.between(Duration::from_millis(1), most)
    }

    fn happen(&mut self, i: usize, incarnation: u64, event: Event) {
        let current = incarnation == self.seats[i].incarnation;
        if let Event::Arrive(request) = event {
            let (accepted, holder) = (self.server.versions, self.holder());
            let outcome = self.server.serve(&request, self.plan.flaw);
            let accepted = self.server.versions > accepted;
            self.seen.late_writes_accepted += u64::from(accepted && !current);
            self.seen.takeovers += u64::from(
                accepted && !holder.is_empty() && self.holder() != holder && !self.holder().is_empty(),
            );
            self.seen.conflicts +=
                u64::from(matches!(outcome, Input::Written(common::leader::machine::WriteOutcome::Conflict)));
            if current && !self.trouble() {
                let travel = self.travel();
                self.plan_event(travel, i, Event::Response(outcome));
            }
            return;
        }
        if !current {
            return;
        }
        if self.trouble() {
            self.seats[i].paused_until = (self.now + Duration::from_secs(self.rng.u64(0..40))).min(QUIET);
        }
        let paused = self.seats[i].paused_until.saturating_sub(self.now);
        if !paused.is_zero() {
            return self.plan_event(paused, i, event);
        }
        match event {
            Event::Wake => self.step(i, Input::Tick),
            Event::Response(outcome) => self.step(i, outcome),
            Event::Timeout(request) => self.step(i, request.failed()),
            Event::Release => self.step(i, Input::Release),
            Event::Restart => {
                let identity = format!("{i}_{}", self.serial);
                self.seats[i].contender = Contender::new(Settings::new("ns", "lease", identity));
                self.step(i, Input::Tick);
            }
            Event::Arrive(_) => unreachable!(),
        }
    }

    fn holder(&self) -> String {
        self.server.lease.as_ref().map(|(record, _)| record.holder.clone()).unwrap_or_default()
    }

    fn step(&mut self, i: usize, input: Input) {
        let now = Now { local: self.local(i), wall: self.wall(i) };
        let command = self.seats[i].contender.step(now, input, self.plan.flaw);
        self.seats[i].incarnation += 1;
        let rate = self.seats[i].rate;
        let real = |local: Duration| local.div_f64(rate);
        match &command {
            Command::Wait { at_least, at_most } => {
                let wait = self.between(*at_least, *at_most);
                self.plan_event(real(wait), i, Event::Wake);
            }
            Command::End(ended) => {
                self.seen.lost += u64::from(*ended == Ended::Lost);
                self.seen.released += u64::from(*ended == Ended::Stopped);
                // Another process takes its place: in quiet, soon.
                let most = if self.trouble() { Duration::from_secs(10) } else { PROMPT };
                let rest = self
                    .between(Duration::from_millis(1), most.min(QUIET.saturating_sub(self.now).max(PROMPT)));
                if self.gone != Some(i) {
                    self.plan_event(rest, i, Event::Restart);
                }
            }
            Command::Read { timeout } | Command::Create { timeout, .. } | Command::Update { timeout, .. } => {
                let request = Request::of(&command).unwrap();
                self.plan_event(real(*timeout), i, Event::Timeout(request.clone()));
                // Lost on the way there, one in two; else it travels on though its caller may have given up.
                if !(self.trouble() && self.rng.bool()) {
                    let travel = self.travel();
                    self.plan_event(travel, i, Event::Arrive(request));
                }
            }
        }
        let leads = self.leads(i);
        // Asked to go shortly after it has become leader, or at any time of trouble.
        if leads && !self.seats[i].was_leading && self.trouble() {
            let after = self.between(Duration::ZERO, Duration::from_secs(1));
            self.plan_event(after, i, Event::Release);
        }
        self.seats[i].was_leading = leads;
    }
}
