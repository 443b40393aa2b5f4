//! Collects changes until the next reconciliation.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::observe::inventory::Urgency;

/// Changes since the last reconciliation.
#[derive(Debug, Default)]
pub struct Trigger {
    pending: Mutex<Urgency>,
    notify: Notify,
}

impl Trigger {
    fn pending(&self) -> MutexGuard<'_, Urgency> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change.
    pub fn fire(&self, urgency: Urgency) {
        if urgency == Urgency::Irrelevant {
            return;
        }
        {
            let mut pending = self.pending();
            *pending = (*pending).max(urgency);
        }
        self.notify.notify_one();
    }

    /// Waits for a change, and for those of the next `debounce` unless one of them is urgent. The changes that were recorded before
    /// it returns are then no longer pending.
    pub async fn next(&self, debounce: Duration) {
        while *self.pending() == Urgency::Irrelevant {
            self.notify.notified().await;
        }
        let urgent = async {
            while *self.pending() != Urgency::Now {
                self.notify.notified().await;
            }
        };
        let _elapsed = tokio::time::timeout(debounce, urgent).await;
        *self.pending() = Urgency::Irrelevant;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    const DEBOUNCE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn changes_are_coalesced_and_an_urgent_one_is_not_delayed() {
        let trigger = Arc::new(Trigger::default());
        let start = Instant::now();
        trigger.fire(Urgency::Soon);
        trigger.fire(Urgency::Soon);
        trigger.next(DEBOUNCE).await;
        assert_eq!(start.elapsed(), DEBOUNCE);

        trigger.fire(Urgency::Irrelevant);
        let none = tokio::time::timeout(DEBOUNCE * 10, trigger.next(DEBOUNCE)).await;
        assert!(none.is_err(), "everything was taken");

        let start = Instant::now();
        trigger.fire(Urgency::Now);
        trigger.fire(Urgency::Soon);
        trigger.next(DEBOUNCE).await;
        assert_eq!(start.elapsed(), Duration::ZERO);

        let later = Arc::clone(&trigger);
        tokio::spawn(async move {
            tokio::time::sleep(DEBOUNCE / 5).await;
            later.fire(Urgency::Now);
        });
        let start = Instant::now();
        trigger.fire(Urgency::Soon);
        trigger.next(DEBOUNCE).await;
        assert_eq!(start.elapsed(), DEBOUNCE / 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_cancelled_loses_no_change() {
        let trigger = Trigger::default();
        trigger.fire(Urgency::Soon);
        assert!(tokio::time::timeout(DEBOUNCE / 2, trigger.next(DEBOUNCE)).await.is_err());
        assert!(tokio::time::timeout(DEBOUNCE * 2, trigger.next(DEBOUNCE)).await.is_ok());
    }
}
