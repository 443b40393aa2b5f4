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
    pending: Mutex<Pending>,
    notify: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    urgency: Urgency,
    /// Whether the node changed.
    node: bool,
}

impl Trigger {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change.
    pub fn fire(&self, urgency: Urgency) {
        if urgency == Urgency::Irrelevant {
            return;
        }
        {
            let mut pending = self.pending();
            pending.urgency = pending.urgency.max(urgency);
        }
        self.notify.notify_one();
    }

    /// Records a change of the node itself: the programmed datapath has to be compared also if the desired one is the same.
    pub fn fire_node(&self) {
        self.pending().node = true;
        self.fire(Urgency::Soon);
    }

    /// Waits for a change, and for those of the next `debounce` unless one of them is urgent. The changes that were recorded before
    /// it returns are then no longer pending. Returns whether the node itself changed.
    pub async fn next(&self, debounce: Duration) -> bool {
        while self.pending().urgency == Urgency::Irrelevant {
            self.notify.notified().await;
        }
        let urgent = async {
            while self.pending().urgency != Urgency::Now {
                self.notify.notified().await;
            }
        };
        let _elapsed = tokio::time::timeout(debounce, urgent).await;
        std::mem::take(&mut *self.pending()).node
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
        assert!(!trigger.next(DEBOUNCE).await);
        assert_eq!(start.elapsed(), Duration::ZERO);

        trigger.fire_node();
        trigger.fire(Urgency::Now);
        assert!(trigger.next(DEBOUNCE).await);
        trigger.fire(Urgency::Now);
        assert!(!trigger.next(DEBOUNCE).await, "the change of the node was taken");

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
