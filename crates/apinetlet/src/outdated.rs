//! Retries of writes that were refused because the object had changed.
//!
//! The event of the change is on the way in most cases, and starts the next reconciliation. If it does not come, or the write is
//! refused again each time, the delay grows, and the refusal becomes an error that is logged and counted.

use std::time::Duration;

use common::backoff::Backoff;
use common::controller::Next;
use common::executor::ActionError as _;

use crate::error::Error;

/// The delay of the next reconciliation.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(60) };

/// From so many in a row on it is an error. The retries before take two minutes.
const MAX: u32 = 10;

/// So many reconciliations of one object in a row have ended with [`Error::Outdated`].
#[derive(Debug, Default)]
pub struct Outdated(u32);

impl Outdated {
    /// Counts the result of a reconciliation, and returns that for the controller.
    ///
    /// # Errors
    /// Those of the result, but [`Error::Outdated`] only after several in a row.
    pub fn result(&mut self, result: Result<Next, Error>) -> Result<Next, Error> {
        match result {
            Err(error) if error.is_outdated() => {
                self.0 = self.0.saturating_add(1);
                if self.0 < MAX { Ok(Next::After(BACKOFF.delay(self.0))) } else { Err(error) }
            }
            other => {
                self.0 = 0;
                other
            }
        }
    }

    /// The delay after an error: the controller's, or that of this one if it is longer.
    #[must_use]
    pub fn retry_after(&self, backoff: Duration) -> Duration {
        backoff.max(BACKOFF.delay(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_slow_down_and_become_errors() {
        let mut outdated = Outdated::default();
        for millis in [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200] {
            let next = outdated.result(Err(Error::Outdated));
            assert!(matches!(next, Ok(Next::After(delay)) if delay.as_millis() == millis), "{next:?}");
        }
        for _ in 0..3 {
            let next = outdated.result(Err(Error::Outdated));
            assert!(matches!(next, Err(Error::Outdated)), "{next:?}");
            assert_eq!(outdated.retry_after(Duration::from_millis(100)), Duration::from_secs(60));
        }
    }

    #[test]
    fn another_result_ends_the_row() {
        for other in [Ok(Next::OnChange), Err(Error::Invalid("a".into()))] {
            let mut outdated = Outdated::default();
            for _ in 0..20 {
                let _ = outdated.result(Err(Error::Outdated));
            }
            let is_ok = other.is_ok();
            assert_eq!(outdated.result(other).is_ok(), is_ok);
            assert_eq!(outdated.retry_after(Duration::from_millis(100)), Duration::from_millis(100));
            let next = outdated.result(Err(Error::Outdated));
            assert!(matches!(next, Ok(Next::After(delay)) if delay.as_millis() == 200), "{next:?}");
        }
    }
}
