//! The queue against a specification: every sequence of operations on two keys up to a length, and long random ones.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limiter() -> RateLimiter {
    RateLimiter { backoff: Backoff { base: SECOND, max: 4 * SECOND }, per_second: 1.0, burst: 2.0 }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add(u8),
    AddAfter(u8, u8),
    Get,
    /// Ends the processing of a key: a success, a success with a requeue, or a failure.
    Succeed(u8),
    Requeue(u8, u8),
    Fail(u8),
    Tick,
}

/// Specification of the queue: the keys that it has to return, modelled without the queue's data structures.
#[derive(Clone, Debug, Default)]
struct Owed {
    /// Asked for and not begun since.
    dirty: BTreeSet<u8>,
    /// In the order in which they became ready.
    order: Vec<u8>,
    processing: BTreeSet<u8>,
    /// The earliest end of a delay that must be honoured, whatever happens before.
    delayed: BTreeMap<u8, Instant>,
    /// The end of the delay that the last processing asked for.
    requeued: BTreeMap<u8, Instant>,
}

impl Owed {
    fn add(&mut self, key: u8) {
        if self.dirty.insert(key) && !self.processing.contains(&key) {
            self.order.push(key);
        }
    }

    /// Delays that ended; all that end at one moment may become ready in any order.
    fn promote(&mut self, now: Instant) {
        let due = |map: &mut BTreeMap<u8, Instant>| {
            let due: Vec<(Instant, u8)> =
                map.iter().filter(|(_, due)| **due <= now).map(|(key, due)| (*due, *key)).collect();
            map.retain(|_, due| *due > now);
            due
        };
        let mut all: Vec<(Instant, u8, u8)> =
            due(&mut self.delayed).into_iter().map(|(at, key)| (at, 0, key)).collect();
        all.extend(due(&mut self.requeued).into_iter().map(|(at, key)| (at, 1, key)));
        all.sort_unstable();
        all.into_iter().for_each(|(_, _, key)| self.add(key));
    }

    fn done(&mut self, key: u8) {
        self.processing.remove(&key);
        if self.dirty.contains(&key) {
            self.order.push(key);
        }
    }
}

#[derive(Clone)]
struct Model {
    queue: WorkQueue<u8>,
    owed: Owed,
    now: Instant,
}

impl Model {
    fn new() -> Model {
        Model { queue: WorkQueue::new(limiter()), owed: Owed::default(), now: Instant::now() }
    }

    /// Applies one operation to both and compares; false where it is not possible in this state.
    fn step(&mut self, op: Op) -> bool {
        let now = self.now;
        match op {
            Op::Add(key) => {
                self.queue.add(key, now);
                self.owed.add(key);
            }
            Op::AddAfter(key, seconds) => {
                let due = now + SECOND * u32::from(seconds);
                self.queue.add_after(key, due - now, now);
                let known = self.owed.delayed.entry(key).or_insert(due);
                *known = (*known).min(due);
            }
            Op::Get => {
                self.owed.promote(now);
                let got = self.queue.get(now).map(|(key, _)| key);
                // First in, first out: no key is starved, lost, or returned without having been added.
                let next = (!self.owed.order.is_empty()).then(|| self.owed.order.remove(0));
                assert_eq!(got, next);
                let Some(key) = got else { return true };
                assert!(self.owed.processing.insert(key), "{key} is processed twice at once");
                assert!(self.owed.dirty.remove(&key));
                self.owed.requeued.remove(&key);
            }
            Op::Succeed(key) | Op::Requeue(key, _) | Op::Fail(key) => {
                if !self.owed.processing.contains(&key) {
                    return false;
                }
                match op {
                    Op::Requeue(_, seconds) => {
                        self.queue.forget(&key);
                        self.queue.requeue_after(key, SECOND * u32::from(seconds), now);
                        self.owed.requeued.insert(key, now + SECOND * u32::from(seconds));
                    }
                    Op::Fail(_) => {
                        let delay = self.queue.backoff(key, now);
                        assert!(delay >= SECOND, "{delay:?}");
                        self.queue.requeue_after(key, delay, now);
                        self.owed.requeued.insert(key, now + delay);
                    }
                    _ => self.queue.forget(&key),
                }
                self.queue.done(&key, now);
                self.owed.done(key);
            }
            Op::Tick => self.now += SECOND,
        }
        self.check();
        true
    }

