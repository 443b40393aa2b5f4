//! Pure: the actions of one reconciliation of one Deorbit, and its next status. No IO, no clock.
//!
//! ```text
//!   Pending → Inventory → Freeze → Delete → Wait → Verify → Sweep → Routes → Complete | CompletedWithDebris | Failed
//! ```
//!
//! A plan depends on the phase and the records that are *stored*. The next status and records are written before the steps are
//! executed. So nothing is deleted whose ID was not stored before, wherever the process stops.
//!
//! `found` (what belongs to the cluster) → `inventory` (records) → `deletion` | `leftovers` | `sweep` (steps) → `outlook` (what is
//! left) → `phase` (the next phase, with `freeze`) → `conditions`.

pub mod action;
pub mod conditions;
pub mod deletion;
pub mod found;
pub mod freeze;
pub mod inventory;
pub mod leftovers;
pub mod outlook;
pub mod phase;
pub mod preview;
pub mod reason;
pub mod sharing;
pub mod sweep;

use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{DeorbitStatus, Phase, Recorded};
use common::plan::Plan;
use jiff::Timestamp;

pub use self::action::{Act, Action};
pub use self::freeze::{frozen_is_unknown, is_thawed, may_be_frozen};
pub use self::reason::Reason;
use crate::observe::snapshot::{Cloud, Snapshot, Unread};
use crate::settings::Settings;

/// The decision of one reconciliation.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Actions, all of which are tried after the status is stored.
    pub plan: Plan<Action>,
    /// The new status; its `inventory.records` and `config_maps` are added where it is stored.
    pub status: DeorbitStatus,
    /// All records of the run after this reconciliation.
    pub records: Vec<Arc<Recorded>>,
    /// When to reconcile again; None: when the Deorbit changes.
    pub requeue_after: Option<Duration>,
}

/// The next phase begins at once.
const AT_ONCE: Duration = Duration::ZERO;
/// While things are being deleted: a user waits at most 5 s longer than necessary.
pub const SOON: Duration = Duration::from_secs(2);
/// While a server does not respond, or nothing is expected to change soon.
pub const LATER: Duration = Duration::from_secs(10);
/// After the end, while a freeze may exist in a cluster that does not respond.
const SELDOM: Duration = Duration::from_secs(60);

/// The plan for one Deorbit.
#[must_use]
pub fn plan(settings: &Settings, snapshot: &Snapshot, now: Timestamp) -> Decision {
    Planner::new(settings, snapshot, now).decide()
}

/// One decision in the making.
pub(crate) struct Planner<'a> {
    settings: &'a Settings,
    snapshot: &'a Snapshot,
    now: Timestamp,
    about: Arc<common::plan::Regarding>,
    plan: Plan<Action>,
    status: DeorbitStatus,
    records: Vec<Arc<Recorded>>,
}

