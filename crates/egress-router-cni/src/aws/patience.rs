//! How long is waited, and how often is asked again.

use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};

/// A first pause that a throttled API notices and a person does not.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// EC2 refills its buckets every second; pausing for longer only wastes the deadline.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// One exchange. EC2's slow answers take 2 to 3 s; longer is a lost packet, and asking again is quicker.
const ONE_EXCHANGE: Duration = Duration::from_secs(6);

/// One intent's patience: pauses that double, up to a deadline that the whole call shares.
#[derive(Debug, Clone)]
pub struct Patience {
    deadline: Instant,
    pause: Duration,
}

impl Patience {
    /// Until `deadline`.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, pause: FIRST_PAUSE }
    }

    /// How long one exchange may take; none: the deadline has passed.
    #[must_use]
    pub fn exchange(&self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(ONE_EXCHANGE))
    }

    /// Waits for half to all of the next pause, by chance, so that nodes that were throttled together do not come back
    /// together. False, at once, where the deadline would pass meanwhile.
    pub fn pause(&mut self) -> bool {
        let pause = self.pause.mul_f64(0.5 + 0.5 * chance());
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if Instant::now() + pause >= self.deadline {
            return false;
        }
        std::thread::sleep(pause);
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
        let mut patience = Patience::until(start + Duration::from_millis(20));
        assert!(!patience.pause());
        assert!(start.elapsed() < Duration::from_millis(20));
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut patience = Patience::until(Instant::now());
        for _ in 0..10 {
            patience.pause();
        }
        assert_eq!(patience.pause, LONGEST_PAUSE);
        assert_eq!(patience.exchange(), None);
    }
}
