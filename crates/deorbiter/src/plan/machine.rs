//! The phases of a run: one table, and the work of each row.
//!
//! ```text
//!   Pending → Inventory → Deleting → Verifying → Finishing → Succeeded | Failed
//!                 └→ Planned (a dry run)          any of them → Aborting (the Deorbit is deleted)
//! ```
//!
//! Three things hold in every phase. While the Deorbit is protected, or a server refuses access, or nothing proves that the login is
//! the cluster's own, nothing is done and no time counts. Records are stored before anything is deleted. The block of new objects
//! stays in place until the Deorbit is deleted.

use std::time::Duration;

use common::api::deorbit::{Kind, OrphanPolicy, Phase, Provider};

use super::outlook::{self, Left, is_over};
use super::presence::Presence;
use super::reason::Reason;
use super::{Act, LATER, Planner, SOON, Tally, conditions, deletion, discovery, inventory, orphans};
use crate::observe::snapshot::{Cluster, Run, Unread};
use crate::record::Book;

/// One phase.
pub struct Row {
    /// The phase.
    pub phase: Phase,
    /// When it begins.
    pub entry: &'static str,
    /// The work of each reconciliation.
    pub work: &'static str,
    /// When it ends.
    pub exit: &'static str,
    /// The effect of a time limit.
    pub on_timeout: &'static str,
    run: fn(&mut Planner<'_>) -> Option<Duration>,
}

/// All phases. `docs/deorbiter.md` has this table.
pub const TABLE: [Row; 9] = [
    Row {
        phase: Phase::Pending,
        entry: "the Deorbit is created",
        work: "reads the identity of both clusters, and adds the finalizer",
        exit: "the target may be cleaned up",
        on_timeout: "none: no time counts",
        run: |planner| planner.pending(),
    },
    Row {
        phase: Phase::Inventory,
        entry: "the target may be cleaned up",
        work: "records each resource with its ID, proves the login, and blocks new objects",
        exit: "everything is recorded and the block is in place; a dry run goes to Planned",
        on_timeout: "`total`, `apiUnavailable`: Finishing",
        run: |planner| planner.inventory(),
    },
    Row {
        phase: Phase::Planned,
        entry: "a dry run has recorded everything",
        work: "nothing",
        exit: "`dryRun` is set to false: Inventory",
        on_timeout: "none",
        run: |planner| planner.planned(),
    },
    Row {
        phase: Phase::Deleting,
        entry: "everything is recorded",
        work: "deletes objects of the cluster; its controllers delete the resources",
        exit: "no object of the cluster holds a resource any more, or those that do take longer than `perObject`",
        on_timeout: "`total`: Finishing. `apiUnavailable`: Verifying with `orphanPolicy: Delete`, otherwise Finishing",
        run: |planner| planner.deleting(),
    },
    Row {
        phase: Phase::Verifying,
        entry: "the cluster's controllers are done, or take too long",
        work: "polls each ID in OpenStack; with `orphanPolicy: Delete` deletes by ID; at last searches by the cluster's name",
        exit: "everything is gone that is to be deleted",
        on_timeout: "`perObject` reports. `total`: Finishing. `apiUnavailable`: Finishing when nothing more can be deleted",
        run: |planner| planner.verifying(),
    },
    Row {
        phase: Phase::Finishing,
        entry: "everything is gone, or a limit is over",
        work: "removes the recorded and the stale routes; with `clusterSurvives` lifts the block; last, with `applicationCredential: Delete`, deletes the credential of the login",
        exit: "the routes and the credential are gone and nothing new was created: Succeeded; resources are left and `onTimeout` is Block: Failed",
        on_timeout: "`total`: what is left is listed",
        run: |planner| planner.finishing(),
    },
    Row {
        phase: Phase::Aborting,
        entry: "the Deorbit is being deleted",
        work: "lifts the block",
        exit: "the block is gone: the finalizer is removed",
        on_timeout: "`apiUnavailable`: the finalizer is removed, and an Event names the block",
        run: |planner| planner.nothing(),
    },
    Row {
        phase: Phase::Succeeded,
        entry: "the cluster may be deleted",
        work: "nothing; with `clusterSurvives` lifts the block",
        exit: "the Deorbit is deleted, by you or after `ttlSecondsAfterFinished`",
        on_timeout: "none",
        run: |planner| planner.nothing(),
    },
    Row {
        phase: Phase::Failed,
        entry: "resources are left, and `onTimeout` is Block",
        work: "nothing; with `clusterSurvives` lifts the block",
        exit: "`timeouts`, `onTimeout` or `orphanPolicy` changes: Inventory",
        on_timeout: "none",
        run: |planner| planner.nothing(),
    },
];

impl<'a> Planner<'a> {
    /// The work of a run that is neither over nor being deleted.
    pub(super) fn running(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        if let (Some(id), false) = (&run.book.credential, run.protected) {
            return self.credential_deleted(id);
        }
        self.availability();
        let found = self.record();
        if let Some(requeue_after) = self.held() {
            self.count(false);
            return Some(requeue_after);
        }
        if !run.held {
            self.step(Act::AddFinalizer, Reason::RunStarted);
            return Some(Duration::ZERO);
        }
        let phase = run.status.phase;
        let is_timed =
            !matches!(phase, Phase::Pending | Phase::Planned) && !run.spec.dry_run && !self.book.over;
        if is_timed && let Some(requeue_after) = self.limits() {
            return Some(requeue_after);
        }
        let is_deleting = phase >= Phase::Deleting && !self.book.over && run.lost.is_none();
        if let (Ok(cluster), true) = (&self.snapshot.cluster, is_deleting) {
            // While OpenStack cannot be read it is unknown what it keeps: then nothing is deleted in the cluster either.
            if self.readable().is_some() {
                for (act, because) in deletion::steps(run, &run.records, cluster, &found) {
                    self.step(act, because);
                }
            }
            self.keep_block(cluster);
        }
        // In a large cluster these are megabytes, and the rest needs only the records.
        drop(found);
        TABLE.iter().find(|row| row.phase == phase).and_then(|row| (row.run)(self))
    }

