//! The rate limit: a leaky bucket for the whole project.

use std::time::{Duration, Instant};

/// How many requests are allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Size of the bucket, and the value of `RateLimit-Limit`.
    pub limit: u32,
    /// Requests that are added each second.
    pub per_second: f64,
}

impl Default for RateLimit {
    /// As the API: 3600 an hour, so one is added each second.
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

    /// Takes a request; false if there is none left.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }

    pub fn limit(&self) -> u32 {
        self.rule.limit
    }

    pub fn remaining(&mut self, now: Instant) -> u64 {
        self.refill(now);
        // Floor: half a request cannot be made. Never negative, see `take`.
        self.left as u64
    }

    /// How long until the bucket is full, for `RateLimit-Reset`. The next request is allowed earlier.
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
    fn bucket_is_emptied_and_refilled_one_by_one() {
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
    fn bucket_is_never_fuller_than_its_limit() {
        let start = Instant::now();
        let mut bucket = Bucket::new(RateLimit { limit: 3, per_second: 1.0 }, start);
        assert_eq!(bucket.remaining(start + Duration::from_secs(100)), 3);
    }
}
