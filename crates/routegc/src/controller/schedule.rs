//! Whether it is time to reconcile a policy. The queue wakes it for several reasons; not each of them justifies a reconciliation, which
//! counts as a confirmation and costs the cloud a dozen requests. Times are passed in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// After the deletion of a Node: the rest of a node pool that is scaled down is deleted within it, and so are most servers.
const SETTLE: Duration = Duration::from_secs(2);

/// Between two reconciliations because of deleted Nodes: a cluster that shrinks for an hour is no reason for more requests than the
/// shortest interval makes.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// What asks for a reconciliation at once when it changes.
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
    /// A Node was deleted. Returns after which delay the policy is to be woken.
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

/// Of one policy.
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

    /// How long until it is to be reconciled; zero: now.
    pub fn wait(&self, trigger: &Trigger, now: Instant) -> Duration {
        let (Some((ended, failed, due)), true) = (self.ended, self.trigger.as_ref() == Some(trigger)) else {
            return Duration::ZERO;
        };
        let at = match self.deletions.first() {
            // A policy that failed is retried at its time, also where that is a Retry-After.
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
        assert_eq!(schedule.wait(&trigger(1), start), HOUR, "woken by another policy of its router");
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
            "deleted during a reconciliation: the next one is its own"
        );
        schedule.begins(trigger(1));
        schedule.ended(false, HOUR, after(20));
        assert_eq!(schedule.wait(&trigger(1), after(21)), HOUR - seconds(1), "that deletion is served");
        deletions.record(after(100));
        deletions.record(after(101));
        assert_eq!(schedule.wait(&trigger(1), after(101)), seconds(1), "a pool is one reconciliation");
        schedule.begins(trigger(1));
        schedule.ended(true, seconds(600), after(103));
        deletions.record(after(104));
        assert_eq!(schedule.wait(&trigger(1), after(104)), seconds(599), "a Retry-After is honoured");
    }
}
