//! One test for each rule of client-go, and for each place where we are stricter.

use super::*;

const ROUND_TRIP: Duration = Duration::from_millis(100);

struct Contender {
    machine: Machine,
    /// milliseconds
    clock: u64,
}

impl Contender {
    fn new() -> Contender {
        Contender { machine: Machine::new(Arc::new(Settings::new("ns", "lease", "me"))), clock: 0 }
    }

    /// Leads since a write at 0 s, with the response at 100 ms, with version 1.
    fn leader() -> Contender {
        let mut contender = Contender::new();
        contender.tick();
        contender.read(ReadOutcome::NotFound);
        contender.after(ROUND_TRIP).done("1");
        assert!(contender.is_leading());
        contender
    }

    fn after(&mut self, time: Duration) -> &mut Contender {
        self.clock += u64::try_from(time.as_millis()).unwrap();
        self
    }

    fn at(&mut self, millis: u64) -> &mut Contender {
        assert!(self.clock <= millis);
        self.clock = millis;
        self
    }

    fn step(&mut self, input: Input) -> Command {
        // A wall clock that shows 1970 is as good as any.
        let wall = Timestamp::from_millisecond(i64::try_from(self.clock).unwrap()).unwrap();
        self.machine.step(Now { local: Duration::from_millis(self.clock), wall }, input)
    }

    fn tick(&mut self) -> Command {
        self.step(Input::Tick)
    }

    fn read(&mut self, outcome: ReadOutcome) -> Command {
        self.step(Input::Read(outcome))
    }

    fn found(&mut self, record: &Record, version: &str) -> Command {
        self.read(ReadOutcome::Found { record: record.clone(), version: version.to_owned() })
    }

    fn done(&mut self, version: &str) -> Command {
        self.step(Input::Written(WriteOutcome::Done { version: version.to_owned() }))
    }

    fn is_leading(&self) -> bool {
        self.machine.is_leading(Duration::from_millis(self.clock))
    }
}

