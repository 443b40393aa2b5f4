//! The retry budget: exponential backoff with jitter, up to a deadline.

use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};

/// A first pause that a throttled API notices and a person does not.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
/// EC2 refills its buckets every second; pausing for longer only wastes the deadline.
const MAX_BACKOFF: Duration = Duration::from_secs(3);
/// One exchange. EC2's slow answers take 2 to 3 s; longer is a lost packet, and asking again is quicker.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);

/// Exponential backoff up to a deadline that the whole call shares.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    deadline: Instant,
    backoff: Duration,
}

impl RetryBudget {
    /// Until `deadline`.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, backoff: INITIAL_BACKOFF }
    }

    /// How long one exchange may take; none: the deadline has passed.
    #[must_use]
    pub fn request_timeout(&self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(REQUEST_TIMEOUT))
    }

    /// Waits for half to all of the next pause, by chance, so that nodes that were throttled together do not come back
    /// together. False, at once, where the deadline would pass meanwhile.
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

/// 32 bits by chance; the clock's where the kernel has none to give.
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
    fn a_pause_that_would_pass_the_deadline_is_not_made() {
        let start = Instant::now();
        let mut retry = RetryBudget::until(start + Duration::from_millis(20));
        assert!(!retry.backoff());
        assert!(start.elapsed() < Duration::from_millis(20));
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