    /// The next phase, in the next reconciliation.
    pub(super) fn go(&mut self, phase: Phase) -> Option<Duration> {
        self.status.phase = phase;
        self.book.phase_since = Some(self.now);
        Some(Duration::ZERO)
    }

    /// Whether the run waits for you.
    fn held(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        if run.protected || self.refusal().is_some() {
            self.book.paused = run.status.phase > Phase::Pending;
            return Some(LATER);
        }
        match run.spec.dry_run {
            // No limit counts for it: all of them start when it is switched off.
            true => self.book.paused = run.status.phase > Phase::Pending,
            false => self.resumed(),
        }
        None
    }

    /// After a wait for you, all limits restart.
    pub(super) fn resumed(&mut self) {
        if std::mem::take(&mut self.book.paused) {
            let Book { clock, phase_since, deleting_since, unreachable_since, block_refused_since, .. } =
                &mut self.book;
            for time in [clock, phase_since, deleting_since, unreachable_since, block_refused_since] {
                *time = time.map(|_| self.now);
            }
        }
    }

    /// Ends the wait where a limit is over.
    fn limits(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        let is_over_total =
            self.book.clock.is_some_and(|begun| is_over(begun, run.spec.timeouts.total.duration(), self.now));
        if is_over_total {
            return self.over();
        }
        if !self.is_target_gone() {
            return None;
        }
        // Its resources can still be deleted by their recorded IDs, also after an outage of OpenStack.
        let can_delete = self.snapshot.cloud.is_some()
            && run.spec.orphan_policy == OrphanPolicy::Delete
            && self.book.taken;
        match run.status.phase {
            Phase::Verifying | Phase::Finishing if can_delete => None,
            _ if can_delete => self.go(Phase::Verifying),
            _ => self.over(),
        }
    }

    /// Whether the target has not responded for so long that the run does not wait for it any more.
    pub(super) fn is_target_gone(&self) -> bool {
        let limit = self.snapshot.run.spec.timeouts.api_unavailable.duration();
        self.book.unreachable_since.is_some_and(|since| is_over(since, limit, self.now))
    }

