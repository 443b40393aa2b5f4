//! The retry budget: exponential backoff with jitter, up to a deadline.

use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};

/// The first pause: long enough to relieve a throttled API, too short to delay a pod noticeably.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
/// The longest pause. EC2 refills its buckets every second.
const MAX_BACKOFF: Duration = Duration::from_secs(3);
/// Timeout of one request. Slow responses of EC2 take 2 to 3 s; after a lost packet a retry is faster.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);

/// Exponential backoff up to a deadline that the whole call shares.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    deadline: Instant,
    timeout: Duration,
    backoff: Duration,
}

impl RetryBudget {
    /// Until `deadline`.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, timeout: REQUEST_TIMEOUT, backoff: INITIAL_BACKOFF }
    }

    /// The same with another timeout of one request.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Timeout of the next request; none if the deadline has passed.
    #[must_use]
    pub fn request_timeout(&self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(self.timeout))
    }

    /// Waits for a random part, at least half, of the next pause, so that throttled nodes do not retry at the same time. Returns false
    /// immediately if the deadline would pass.
    pub fn backoff(&mut self) -> bool {
        let backoff = self.backoff.mul_f64(0.5 + 0.5 * chance());
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        if Instant::now() + backoff >= self.deadline {
            return false;
        }
        std::thread::sleep(backoff);
        true
    }
}

/// From 0 to below 1.
fn chance() -> f64 {
    f64::from(random()) / (f64::from(u32::MAX) + 1.0)
}

/// 32 random bits; those of the clock if the kernel provides none.
#[must_use]
pub fn random() -> u32 {
    let mut bytes = [0; 4];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u32::from_ne_bytes(bytes),
        Err(_) => std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_pause_past_the_deadline() {
        let mut retry = RetryBudget::until(Instant::now() + INITIAL_BACKOFF / 4);
        assert!(!retry.backoff());
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut retry = RetryBudget::until(Instant::now());
        for _ in 0..10 {
            retry.backoff();
        }
        assert_eq!(retry.backoff, MAX_BACKOFF);
        assert_eq!(retry.request_timeout(), None);
    }
}
