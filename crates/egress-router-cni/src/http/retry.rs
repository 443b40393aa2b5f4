//! The retry budget: exponential backoff with jitter, up to a deadline.

use std::time::{Duration, Instant};

use common::backoff::Backoff;

/// The first pause is long enough to relieve a throttled API, and too short to delay a pod noticeably. The longest is longer than a second,
/// in which EC2 refills its buckets.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(3) };
/// Timeout of one request. Slow responses of EC2 take 2 to 3 s; after a lost packet a retry is faster.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);

/// Exponential backoff up to a deadline that the whole call shares.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    deadline: Instant,
    timeout: Duration,
    /// In a row.
    failures: u32,
}

impl RetryBudget {
    /// Until `deadline`.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, timeout: REQUEST_TIMEOUT, failures: 0 }
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
        self.failures = self.failures.saturating_add(1);
        let backoff = BACKOFF.delay(self.failures).mul_f64(0.5 + 0.5 * fastrand::f64());
        if Instant::now() + backoff >= self.deadline {
            return false;
        }
        std::thread::sleep(backoff);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_pause_and_no_request_past_the_deadline() {
        let mut retry = RetryBudget::until(Instant::now() + BACKOFF.base / 4);
        assert!(!retry.backoff());
        assert_eq!(RetryBudget::until(Instant::now()).request_timeout(), None);
    }
}
