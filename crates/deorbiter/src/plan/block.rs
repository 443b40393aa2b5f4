//! The block of new objects: created before anything is deleted, kept in place as long as the Deorbit exists, lifted when it is
//! deleted or where the cluster survives.

use std::time::Duration;

use common::api::deorbit::{CreationBlock, Phase};
use common::conditions::Status;
use jiff::Timestamp;

use super::action::{Act, Form};
use super::conditions::status_of;
use super::outlook::is_over;
use super::reason::Reason;
use super::{LATER, Planner, SOON};
use crate::names;
use crate::observe::snapshot::{Cluster, Run, Unread, key};

/// The reason of the condition `CreationBlocked` where a block may not be read. None is created there: it could not be lifted.
pub const FORBIDDEN: &str = "Forbidden";

impl Planner<'_> {
    pub(super) fn block_name(&self) -> String {
        names::block(&self.snapshot.run.uid)
    }

    pub(super) fn lift(&self, cluster: &Cluster) -> Act {
        Act::Unblock { name: self.block_name(), seen: cluster.block.clone() }
    }

    /// Its form, and whether it is in place; None where none is desired.
    fn desired(&self, cluster: &Cluster) -> Option<(Form, bool)> {
        let run = &self.snapshot.run;
        if !run.desires_block() {
            return None;
        }
        let form = match run.spec.creation_block {
            CreationBlock::Policy if cluster.block.policies => Form::Policy,
            _ => Form::Webhook,
        };
        Some((
            form,
            match form {
                Form::Policy => cluster.block.policy.is_some() && cluster.block.binding.is_some(),
                Form::Webhook => cluster.block.webhook.is_some(),
            },
        ))
    }

    /// Creates it. True: it is in place, or it has been refused for so long that the run goes on without it. Objects that are created
    /// then are recorded and deleted too.
    pub(super) fn blocked(&mut self, cluster: &Cluster) -> bool {
        let Some((form, false)) = self.desired(cluster) else {
            self.book.block_refused_since = None;
            return true;
        };
        let forbidden = "the target's admission objects may not be read".to_owned();
        let forbidden = cluster.block.forbidden.then_some(forbidden);
        let refused = || self.snapshot.failures.get(&key("Block", "create")).cloned();
        if let Some(why) = forbidden.or_else(refused) {
            self.find(Reason::BlockFailed { why });
            let limit = self.snapshot.run.spec.timeouts.api_unavailable.duration();
            // The phase may have lasted long for another reason.
            if is_over(*self.book.block_refused_since.get_or_insert(self.now), limit, self.now) {
                return true;
            }
        }
        // A block that cannot be read could not be lifted.
        if !cluster.block.forbidden {
            self.step(Act::Block { form }, Reason::CreationBlocked);
        }
        false
    }

    /// Creates it again where another client has removed it.
    pub(super) fn keep_block(&mut self, cluster: &Cluster) {
        let run = &self.snapshot.run;
        let was_there = status_of(&run.status, "CreationBlocked") == Some(Status::True);
        let is_lifted = run.spec.cluster_survives && run.status.phase == Phase::Finishing;
        if let (Some((form, false)), true) = (self.desired(cluster), was_there && !is_lifted) {
            self.step(Act::Block { form }, Reason::CreationBlocked);
        }
    }

    /// At the end of a run with `clusterSurvives`. None: it is lifted, or has been refused for so long that the end lists it.
    pub(super) fn lift_at_the_end(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        match &self.snapshot.cluster {
            Ok(cluster) if cluster.block.any() => {
                let limit = run.spec.timeouts.api_unavailable.duration();
                let is_late = self.in_phase_for(limit);
                if self.lift_is_refused().is_some() && is_late {
                    return None;
                }
                self.book.lifting = true;
                // One that stays has another program's finalizer: it is waited for, however long.
                self.step(self.lift(cluster), Reason::ClusterSurvives);
                Some(if is_late { LATER } else { SOON / 4 })
            }
            _ => None,
        }
    }

    fn lift_is_refused(&self) -> Option<&String> {
        self.snapshot.failures.get(&key("Block", "lift"))
    }

    /// Why it is debris at the end of a run with `clusterSurvives`, if it is.
    pub(super) fn block_left(&self) -> Option<String> {
        match &self.snapshot.cluster {
            Ok(cluster) if cluster.block.any() => {
                let why = self.lift_is_refused().cloned().unwrap_or_default();
                Some(format!("it could not be lifted: {why}"))
            }
            Ok(_) => None,
            Err(why) => {
                may_exist(&self.snapshot.run).then(|| format!("it may exist in the target cluster: {why}"))
            }
        }
    }

    /// The Deorbit is being deleted: lift the block, then remove the finalizer.
    pub(super) fn aborting(&mut self, since: Timestamp) -> Option<Duration> {
        let run = &self.snapshot.run;
        if !run.held {
            return None;
        }
        if !run.status.phase.is_final() {
            self.status.phase = Phase::Aborting;
        }
        self.availability();
        let because = match &self.snapshot.cluster {
            Ok(cluster) if cluster.block.any() => {
                let is_late = self.is_given_up(since) && self.lift_is_refused().is_some();
                if !is_late {
                    self.step(self.lift(cluster), Reason::DeorbitDeleted);
                    return Some(SOON / 4);
                }
                Reason::BlockMayRemain { name: self.block_name() }
            }
            Ok(_) => Reason::BlockLifted,
            Err(_) if !may_exist(run) => Reason::BlockLifted,
            // The kubeconfig goes with the cluster that was released.
            Err(Unread::NoSecret(_)) if run.status.phase == Phase::Succeeded => Reason::BlockLifted,
            Err(_) if self.is_given_up(since) => Reason::BlockMayRemain { name: self.block_name() },
            Err(_) => return Some(LATER),
        };
        self.step(Act::RemoveFinalizer, because);
        Some(SOON)
    }

    /// Whether the target could not be used for so long, whatever prevents it, that the deletion of the Deorbit does not wait any more.
    fn is_given_up(&self, deleted: Timestamp) -> bool {
        let since = self.book.unreachable_since.map_or(deleted, |since| since.max(deleted));
        is_over(since, self.snapshot.run.spec.timeouts.api_unavailable.duration(), self.now)
    }
}

/// Whether a block of this run may exist in a target that does not respond: one is created from the phase Inventory on, unless the spec
/// desires none or it may not be read, and one that was observed exists until it is observed to be gone.
#[must_use]
pub fn may_exist(run: &Run) -> bool {
    let known = run.status.conditions.iter().find(|one| one.kind == "CreationBlocked");
    match known.map(|one| (one.status, one.reason.as_str())) {
        Some((Status::True | Status::Unknown, _)) => true,
        Some((Status::False, FORBIDDEN)) => false,
        Some((Status::False, _)) if run.status.phase.is_final() => false,
        Some((Status::False, _)) | None => {
            run.status.phase >= Phase::Inventory
                && run.status.phase != Phase::Planned
                && run.desires_block()
                && !run.spec.dry_run
        }
    }
}
