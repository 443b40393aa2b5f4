//! Decides whether a policy is due. Its key is queued for several reasons, and not each of them justifies a reconciliation, which counts
//! as a confirmation and sends a dozen requests to the cloud. Times are passed in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Delay after the deletion of a Node. Within it, the other Nodes of a pool that is scaled down are deleted, and most of their servers.
const SETTLE: Duration = Duration::from_secs(2);

/// Minimum time between two reconciliations because of deleted Nodes. A cluster that shrinks for an hour must not cause more requests
/// than the shortest interval.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// A change of this triggers an immediate reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trigger {
    pub uid: String,
    pub generation: Option<i64>,
    pub allow: Option<String>,
    pub conflict: Option<String>,
}

/// When the first Node was deleted since the last reconciliation began. The watch of the Nodes shares it.
#[derive(Clone, Debug, Default)]
pub(super) struct Deletions(Arc<Mutex<Option<Instant>>>);

impl Deletions {
    /// Records the deletion of a Node. Returns the delay after which the policy is to be queued.
    pub fn record(&self, now: Instant) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(now);
        SETTLE
    }

    fn first(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The schedule of one policy.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    trigger: Option<Trigger>,
    deletions: Deletions,
    /// When the last reconciliation ended, whether it failed, and when the next one is due.
    ended: Option<(Instant, bool, Instant)>,
}

impl Schedule {
    pub fn deletions(&self) -> Deletions {
        self.deletions.clone()
    }

    /// Time until the policy is due; zero if it is due now.
    pub fn wait(&self, trigger: &Trigger, now: Instant) -> Duration {
        let (Some((ended, failed, due)), true) = (self.ended, self.trigger.as_ref() == Some(trigger)) else {
            return Duration::ZERO;
        };
        let at = match self.deletions.first() {
            // After a failure, the policy is due after its backoff or Retry-After only.
            Some(deleted) if !failed => due.min((deleted + SETTLE).max(ended + MIN_INTERVAL)),
            _ => due,
        };
        at.saturating_duration_since(now)
    }

    pub fn begins(&mut self, trigger: Trigger) {
        self.trigger = Some(trigger);
        self.ended = None;
        self.deletions.clear();
    }

    /// The reconciliation has ended; the next one is due after `delay`.
    pub fn ended(&mut self, failed: bool, delay: Duration, now: Instant) {
        self.ended = Some((now, failed, now + delay));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn trigger(generation: i64) -> Trigger {
        Trigger { generation: Some(generation), ..Trigger::default() }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_policy_is_due_when_it_is_new_or_changed_or_its_interval_is_over() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        assert_eq!(schedule.wait(&trigger(1), start), Duration::ZERO, "new");
        schedule.begins(trigger(1));
        schedule.ended(false, HOUR, start);
        assert_eq!(schedule.wait(&trigger(1), start), HOUR, "queued because of another policy of its router");
        assert_eq!(schedule.wait(&trigger(2), start), Duration::ZERO, "changed");
        assert_eq!(schedule.wait(&trigger(1), start + HOUR), Duration::ZERO, "its interval is over");
    }

    #[test]
    fn a_deleted_node_brings_the_next_reconciliation_forward_but_not_one_for_each_node() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let deletions = schedule.deletions();
        let after = |count| start + seconds(count);
        schedule.begins(trigger(1));
        assert_eq!(deletions.record(after(1)), SETTLE);
        schedule.ended(false, HOUR, after(5));
        assert_eq!(
            schedule.wait(&trigger(1), after(5)),
            seconds(10),
            "deleted during a reconciliation: it triggers the next one"
        );
        schedule.begins(trigger(1));
        schedule.ended(false, HOUR, after(20));
        assert_eq!(schedule.wait(&trigger(1), after(21)), HOUR - seconds(1), "no deletion since");
        deletions.record(after(100));
        deletions.record(after(101));
        assert_eq!(schedule.wait(&trigger(1), after(101)), seconds(1), "one reconciliation for a pool");
        schedule.begins(trigger(1));
        schedule.ended(true, seconds(600), after(103));
        deletions.record(after(104));
        assert_eq!(schedule.wait(&trigger(1), after(104)), seconds(599), "a Retry-After is honoured");
    }
}