    fn over(&mut self) -> Option<Duration> {
        self.count(self.is_target_gone());
        self.book.over = true;
        match self.snapshot.run.status.phase {
            Phase::Finishing => None,
            _ => self.go(Phase::Finishing),
        }
    }

    fn pending(&mut self) -> Option<Duration> {
        // The limits count from here: a target that never responds must end too.
        self.status.start_time = Some(self.now);
        self.book.clock = Some(self.now);
        self.go(Phase::Inventory)
    }

    /// The target, where it, OpenStack and the records could be read; otherwise the run waits.
    pub(super) fn readable(&self) -> Option<&'a Cluster> {
        let is_known = self.snapshot.run.lost.is_none() && !matches!(self.snapshot.cloud, Some(Err(_)));
        self.snapshot.cluster.as_ref().ok().filter(|_| is_known)
    }

    fn inventory(&mut self) -> Option<Duration> {
        self.count(false);
        let Some(cluster) = self.readable() else { return Some(LATER) };
        let run = &self.snapshot.run;
        self.book.taken = true;
        if let Some(cloud) = self.cloud() {
            self.book.bind(cloud);
            self.record_routes(cluster);
        }
        if run.spec.dry_run {
            // Nothing else shows what a run would do. In a living cluster, what has no object yet may still get one.
            return match run.spec.cluster_gone.is_some() && !self.book.discovered {
                true => self.discover(),
                false => self.go(Phase::Planned),
            };
        }
        // Before the block: from here on the resources are deleted by their IDs if the cluster stops responding.
        if let (Some(cloud), None) = (self.cloud(), self.book.deleting_since) {
            inventory::unname(&mut self.records, cluster, cloud);
        }
        if !self.blocked(cluster) {
            return Some(SOON / 4);
        }
        self.book.deleting_since = Some(self.now);
        self.go(Phase::Deleting)
    }

    fn planned(&mut self) -> Option<Duration> {
        self.count(false);
        if self.snapshot.run.spec.dry_run {
            return None;
        }
        (self.status.start_time, self.book.clock) = (Some(self.now), Some(self.now));
        // A user may have kept something since: nothing is deleted by the records until the cluster was read again.
        (self.book.taken, self.book.discovered) = (false, false);
        self.go(Phase::Inventory)
    }

    fn deleting(&mut self) -> Option<Duration> {
        let Some(cluster) = self.readable() else {
            self.count(false);
            return Some(LATER);
        };
        let stopped = conditions::stopped(cluster, self.now);
        let itself = self.snapshot.run.spec.orphan_policy == OrphanPolicy::Delete;
        let takes_over = !stopped.is_empty() && itself;
        if !itself {
            let has_login = self.snapshot.cloud.is_some();
            for lease in stopped {
                self.find(Reason::ProviderStopped { lease, has_login });
            }
        }
        let done = self.left(false, |left| {
            left.iter().all(|one| !one.in_cluster || one.overdue || (takes_over && !one.untouched))
        });
        if done { self.go(Phase::Verifying) } else { Some(SOON) }
    }

    fn verifying(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        let given_up = self.is_target_gone();
        if (self.readable().is_none() && !given_up) || matches!(self.snapshot.cloud, Some(Err(_))) {
            self.count(given_up);
            return Some(LATER);
        }
        let (snapshot, now, cloud) = (self.snapshot, self.now, self.cloud());
        let phase_since = self.book.phase_since;
        let (steps, gone, settled) = self.left(given_up, |left| {
            let steps = match cloud {
                Some(cloud) if run.spec.orphan_policy == OrphanPolicy::Delete => {
                    orphans::steps(snapshot, phase_since, cloud, left, now)
                }
                _ => Vec::new(),
            };
            let mut waited = left.iter().filter(|one| !one.reported);
            let gone = waited.clone().next().is_none();
            let is_settled = |one: &Left<'_>| one.overdue || !matches!(one.presence, Presence::Present(_));
            (steps, gone, waited.all(is_settled))
        });
        let idle = steps.is_empty();
        for (act, because) in steps {
            self.step(act, because);
        }
        if !self.grace_is_over() {
            return Some(SOON);
        }
        // Last, when nothing else changes any more: the cluster's own controllers delete most of what could be found. Without a proof
        // nothing is searched, and what is left is waited for.
        let is_due = gone || (settled && self.book.proof.any());
        if is_due && run.spec.discover_by_cluster_name && !self.book.discovered {
            return self.discover();
        }
        match (gone, settled && idle && given_up) {
            (true, _) => self.go(Phase::Finishing),
            (false, true) => self.over(),
            (false, false) => Some(SOON),
        }
    }