    fn check(&self) {
        let due = self.owed.delayed.values().chain(self.owed.requeued.values()).min().copied();
        assert_eq!(self.queue.next_due(), due);
        assert_eq!(self.queue.depth(), self.owed.order.len());
        assert_eq!(self.queue.processing.keys().copied().collect::<BTreeSet<_>>(), self.owed.processing);
    }

    /// Whatever happened, everything that is owed comes out in the end, and nothing is left.
    fn drain(mut self) {
        for _ in 0..40 {
            for key in self.owed.processing.clone() {
                self.step(Op::Succeed(key));
            }
            self.step(Op::Get);
            if self.owed.processing.is_empty() {
                self.step(Op::Tick);
            }
        }
        let owed = &self.owed;
        assert!(owed.dirty.is_empty() && owed.delayed.is_empty() && owed.requeued.is_empty(), "{owed:?}");
        assert!(self.queue.entries.is_empty(), "an idle key costs nothing: {:?}", self.queue.entries);
    }
}

#[test]
fn every_short_sequence_of_operations_on_two_keys_meets_the_specification() {
    let mut ops = vec![Op::Get, Op::Tick];
    for key in [1, 2] {
        ops.extend([
            Op::Add(key),
            Op::AddAfter(key, 1),
            Op::AddAfter(key, 2),
            Op::Succeed(key),
            Op::Requeue(key, 1),
            Op::Fail(key),
        ]);
    }
    fn explore(model: &Model, ops: &[Op], depth: usize, seen: &mut usize) {
        if depth == 0 {
            *seen += 1;
            return model.clone().drain();
        }
        for op in ops {
            let mut next = model.clone();
            if next.step(*op) {
                explore(&next, ops, depth - 1, seen);
            }
        }
    }
    let mut seen = 0;
    explore(&Model::new(), &ops, 5, &mut seen);
    assert!(seen > 30_000, "{seen} sequences");
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0_u8..4;
    prop_oneof![
        2 => key.clone().prop_map(Op::Add),
        1 => (key.clone(), 1_u8..9).prop_map(|(key, delay)| Op::AddAfter(key, delay)),
        4 => Just(Op::Get),
        2 => key.clone().prop_map(Op::Succeed),
        1 => (key.clone(), 1_u8..9).prop_map(|(key, delay)| Op::Requeue(key, delay)),
        2 => key.prop_map(Op::Fail),
        2 => Just(Op::Tick),
    ]
}

proptest! {
    #[test]
    fn long_sequences_of_operations_meet_the_specification(ops in prop::collection::vec(op(), 0..300)) {
        let mut model = Model::new();
        for op in ops {
            model.step(op);
        }
        model.drain();
    }
}

#[test]
fn a_key_that_fails_waits_twice_as_long_each_time_up_to_its_limit() {
    let backoff = RateLimiter::default().backoff;
    let delays: Vec<u128> = (1..=6).map(|failures| backoff.delay(failures).as_millis()).collect();
    assert_eq!(delays, [5, 10, 20, 40, 80, 160]);
    assert_eq!(backoff.delay(u32::MAX), backoff.max);
    let (mut queue, now) = (WorkQueue::new(RateLimiter::default()), Instant::now());
    let first = queue.backoff("a", now);
    assert_eq!(queue.backoff("a", now), 2 * first);
    queue.forget(&"a");
    assert_eq!(queue.backoff("a", now), first, "a success forgets the failures");
}

#[test]
fn keys_that_fail_together_come_back_at_the_rate_of_the_bucket() {
    let (mut queue, now) = (WorkQueue::new(RateLimiter::default()), Instant::now());
    let delays: Vec<Duration> = (0..200).map(|key| queue.backoff(key, now)).collect();
    assert_eq!(delays.iter().filter(|delay| **delay == Duration::from_millis(5)).count(), 100, "the burst");
    assert_eq!(delays.last(), Some(&(10 * SECOND)), "then ten a second");
}

#[test]
fn a_requeue_is_dropped_when_the_key_is_processed_earlier_and_an_add_after_is_not() {
    let (mut queue, now) = (WorkQueue::new(limiter()), Instant::now());
    queue.requeue_after("requeued", SECOND, now);
    queue.add_after("delayed", SECOND, now);
    for key in ["requeued", "delayed"] {
        queue.add(key, now);
        queue.get(now);
        queue.done(&key, now);
    }
    assert_eq!(queue.get(now + SECOND), Some(("delayed", Duration::ZERO)));
    assert_eq!(queue.get(now + SECOND), None);
}
