//! client-go's work queue as a pure type: no clock, no lock, no waiting.
//!
//! A key is *dirty* while it waits for a reconciliation, and *processing* between [`WorkQueue::get`] and [`WorkQueue::done`].
//!
//! * A key is never processed twice at once: one that becomes dirty while it is processed is ready after `done`.
//! * A key is never lost: each [`add`](WorkQueue::add) and each due [`add_after`](WorkQueue::add_after) is followed by a `get`
//!   of the key that begins later. Several before that `get` become one.
//! * A key is never starved: ready keys leave in the order in which they became ready.
//!
//! One thing differs from client-go. There, the delay of a requeue stays even if the key is reconciled earlier for
//! another reason, so an outdated one may cut short a longer delay that was set later, such as a Retry-After. Here a
//! requeue ([`requeue_after`](WorkQueue::requeue_after)) is dropped when the next processing of the key begins, since that one sets a
//! new delay. `add_after` is as in client-go.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use crate::backoff::Backoff;

/// Delays of keys that failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimiter {
    /// Of one key.
    pub backoff: Backoff,
    /// Retries of all keys a second, once `burst` is used up: a thousand keys that fail together do not come back together.
    pub per_second: f64,
    /// Retries of all keys that are not slowed down.
    pub burst: f64,
}

impl Default for RateLimiter {
    /// The limits of client-go and controller-runtime.
    fn default() -> Self {
        let backoff = Backoff { base: Duration::from_millis(5), max: Duration::from_secs(1000) };
        RateLimiter { backoff, per_second: 10.0, burst: 100.0 }
    }
}

/// The limit that all keys share: a token bucket that may be overdrawn, as in `golang.org/x/time/rate`.
#[derive(Clone, Debug)]
struct Bucket {
    tokens: f64,
    at: Option<Instant>,
}

impl Bucket {
    /// Takes a token; how long until it exists.
    fn reserve(&mut self, limiter: &RateLimiter, now: Instant) -> Duration {
        let since = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        self.tokens = (self.tokens + since.as_secs_f64() * limiter.per_second).min(limiter.burst) - 1.0;
        let seconds = (-self.tokens / limiter.per_second).max(0.0);
        // Not finite where `per_second` is zero: then no retry is ever free, and the key's own limit has to do.
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
    }
}

/// Why a timer of a key runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Delayed,
    Requeued,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// Since when it waits for a reconciliation.
    dirty: Option<Instant>,
    delayed: Option<Instant>,
    requeued: Option<Instant>,
    failures: u32,
}

impl Entry {
    fn timer(&mut self, timer: Timer) -> &mut Option<Instant> {
        match timer {
            Timer::Delayed => &mut self.delayed,
            Timer::Requeued => &mut self.requeued,
        }
    }

    fn is_idle(&self) -> bool {
        self.dirty.is_none() && self.delayed.is_none() && self.requeued.is_none() && self.failures == 0
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct WorkQueue<K> {
    limiter: RateLimiter,
    bucket: Bucket,
    /// Keys of which there is anything to know: a key that is idle costs nothing.
    entries: HashMap<K, Entry>,
    ready: VecDeque<K>,
    /// Since when each is processed.
    processing: HashMap<K, Instant>,
    timers: BTreeSet<(Instant, Timer, K)>,
    adds: u64,
    retries: u64,
}

impl<K: Clone + Ord + Hash> WorkQueue<K> {
    /// An empty queue.
    #[must_use]
    pub fn new(limiter: RateLimiter) -> Self {
        WorkQueue {
            bucket: Bucket { tokens: limiter.burst, at: None },
            limiter,
            entries: HashMap::new(),
            ready: VecDeque::new(),
            processing: HashMap::new(),
            timers: BTreeSet::new(),
            adds: 0,
            retries: 0,
        }
    }

    /// The delays of keys that failed.
    #[must_use]
    pub fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    /// The key is to be processed as soon as possible.
    pub fn add(&mut self, key: K, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.dirty.is_some() {
            return;
        }
        entry.dirty = Some(now);
        self.adds += 1;
        if !self.processing.contains_key(&key) {
            self.ready.push_back(key);
        }
    }

    /// The key is to be processed after `delay`, whatever happens before. Of several delays the one that ends first counts.
    pub fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        if delay.is_zero() {
            return self.add(key, now);
        }
        self.retries += 1;
        let due = now + delay;
        let known = self.entries.get(&key).and_then(|entry| entry.delayed);
        if known.is_none_or(|known| due < known) {
            self.set(key, Timer::Delayed, Some(due));
        }
    }

    /// The key is to be processed after `delay`, unless it is processed before for another reason. Replaces an earlier one.
    pub fn requeue_after(&mut self, key: K, delay: Duration, now: Instant) {
        if delay.is_zero() {
            return self.add(key, now);
        }
        self.retries += 1;
        self.set(key, Timer::Requeued, Some(now + delay));
    }

    /// Counts a failure of the key. Returns the delay that follows from its failures in a row and from the limit that all
    /// keys share, for [`requeue_after`](Self::requeue_after).
    pub fn backoff(&mut self, key: K, now: Instant) -> Duration {
        let entry = self.entries.entry(key).or_default();
        entry.failures = entry.failures.saturating_add(1);
        self.limiter.backoff.delay(entry.failures).max(self.bucket.reserve(&self.limiter, now))
    }

    /// The key succeeded: its next failure is the first.
    pub fn forget(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
        }
        self.prune(key);
    }

    /// The key that is ready for longest, and for how long it has been dirty. The caller must call [`done`](Self::done).
    pub fn get(&mut self, now: Instant) -> Option<(K, Duration)> {
        while self.timers.first().is_some_and(|(due, ..)| *due <= now)
            && let Some((_, timer, key)) = self.timers.pop_first()
        {
            if let Some(entry) = self.entries.get_mut(&key) {
                *entry.timer(timer) = None;
            }
            self.add(key, now);
        }
        let key = self.ready.pop_front()?;
        self.set(key.clone(), Timer::Requeued, None);
        self.processing.insert(key.clone(), now);
        let since = self.entries.get_mut(&key).and_then(|entry| entry.dirty.take());
        self.prune(&key);
        Some((key, since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))))
    }

    /// The processing of the key has ended, after the time that is returned.
    pub fn done(&mut self, key: &K, now: Instant) -> Duration {
        let Some(since) = self.processing.remove(key) else { return Duration::ZERO };
        if self.entries.get(key).is_some_and(|entry| entry.dirty.is_some()) {
            self.ready.push_back(key.clone());
        }
        now.saturating_duration_since(since)
    }

    /// When the next delay ends.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(due, ..)| *due)
    }

    /// How many keys are ready.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.ready.len()
    }

    /// For how long each key that is processed has been.
    pub fn unfinished(&self, now: Instant) -> impl Iterator<Item = Duration> {
        self.processing.values().map(move |since| now.saturating_duration_since(*since))
    }

    /// How many keys became dirty, ever.
    #[must_use]
    pub fn adds(&self) -> u64 {
        self.adds
    }

    /// How many delays were asked for, ever.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Replaces a timer of the key.
    fn set(&mut self, key: K, timer: Timer, due: Option<Instant>) {
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some(before) = std::mem::replace(entry.timer(timer), due) {
            self.timers.remove(&(before, timer, key.clone()));
        }
        if let Some(due) = due {
            self.timers.insert((due, timer, key));
        }
    }

    fn prune(&mut self, key: &K) {
        if self.entries.get(key).is_some_and(Entry::is_idle) {
            self.entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
