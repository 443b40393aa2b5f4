//! The leader's record in a Lease.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The election record: `spec` of a Lease, as client-go reads and writes it.
///
/// Its times come from the writer's wall clock. They are for people; no decision depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// `holderIdentity`; empty: anybody may take the lease.
    pub holder: String,
    /// `leaseDurationSeconds`: how long to leave this record alone after it was seen to change. 0: not stated.
    pub lease_duration_seconds: i32,
    /// `acquireTime`: when the holder took the lease.
    pub acquire_time: Option<Timestamp>,
    /// `renewTime`: when the holder last wrote.
    pub renew_time: Option<Timestamp>,
    /// `leaseTransitions`: how often the holder changed.
    pub transitions: i32,
}

impl Record {
    /// The first record of a new Lease.
    pub(super) fn first(holder: &str, seconds: i32, wall: Timestamp) -> Record {
        Record {
            holder: holder.to_owned(),
            lease_duration_seconds: seconds,
            acquire_time: Some(wall),
            renew_time: Some(wall),
            transitions: 0,
        }
    }

    /// This record, taken over.
    pub(super) fn taken_over(&self, by: &str, seconds: i32, wall: Timestamp) -> Record {
        Record { transitions: self.transitions.saturating_add(1), ..Record::first(by, seconds, wall) }
    }

    /// This record, renewed by its holder; always another one, whatever the wall clock does.
    ///
    /// The API server drops a write that changes nothing, and a client-go contender compares times by the second: with a
    /// clock that stands still or was set back, a renewal would go unseen and the lease would be taken from under a living
    /// leader. Then the renewal goes on from its predecessor by a second, unless the clock was set back by more than a lease
    /// duration: that is visible by itself, and right.
    pub(super) fn renewed(&self, seconds: i32, wall: Timestamp) -> Record {
        let renew_time = match self.renew_time {
            Some(previous)
                if wall <= previous
                    && previous.duration_since(wall) <= SignedDuration::from_secs(seconds.into()) =>
            {
                previous.checked_add(SignedDuration::from_secs(1)).unwrap_or(wall)
            }
            _ => wall,
        };
        Record { lease_duration_seconds: seconds, renew_time: Some(renew_time), ..self.clone() }
    }

    /// This record without a holder. One second, as client-go writes: a contender that knows no empty holder waits no longer.
    pub(super) fn released(&self, wall: Timestamp) -> Record {
        Record { transitions: self.transitions, ..Record::first("", 1, wall) }
    }

    /// How long to leave this record alone; `or` where it does not say.
    pub(super) fn lease_duration(&self, or: Duration) -> Duration {
        match u64::try_from(self.lease_duration_seconds) {
            Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => or,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn acquire_time_and_transitions_stay_while_renewing() {
        let first = Record::first("a", 15, at(100));
        let renewed = first.renewed(15, at(102));
        assert_eq!(
            (renewed.acquire_time, renewed.renew_time, renewed.transitions),
            (Some(at(100)), Some(at(102)), 0)
        );
    }

    #[test]
    fn a_takeover_counts_a_transition_and_resets_the_times() {
        let taken = Record { transitions: 3, ..Record::first("a", 15, at(100)) }.taken_over("b", 20, at(130));
        assert_eq!(taken, Record { transitions: 4, ..Record::first("b", 20, at(130)) });
    }

    #[test]
    fn a_release_keeps_the_count() {
        let released = Record { transitions: 3, ..Record::first("a", 15, at(100)) }.released(at(110));
        assert_eq!(released, Record { transitions: 3, ..Record::first("", 1, at(110)) });
    }

    #[test]
    fn a_clock_that_stands_still_or_was_set_back_cannot_hide_a_renewal() {
        let mut record = Record::first("a", 15, at(100));
        let mut seen = vec![record.renew_time];
        for wall in [100, 100, 99, 90] {
            record = record.renewed(15, at(wall));
            assert!(!seen.contains(&record.renew_time));
            seen.push(record.renew_time);
        }
        assert_eq!(record.renew_time, Some(at(104)));
        assert_eq!(
            record.renewed(15, at(10)).renew_time,
            Some(at(10)),
            "set back by far: the clock is believed"
        );
    }

    #[test]
    fn an_unstated_duration_is_our_own() {
        let record = |lease_duration_seconds| Record { lease_duration_seconds, ..Record::default() };
        let ours = Duration::from_secs(7);
        assert_eq!([-1, 0, 3].map(|seconds| record(seconds).lease_duration(ours).as_secs()), [7, 7, 3]);
    }
}
