//! The rate limit: a leaky bucket for the whole project.

use std::time::{Duration, Instant};

/// How many requests may come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Size of the bucket, and what `RateLimit-Limit` says.
    pub limit: u32,
    /// Requests that come back each second.
    pub per_second: f64,
}

impl Default for RateLimit {
    /// The API's own: 3600 an hour, so one comes back each second.
    fn default() -> Self {
        Self { limit: 3600, per_second: 1.0 }
    }
}

#[derive(Debug)]
pub(super) struct Bucket {
    rule: RateLimit,
    left: f64,
    at: Instant,
}

impl Bucket {
    pub fn new(rule: RateLimit, now: Instant) -> Self {
        Self { rule, left: f64::from(rule.limit), at: now }
    }

    fn refill(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + seconds * self.rule.per_second).min(f64::from(self.rule.limit));
        self.at = now;
    }

    /// Whether there was one left; it is taken then.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }

    pub fn set_left(&mut self, left: u32, now: Instant) {
        self.left = f64::from(left).min(f64::from(self.rule.limit));
        self.at = now;
    }

    pub fn rule(&self) -> RateLimit {
        self.rule
    }

    pub fn limit(&self) -> u32 {
        self.rule.limit
    }

    pub fn remaining(&mut self, now: Instant) -> u64 {
        self.refill(now);
        // Floor: half a request cannot be made. Never negative, see `take`.
        self.left as u64
    }

    /// How long until the bucket is full again, which is what `RateLimit-Reset` is about (not until the next
    /// request is allowed).
    pub fn until_full(&mut self, now: Instant) -> Duration {
        self.refill(now);
        let missing = f64::from(self.rule.limit) - self.left;
        Duration::try_from_secs_f64(missing / self.rule.per_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empties_and_comes_back_one_by_one() {
        let start = Instant::now();
        let mut bucket = Bucket::new(RateLimit { limit: 3, per_second: 1.0 }, start);
        assert!((0..3).all(|_| bucket.take(start)));
        assert!(!bucket.take(start));
        assert_eq!(bucket.until_full(start), Duration::from_secs(3));
        assert!(!bucket.take(start + Duration::from_millis(900)));
        assert!(bucket.take(start + Duration::from_millis(1100)));
        assert!(!bucket.take(start + Duration::from_millis(1200)));
    }

    #[test]
    fn never_holds_more_than_its_limit() {
        let start = Instant::now();
        let mut bucket = Bucket::new(RateLimit { limit: 3, per_second: 1.0 }, start);
        assert_eq!(bucket.remaining(start + Duration::from_secs(100)), 3);
    }
}
