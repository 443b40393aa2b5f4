//! Exponential backoff: how long to wait after failures in a row.

use std::time::Duration;

/// Doubles with each failure in a row, up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Backoff {
    /// The delay after so many failures in a row: `base` × 2^(`failures` - 1), at most `max`. Zero without a failure.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        self.base.saturating_mul(2_u32.saturating_pow(doublings)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_delay_up_to_the_maximum() {
        let backoff = Backoff { base: Duration::from_secs(60), max: Duration::from_secs(1800) };
        let minutes =
            [0, 1, 2, 3, 4, 5, 6, 7, 40, u32::MAX].map(|failures| backoff.delay(failures).as_secs() / 60);
        assert_eq!(minutes, [0, 1, 2, 4, 8, 16, 30, 30, 30, 30]);
    }
}