fn held_by(holder: &str) -> Record {
    Record { transitions: 4, ..Record::first(holder, 15, Timestamp::UNIX_EPOCH) }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const CANDIDATE_WAIT: Command =
    Command::Wait { at_least: Duration::from_secs(2), at_most: Duration::from_millis(4_400) };
const LEADER_WAIT: Command =
    Command::Wait { at_least: Duration::from_secs(2), at_most: Duration::from_secs(2) };

#[test]
fn creates_the_lease_when_there_is_none() {
    let mut me = Contender::new();
    assert_eq!(me.tick(), Command::Read { timeout: seconds(5) });
    let record = Record::first("me", 15, Timestamp::UNIX_EPOCH);
    assert_eq!(me.read(ReadOutcome::NotFound), Command::Create { record, timeout: seconds(5) });
    assert!(!me.is_leading(), "sent is not accepted");
    assert_eq!(me.done("1"), LEADER_WAIT);
    assert!(me.is_leading());
    assert_eq!(me.machine.holder(), "me");
}

#[test]
fn another_who_creates_first_wins() {
    let mut me = Contender::new();
    me.tick();
    me.read(ReadOutcome::NotFound);
    assert_eq!(me.step(Input::Written(WriteOutcome::Conflict)), CANDIDATE_WAIT);
    assert!(!me.is_leading());
}

#[test]
fn takes_over_a_lease_duration_after_the_last_change_that_it_saw_itself() {
    let mut me = Contender::new();
    me.tick();
    assert_eq!(me.after(ROUND_TRIP).found(&held_by("other"), "7"), CANDIDATE_WAIT);
    // Seen at 0.1 s: not before 15.1 s, whatever the times in the record are.
    me.at(15_099).tick();
    assert_eq!(me.found(&held_by("other"), "7"), CANDIDATE_WAIT);
    me.at(15_100).tick();
    let Command::Update { record, version, .. } = me.found(&held_by("other"), "7") else {
        panic!("no take-over")
    };
    assert_eq!((record.holder.as_str(), record.transitions, version.as_str()), ("me", 5, "7"));
    assert_eq!(record.acquire_time, record.renew_time);
    assert_eq!(record.acquire_time, Some(Timestamp::from_millisecond(15_100).unwrap()));
}

#[test]
fn each_change_restarts_the_wait() {
    let mut me = Contender::new();
    me.tick();
    me.found(&held_by("other"), "7");
    me.at(14_000).tick();
    me.found(&held_by("other"), "8");
    me.at(28_999).tick();
    assert_eq!(me.found(&held_by("other"), "8"), CANDIDATE_WAIT, "the version alone is a change");
    me.at(29_000).tick();
    assert!(matches!(me.found(&held_by("other"), "8"), Command::Update { .. }));
}

#[test]
fn the_wait_is_what_the_holder_wrote() {
    let mut me = Contender::new();
    let record = Record { lease_duration_seconds: 60, ..held_by("other") };
    me.tick();
    me.found(&record, "7");
    me.at(59_999).tick();
    assert_eq!(me.found(&record, "7"), CANDIDATE_WAIT);
    me.at(60_000).tick();
    assert!(matches!(me.found(&record, "7"), Command::Update { .. }));
}

#[test]
fn a_try_is_judged_by_its_start() {
    let mut me = Contender::new();
    me.tick();
    me.found(&held_by("other"), "7");
    me.at(14_999).tick();
    assert_eq!(me.at(16_000).found(&held_by("other"), "7"), CANDIDATE_WAIT);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut me = Contender::new();
    me.tick();
    let Command::Update { record, .. } = me.found(&held_by("other").released(Timestamp::UNIX_EPOCH), "7")
    else {
        panic!("no take-over")
    };
    assert_eq!((record.holder.as_str(), record.transitions), ("me", 5));
}

#[test]
fn our_own_name_from_a_lost_response_is_renewed_without_a_transition() {
    let mut me = Contender::new();
    me.tick();
    let Command::Update { record, .. } = me.found(&held_by("me"), "7") else { panic!("not renewed") };
    assert_eq!((record.transitions, record.acquire_time), (4, Some(Timestamp::UNIX_EPOCH)));
    assert!(
        !me.is_leading(),
        "our name in the Lease opens nothing: only a write of which we know when it was sent"
    );
}

#[test]
fn a_leader_renews_without_a_look_and_looks_when_that_fails() {
    let mut me = Contender::leader();
    let Command::Update { record, version, .. } = me.at(2_100).tick() else { panic!("no fast path") };
    assert_eq!(
        (version.as_str(), record.transitions, record.acquire_time),
        ("1", 0, Some(Timestamp::UNIX_EPOCH))
    );
    assert_eq!(record.renew_time, Some(Timestamp::from_millisecond(2_100).unwrap()));
    assert_eq!(me.step(Input::Written(WriteOutcome::Conflict)), Command::Read { timeout: seconds(5) });
    // A label was edited: still ours, in another version.
    let held = Record::first("me", 15, Timestamp::UNIX_EPOCH);
    let Command::Update { version, .. } = me.found(&held, "2") else { panic!("no slow path") };
    assert_eq!(version, "2");
    assert_eq!(
        me.step(Input::Written(WriteOutcome::Failed)),
        LEADER_WAIT,
        "the slow path is tried once a round"
    );
    assert!(me.is_leading());
}

#[test]
fn leadership_counts_from_before_the_write_was_sent() {
    let mut me = Contender::leader();
    me.at(2_000).tick();
    me.at(6_000).done("2");
    assert!(me.at(11_999).is_leading(), "sent at 2 s, so it ends at 12 s");
    assert!(!me.at(12_000).is_leading());
}

#[test]
fn not_renewed_by_the_deadline_is_lost_for_good() {
    let mut me = Contender::leader();
    me.at(2_000).tick();
    me.step(Input::Written(WriteOutcome::Failed));
    assert_eq!(me.at(7_000).read(ReadOutcome::Failed), LEADER_WAIT);
    let Command::Update { timeout, .. } = me.at(9_000).tick() else { panic!("it is still valid") };
    assert_eq!(timeout, seconds(1), "a call ends when leadership does");
    me.step(Input::Written(WriteOutcome::Failed));
    let wait = me.at(9_400).read(ReadOutcome::Failed);
    assert_eq!(
        wait,
        Command::Wait { at_least: Duration::from_millis(600), at_most: Duration::from_millis(600) }
    );
    assert_eq!(me.at(10_000).tick(), Command::End(Ended::Lost));
    assert_eq!(me.tick(), Command::End(Ended::Lost));
    assert_eq!(me.step(Input::Release), Command::End(Ended::Lost), "what is lost is not released");
}

#[test]
fn a_paused_leader_has_lost_even_when_its_renewal_was_accepted() {
    let mut me = Contender::leader();
    me.at(9_000).tick();
    assert_eq!(me.at(10_500).done("2"), Command::End(Ended::Lost));
    assert!(!me.is_leading());
}

#[test]
fn a_candidate_paused_while_it_took_over_does_not_lead_on_that() {
    let mut me = Contender::new();
    me.tick();
    me.read(ReadOutcome::NotFound);
    assert_eq!(me.at(10_000).done("1"), CANDIDATE_WAIT);
    assert!(!me.is_leading(), "the time of that write is over");
    assert!(matches!(me.at(12_000).tick(), Command::Update { .. }));
    me.done("2");
    assert!(me.is_leading());
}

#[test]
fn a_leader_that_reads_another_name_has_lost_at_once() {
    for record in [held_by("other"), held_by("")] {
        let mut me = Contender::leader();
        me.at(2_000).tick();
        me.step(Input::Written(WriteOutcome::Conflict));
        assert_eq!(me.found(&record, "9"), Command::End(Ended::Lost));
        assert!(!me.is_leading());
    }
}

#[test]
fn a_leader_creates_a_deleted_lease_again() {
    let mut me = Contender::leader();
    me.at(2_000).tick();
    me.step(Input::Written(WriteOutcome::Failed));
    assert!(matches!(me.read(ReadOutcome::NotFound), Command::Create { .. }));
    assert!(me.is_leading());
}

#[test]
fn a_release_reads_first_and_ends_leadership_before_it_is_sent() {
    let mut me = Contender::leader();
    assert_eq!(me.at(3_000).step(Input::Release), Command::Read { timeout: seconds(5) });
    assert!(!me.is_leading());
    let held = Record { transitions: 4, ..Record::first("me", 15, Timestamp::UNIX_EPOCH) };
    let wall = Timestamp::from_millisecond(3_000).unwrap();
    let released = Record {
        holder: String::new(),
        lease_duration_seconds: 1,
        acquire_time: Some(wall),
        renew_time: Some(wall),
        transitions: 4,
    };
    let update = Command::Update { record: released, version: "3".to_owned(), timeout: seconds(5) };
    assert_eq!(me.found(&held, "3"), update);
    assert_eq!(me.done("4"), Command::End(Ended::Stopped));
    assert!(!me.is_leading());
}

#[test]
fn a_release_is_retried_after_a_conflict_until_its_deadline() {
    let mut me = Contender::leader();
    me.step(Input::Release);
    me.found(&held_by("me"), "3");
    assert!(matches!(me.step(Input::Written(WriteOutcome::Conflict)), Command::Read { .. }));
    me.found(&held_by("me"), "4");
    assert_eq!(me.at(10_100).step(Input::Written(WriteOutcome::Conflict)), Command::End(Ended::Stopped));
}

#[test]
fn only_our_own_lease_is_released() {
    for outcome in [
        ReadOutcome::Found { record: held_by("other"), version: "9".to_owned() },
        ReadOutcome::NotFound,
        ReadOutcome::Failed,
    ] {
        let mut me = Contender::leader();
        me.step(Input::Release);
        assert_eq!(me.read(outcome), Command::End(Ended::Stopped));
    }
}

#[test]
fn a_candidate_stops_at_once_but_looks_if_a_write_may_still_land() {
    let mut me = Contender::new();
    me.tick();
    me.found(&held_by("other"), "7");
    assert_eq!(me.step(Input::Release), Command::End(Ended::Stopped));

    let mut me = Contender::new();
    me.tick();
    me.read(ReadOutcome::NotFound);
    assert!(matches!(me.step(Input::Release), Command::Read { .. }), "its create was abandoned");
}

#[test]
fn an_outcome_of_another_command_is_ignored() {
    let mut me = Contender::new();
    assert_eq!(me.done("1"), CANDIDATE_WAIT);
    me.tick();
    assert_eq!(me.done("1"), CANDIDATE_WAIT);
    assert!(!me.is_leading());
}