impl<'a> Planner<'a> {
    fn new(settings: &'a Settings, snapshot: &'a Snapshot, now: Timestamp) -> Planner<'a> {
        let run = &snapshot.run;
        Planner {
            settings,
            snapshot,
            // The API stores whole seconds; a stored time must compare equal.
            now: Timestamp::from_second(now.as_second()).unwrap_or(now),
            about: Arc::new(action::regarding(run)),
            plan: Plan::default(),
            status: run.status.clone(),
            records: run.records.clone(),
        }
    }

    fn decide(mut self) -> Decision {
        let run = &self.snapshot.run;
        let requeue_after = if run.deleting {
            self.aborted()
        } else {
            self.status.observed_generation = run.generation;
            self.availability();
            self.resumed();
            conditions::observed(&mut self.status, self.snapshot, self.now);
            let requeue_after = if run.status.phase.is_final() {
                self.after_the_end()
            } else if run.protected {
                Some(LATER)
            } else {
                self.forward()
            };
            conditions::complete(&mut self.status, self.snapshot, &self.records, self.now);
            requeue_after
        };
        self.status.inventory.count = i64::try_from(self.records.len()).unwrap_or(i64::MAX);
        Decision { plan: self.plan, status: self.status, records: self.records, requeue_after }
    }

    fn step(&mut self, act: Act, because: Reason) {
        self.plan.step(Action { run: Arc::clone(&self.about), act }, because);
    }

    fn find(&mut self, because: Reason) {
        self.plan.problem((*self.about).clone(), because);
    }

    fn cloud(&self) -> Option<&'a Cloud> {
        self.snapshot.cloud.as_ref().and_then(|cloud| cloud.as_ref().ok())
    }

    /// Since when one of the servers that do not respond now has not responded once.
    fn availability(&mut self) {
        let (mut target, mut cloud) = (None, None);
        // The deletion of the Deorbit waits for the freeze at most so long, whatever prevents reading it.
        let counts = |unread: &Unread| unread.is_outage() || self.snapshot.run.deleting;
        if let Err(unread) = &self.snapshot.cluster {
            target = counts(unread).then(|| self.unavailable_since("TargetReachable"));
            let why = unread.to_string();
            self.find(match unread {
                Unread::Outage(_) => Reason::TargetUnavailable { why },
                Unread::Refused(_) => Reason::TargetRefused { why },
                Unread::ManagementCluster(_) => Reason::TargetIsManagementCluster { why },
            });
        }
        if let Some(Err(unread)) = &self.snapshot.cloud {
            cloud = counts(unread).then(|| self.unavailable_since("CloudReachable"));
            let why = unread.to_string();
            let outage = unread.is_outage();
            self.find(if outage { Reason::CloudUnavailable { why } } else { Reason::CloudRefused { why } });
        }
        self.status.first_unavailable_at = target.into_iter().chain(cloud).min();
    }

    /// Since when the server of this condition, which does not respond now, has not responded once. An earlier outage of the other server
    /// does not count.
    fn unavailable_since(&self, condition: &str) -> Timestamp {
        let run = &self.snapshot.run;
        let stored = &run.status;
        let Some(first) = stored.first_unavailable_at else { return self.now };
        let was = stored.conditions.iter().find(|one| one.kind == condition);
        let was = was.filter(|was| was.status == common::conditions::Status::False);
        match was.filter(|was| run.deleting || !conditions::is_refusal(was)) {
            // The recorded time is the later one where a run is tried again.
            Some(was) => first.max(was.last_transition_time),
            None => self.recorded_while_deleted().unwrap_or(self.now),
        }
    }

    /// The outage's time that was recorded after the deletion of the Deorbit began. From then on nothing else of its status is stored,
    /// so it is later than every other time in it.
    fn recorded_while_deleted(&self) -> Option<Timestamp> {
        let run = &self.snapshot.run;
        let stored = &run.status;
        let seen = stored.conditions.iter().map(|one| one.last_transition_time);
        let mut before = seen.chain(stored.phase_since);
        stored.first_unavailable_at.filter(|first| run.deleting && before.all(|time| time < *first))
    }

    /// Whether the run waits for you: the target or OpenStack refuses, or is not the one that is meant.
    fn is_refused(&self) -> bool {
        let target = self.snapshot.cluster.as_ref().err();
        let cloud = self.snapshot.cloud.as_ref().and_then(|cloud| cloud.as_ref().err());
        target.into_iter().chain(cloud).any(|unread| !unread.is_outage())
    }

    /// The time of a protection or a refusal does not count: all timeouts restart when it ends.
    fn resumed(&mut self) {
        use common::conditions::Status;
        let run = &self.snapshot.run;
        let condition = |kind: &str| run.status.conditions.iter().find(|condition| condition.kind == kind);
        let was_protected = condition("Protected").is_some_and(|was| was.status == Status::True);
        let was_refused = ["TargetReachable", "CloudReachable"].into_iter().filter_map(condition);
        let was_refused = was_refused.into_iter().any(conditions::is_refusal);
        let ended = (was_protected && !run.protected) || (was_refused && !self.is_refused());
        if ended && !run.status.phase.is_final() {
            self.status.started_at = self.status.started_at.map(|_| self.now);
            self.status.phase_since = self.status.phase_since.map(|_| self.now);
        }
    }

    /// Whether the outage has gone on for too long.
    fn outage_is_over_limit(&self) -> bool {
        self.status.first_unavailable_at.is_some_and(|since| self.is_too_long(since))
    }

    /// Whether more time has passed since then than `timeouts.hang` allows.
    fn is_too_long(&self, since: Timestamp) -> bool {
        outlook::is_over(since, self.snapshot.run.spec.timeouts.api_unavailable.duration(), self.now)
    }

    /// The run is over; a freeze that could not be removed then is removed when the target responds again.
    fn after_the_end(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        // A change of timeouts, onTimeout or leftovers of a failed run restarts it.
        if run.status.phase == Phase::Failed && run.status.observed_generation != run.generation {
            self.status.started_at = Some(self.now);
            self.status.first_unavailable_at = self.status.first_unavailable_at.map(|_| self.now);
            self.status.completed_at = None;
            self.status.debris.clear();
            self.status.debris_count = 0;
            return self.go(if self.status.inventory.taken { Phase::Freeze } else { Phase::Inventory });
        }
        match &self.snapshot.cluster {
            Ok(cluster) if cluster.freeze.any() => {
                self.step(self.remove_freeze(cluster), Reason::RunEnded);
                Some(LATER)
            }
            Ok(_) => None,
            Err(_) if frozen_is_unknown(&self.status) => Some(SELDOM),
            Err(_) => None,
        }
    }

    fn go(&mut self, phase: Phase) -> Option<Duration> {
        self.status.phase = phase;
        self.status.phase_since = Some(self.now);
        Some(AT_ONCE)
    }
}

#[cfg(test)]
mod tests;