    /// Lists the project, and records what has the cluster's name.
    fn discover(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        let Some(cloud) = self.cloud().filter(|_| self.book.proof.any()) else {
            // It stays undone, and the end lists that.
            return self.go(Phase::Finishing);
        };
        if !cloud.whole {
            self.book.discovering = true;
            return Some(Duration::ZERO);
        }
        let swept = discovery::found(run, &self.book, &self.records, cloud);
        self.records.extend(swept);
        self.book.discovered = true;
        Some(Duration::ZERO)
    }

    fn finishing(&mut self) -> Option<Duration> {
        self.count(self.is_target_gone());
        let cloud_fails = matches!(self.snapshot.cloud, Some(Err(_)));
        let is_waiting = cloud_fails || (self.readable().is_none() && !self.is_target_gone());
        if is_waiting && !self.book.over {
            return Some(LATER);
        }
        if let Some(wait) = self.routes() {
            return Some(wait);
        }
        // Something was created after the wait for the rest.
        let fresh = self.left(false, |left| left.iter().any(|one| one.untouched && !one.refused));
        if fresh && !(self.book.over || self.book.lifting) && self.snapshot.cluster.is_ok() {
            return self.go(Phase::Verifying);
        }
        if self.snapshot.run.spec.cluster_survives
            && let Some(wait) = self.lift_at_the_end()
        {
            return Some(wait);
        }
        self.end()
    }

    fn nothing(&mut self) -> Option<Duration> {
        None
    }

    /// Without credentials, or without an ID, load balancers cannot be verified: they get some time after the last Service is gone. So do
    /// volumes and snapshots of any provider that had no ID: their driver may still have been creating them.
    fn grace_is_over(&self) -> bool {
        let run = &self.snapshot.run;
        let blind = self.snapshot.cloud.is_none();
        let any =
            self.records.iter().filter(|record| record.kept.is_none()).any(|record| match record.kind {
                Kind::LoadBalancer => blind || record.id.is_none(),
                _ => run.spec.provider == Provider::Any && record.id.is_none(),
            });
        let limit = run.spec.timeouts.load_balancer_grace.duration();
        !any || self.in_phase_for(limit)
    }

    /// The first server that refuses.
    pub(super) fn refusal(&self) -> Option<(&'static str, &Unread)> {
        let target = self.snapshot.cluster.as_ref().err().map(|unread| ("TargetReachable", unread));
        let cloud = self.snapshot.cloud.as_ref().and_then(|cloud| cloud.as_ref().err());
        let cloud = cloud.or(self.unproven.as_ref()).map(|unread| ("CloudReachable", unread));
        target.into_iter().chain(cloud).find(|(_, unread)| !unread.is_outage())
    }

    fn left<T>(&mut self, given_up: bool, of: impl FnOnce(&[Left<'_>]) -> T) -> T {
        let left = outlook::left(self.snapshot, &self.book, &self.records, given_up, self.now);
        let result = of(&left);
        self.tally = Tally::of(&left);
        result
    }

    fn count(&mut self, given_up: bool) {
        self.left(given_up, |_| ());
    }
}

/// Whether a failed run is tried again: a limit or a policy has changed.
#[must_use]
pub fn is_retried(run: &Run) -> bool {
    let is_known = !run.book.limits.is_empty();
    run.status.phase == Phase::Failed && is_known && run.book.limits != Book::limits_of(&run.spec)
}
