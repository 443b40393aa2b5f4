//! When an exchange is done again, and how long until then.

use std::time::{Duration, SystemTime};

use ::http::HeaderMap;
use ::http::header::RETRY_AFTER;
use jiff::fmt::rfc2822;
use tokio::time::Instant;

/// What the one who called may do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same call will fail again until a person or another program changes something. Look again at the usual pace.
    Never,
    /// It passes by itself: read what is there, compare, and try again with backoff.
    Soon,
    /// The server said when: not before this has passed.
    After(Duration),
}

/// Enough for a restarted proxy or a lock held by another client, and too few to add to an outage.
const RETRIES: u32 = 4;
/// Two exchange deadlines: a server that never answers costs one retry, not four.
const TOTAL: Duration = Duration::from_secs(30);
/// The first wait is between 0 and this: locks on a network are held for about a second.
const FIRST: Duration = Duration::from_millis(500);
/// Waits do not grow beyond this: a failover waits for them.
const LONGEST: Duration = Duration::from_secs(5);

/// What one operation may spend on being repeated. All pages of one list share the time of one budget.
#[derive(Debug)]
pub struct Budget {
    retries: u32,
    ends: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::lasting(TOTAL)
    }
}

impl Budget {
    /// As many repetitions as always, within this time.
    #[must_use]
    pub fn lasting(total: Duration) -> Budget {
        Budget { retries: 0, ends: Instant::now() + total }
    }

    /// The time until which everything must be over.
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.ends
    }

    /// How long to wait before the next try; None if there shall be none: not worth it, or the budget is spent. A wait
    /// that would not end within the budget is not begun.
    #[must_use]
    pub fn spend(&mut self, retry: Retry) -> Option<Duration> {
        let wait = wait(retry, self.retries, fastrand::f64())?;
        // A server may ask for more seconds than a clock can count.
        let beyond = Instant::now().checked_add(wait).is_none_or(|end| end >= self.ends);
        if self.retries >= RETRIES || beyond {
            return None;
        }
        self.retries += 1;
        Some(wait)
    }

    /// A part of the operation is done: what comes next may be repeated as often as the first. The time is that of all of it.
    pub fn progressed(&mut self) {
        self.retries = 0;
    }
}

/// Full jitter over an exponential: `random` in 0..1 of `FIRST` × 2^`done`, at most `LONGEST`. On top of what the server
/// asked for, so that its clients do not come back all at once.
fn wait(retry: Retry, done: u32, random: f64) -> Option<Duration> {
    let span = FIRST.saturating_mul(2_u32.saturating_pow(done)).min(LONGEST).mul_f64(random);
    match retry {
        Retry::Never => None,
        Retry::Soon => Some(span),
        Retry::After(asked) => Some(asked.saturating_add(span)),
    }
}

/// The `Retry-After` header: seconds, or a date, which is then measured against our own clock.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    after(headers.get(RETRY_AFTER)?.to_str().ok()?.trim(), SystemTime::now())
}

fn after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let then = SystemTime::from(rfc2822::parse(value).ok()?.timestamp());
    Some(then.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn waits_stay_in_their_bounds(done in 0_u32..100, random in 0.0..1.0_f64, asked in 0_u64..10_000) {
            let soon = wait(Retry::Soon, done, random).unwrap();
            prop_assert!(soon <= LONGEST);
            prop_assert!(soon <= FIRST * 2_u32.pow(done.min(10)));
            let asked = Duration::from_secs(asked);
            let after = wait(Retry::After(asked), done, random).unwrap();
            prop_assert!(after >= asked && after <= asked + LONGEST);
            prop_assert_eq!(wait(Retry::Never, done, random), None);
        }
    }

    #[test]
    fn jitter_uses_the_whole_span() {
        assert_eq!(wait(Retry::Soon, 0, 0.0), Some(Duration::ZERO));
        assert_eq!(wait(Retry::Soon, 2, 0.5), Some(Duration::from_secs(1)));
        assert_eq!(wait(Retry::Soon, 9, 0.999_999_999_999), Some(LONGEST));
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_ends_by_count() {
        let mut budget = Budget::default();
        for _ in 0..RETRIES {
            assert!(budget.spend(Retry::Soon).is_some());
        }
        assert_eq!(budget.spend(Retry::Soon), None);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_gives_the_count_back_and_no_time() {
        let mut budget = Budget::default();
        let ends = budget.ends();
        for _ in 0..=RETRIES {
            assert!(budget.spend(Retry::Soon).is_some());
            budget.progressed();
        }
        assert_eq!(budget.ends(), ends);
        tokio::time::advance(TOTAL).await;
        budget.progressed();
        assert_eq!(budget.spend(Retry::Soon), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_ends_by_time() {
        let mut budget = Budget::default();
        assert_eq!(budget.spend(Retry::After(TOTAL)), None, "a wait beyond the end is not begun");
        let ages = after(&u64::MAX.to_string(), SystemTime::now()).unwrap();
        assert_eq!(budget.spend(Retry::After(ages)), None, "nor one beyond the end of time");
        tokio::time::advance(TOTAL).await;
        assert_eq!(budget.spend(Retry::Soon), None);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_480 - 90);
        assert_eq!(after("7", now), Some(Duration::from_secs(7)));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT", now), Some(Duration::from_secs(90)));
        assert_eq!(after("Wed, 21 Oct 2015 07:20:00 GMT", now), Some(Duration::ZERO), "a date in the past");
        assert_eq!(after("soon", now), None);
        assert_eq!(after("-1", now), None);
    }
}
