//! Retries: when an exchange is repeated, how long the backoff is, and what `Retry-After` asks for.

use std::time::{Duration, SystemTime};

use ::http::HeaderMap;
use ::http::header::RETRY_AFTER;
use jiff::fmt::rfc2822;
use tokio::time::Instant;

use crate::backoff::Backoff;

/// Retry policy for the caller of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request fails again until its cause is removed. Reconcile at the usual interval.
    Never,
    /// The failure is transient. Read, compare, and retry with backoff.
    Soon,
    /// The failure is transient, and the server asks for this wait before the next request.
    After(Duration),
}

/// Retries of one request. A restarted proxy or a lock of another client needs no more, and more would add load to an outage.
const MAX_RETRIES: u32 = 4;
/// Two exchange deadlines: a server that never responds costs one retry, not four.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Of which a random part is waited for. Locks on a network are held for about a second, and a failover waits for the longest one.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), max: Duration::from_secs(5) };
/// A longer `Retry-After` is not waited for inside a request, because the wait would occupy one of the controller's workers: the
/// error carries it, and the controller requeues the object.
const RETRY_AFTER_WAITED: Duration = Duration::from_secs(2);
/// A longer `Retry-After` counts as this: a server cannot stop a controller for a day, or beyond what a clock can count.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The retry budget of one operation. All pages of one list share its time.
#[derive(Debug)]
pub struct Budget {
    retries: u32,
    deadline: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::with_timeout(TIMEOUT)
    }
}

impl Budget {
    /// The usual number of retries within this time.
    #[must_use]
    pub fn with_timeout(timeout: Duration) -> Budget {
        Budget { retries: 0, deadline: Instant::now() + timeout }
    }

    /// When the operation ends at the latest.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The wait before the next attempt. None if there is none: the failure is not transient, the budget is spent, the wait would
    /// end after the deadline, or the server asks for more than two seconds. The error then tells the caller how long
    /// ([`Retry::After`]).
    #[must_use]
    pub fn next_wait(&mut self, retry: Retry) -> Option<Duration> {
        if matches!(retry, Retry::After(asked) if asked > RETRY_AFTER_WAITED) {
            return None;
        }
        let wait = wait(retry, self.retries, fastrand::f64())?;
        if self.retries >= MAX_RETRIES || Instant::now() + wait >= self.deadline {
            return None;
        }
        self.retries += 1;
        Some(wait)
    }

    /// A part of the operation is done: the next part has the full number of retries. The deadline stays.
    pub fn progressed(&mut self) {
        self.retries = 0;
    }
}

/// Full jitter: `random` in 0..1 of the backoff. It is added to what the server asks for, so that its clients do not return at the
/// same time.
fn wait(retry: Retry, retries: u32, random: f64) -> Option<Duration> {
    let jitter = BACKOFF.delay(retries + 1).mul_f64(random);
    match retry {
        Retry::Never => None,
        Retry::Soon => Some(jitter),
        Retry::After(asked) => Some(asked.saturating_add(jitter)),
    }
}

/// The wait that the `Retry-After` header asks for, in seconds or as a date, which is compared with our own clock. At most ten
/// minutes. None where there is no wait: no header, an unreadable one, zero seconds or a date in the past; then our own backoff
/// applies, because a server that always responds with `Retry-After: 0` must not be called in a loop.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    asked(headers.get(RETRY_AFTER)?.to_str().ok()?.trim(), SystemTime::now())
}

fn asked(value: &str, now: SystemTime) -> Option<Duration> {
    let asked = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // The standard allows digits only; more of them than fit into 64 bits are an absurd wait, not an unreadable one.
        Err(_) if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => Duration::MAX,
        Err(_) => {
            let then = SystemTime::from(rfc2822::parse(value).ok()?.timestamp());
            then.duration_since(now).ok()?
        }
    };
    Some(asked.min(RETRY_AFTER_MAX)).filter(|asked| !asked.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_backoff_stays_within_its_bounds(retries in 0_u32..100, random in 0.0..1.0_f64, asked in 0_u64..10_000) {
            let soon = wait(Retry::Soon, retries, random).unwrap();
            prop_assert!(soon <= BACKOFF.max);
            prop_assert!(soon <= BACKOFF.base * 2_u32.pow(retries.min(10)));
            let asked = Duration::from_secs(asked);
            let after = wait(Retry::After(asked), retries, random).unwrap();
            prop_assert!(after >= asked && after <= asked + BACKOFF.max);
            prop_assert_eq!(wait(Retry::Never, retries, random), None);
        }
    }

    #[test]
    fn jitter_uses_the_whole_backoff() {
        assert_eq!(wait(Retry::Soon, 0, 0.0), Some(Duration::ZERO));
        assert_eq!(wait(Retry::Soon, 2, 0.5), Some(Duration::from_secs(1)));
        assert_eq!(wait(Retry::Soon, 9, 0.999_999_999_999), Some(BACKOFF.max));
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_limits_the_number_of_retries() {
        let mut budget = Budget::default();
        for _ in 0..MAX_RETRIES {
            assert!(budget.next_wait(Retry::Soon).is_some());
        }
        assert_eq!(budget.next_wait(Retry::Soon), None);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_resets_the_number_of_retries_and_not_the_deadline() {
        let mut budget = Budget::default();
        let deadline = budget.deadline();
        for _ in 0..=MAX_RETRIES {
            assert!(budget.next_wait(Retry::Soon).is_some());
            budget.progressed();
        }
        assert_eq!(budget.deadline(), deadline);
        tokio::time::advance(TIMEOUT).await;
        budget.progressed();
        assert_eq!(budget.next_wait(Retry::Soon), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_retry_after_is_left_to_the_caller() {
        // Plenty of time: the limit is about the worker, not about the budget.
        let mut budget = Budget::with_timeout(RETRY_AFTER_MAX * 2);
        assert!(budget.next_wait(Retry::After(RETRY_AFTER_WAITED)).is_some());
        assert_eq!(budget.next_wait(Retry::After(RETRY_AFTER_WAITED + Duration::from_secs(1))), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_ends_after_the_deadline() {
        let mut budget = Budget::with_timeout(Duration::from_secs(1));
        assert_eq!(budget.next_wait(Retry::After(Duration::from_secs(1))), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(budget.next_wait(Retry::Soon), None);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_480 - 90);
        assert_eq!(asked("7", now), Some(Duration::from_secs(7)));
        assert_eq!(asked("Wed, 21 Oct 2015 07:28:00 GMT", now), Some(Duration::from_secs(90)));
        for unreadable in ["soon", "-1", ""] {
            assert_eq!(asked(unreadable, now), None, "{unreadable}");
        }
    }

    #[test]
    fn an_absurd_retry_after_is_bounded_and_zero_is_none() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_480 - 90);
        for absurd in
            ["86400", "18446744073709551615", "99999999999999999999999", "Fri, 01 Jan 9999 00:00:00 GMT"]
        {
            assert_eq!(asked(absurd, now), Some(RETRY_AFTER_MAX), "{absurd}");
        }
        for no_wait in ["0", "Wed, 21 Oct 2015 07:20:00 GMT"] {
            assert_eq!(asked(no_wait, now), None, "{no_wait}");
        }
    }
}
