//! The freeze of a run: created before anything is deleted, removed at its end, and reported where either fails.

use std::time::Duration;

use common::api::deorbit::{self as api, DeorbitStatus, Freeze, Phase};

use super::action::{Act, Form};
use super::reason::Reason;
use super::{AT_ONCE, LATER, Planner, SOON};
use crate::names;
use crate::observe::snapshot::{Cluster, Run, key};

impl Planner<'_> {
    pub(super) fn freeze_name(&self) -> String {
        names::freeze(&self.snapshot.run.uid)
    }

    pub(super) fn remove_freeze(&self, cluster: &Cluster) -> Act {
        Act::RemoveFreeze { name: self.freeze_name(), seen: cluster.freeze.clone() }
    }

    /// Creates it, and goes on where it exists, or where creating it is refused.
    pub(super) fn freeze(&mut self, cluster: &Cluster) -> Option<Duration> {
        let form = match self.snapshot.run.spec.freeze {
            api::Freeze::None => return self.start(),
            api::Freeze::Policy if cluster.freeze.policies => Form::Policy,
            api::Freeze::Policy | api::Freeze::Webhook => Form::Webhook,
        };
        let in_place = match form {
            Form::Policy => cluster.freeze.policy.is_some() && cluster.freeze.binding.is_some(),
            Form::Webhook => cluster.freeze.webhook.is_some(),
        };
        if in_place {
            return self.start();
        }
        // Recreated objects are deleted again, so the run goes on even if the freeze is refused for long.
        let forbidden = "the target's admission objects may not be read".to_owned();
        let forbidden = cluster.freeze.forbidden.then_some(forbidden);
        let refused = || self.snapshot.failures.get(&key("Freeze", "create")).cloned();
        if let Some(why) = forbidden.or_else(refused) {
            self.find(Reason::FreezeFailed { why });
            if self.status.phase_since.is_some_and(|since| self.is_too_long(since)) {
                return self.start();
            }
        }
        // A freeze that cannot be read could not be removed.
        if cluster.freeze.forbidden {
            return Some(SOON);
        }
        self.step(Act::Freeze { form }, Reason::CreationBlocked);
        Some(SOON / 4)
    }

    /// Removes the freeze. True: there is none, or nothing can be done about it.
    pub(super) fn lifted(&mut self) -> bool {
        match &self.snapshot.cluster {
            Ok(cluster) if cluster.freeze.any() => {
                self.step(self.remove_freeze(cluster), Reason::RunEnded);
                false
            }
            Ok(_) => true,
            Err(_) => self.is_too_long(self.unavailable_since("TargetReachable")),
        }
    }

    /// The error of the last try to remove it, if it failed.
    pub(super) fn removal_is_refused(&self) -> Option<&String> {
        self.snapshot.failures.get(&key("Freeze", "lift"))
    }

    /// Why it is debris at the end of a run, if it is.
    pub(super) fn freeze_left(&self) -> Option<String> {
        match &self.snapshot.cluster {
            Ok(cluster) if cluster.freeze.any() => {
                self.removal_is_refused().map(|why| format!("it could not be removed: {why}"))
            }
            Ok(_) => None,
            // It exists before the run has started, which is the next step.
            Err(why) => {
                let run = &self.snapshot.run;
                let exists = frozen_is_unknown(&self.status)
                    && (run.status.started_at.is_some() || may_be_frozen(run));
                exists.then(|| format!("it may exist in the target cluster: {why}"))
            }
        }
    }

    /// Whether the run ended with a freeze that it could not remove: its debris lists it, so you know before you delete the Deorbit.
    fn is_named_as_debris(&self) -> bool {
        let status = &self.snapshot.run.status;
        let over = status.completed_at.is_some_and(|over| self.is_too_long(over));
        status.phase.is_final() && self.removal_is_refused().is_some() && over
    }

    /// The Deorbit is being deleted: remove the freeze, then the finalizer.
    pub(super) fn aborted(&mut self) -> Option<Duration> {
        if !self.snapshot.run.held {
            return None;
        }
        self.availability();
        let run = &self.snapshot.run;
        let nothing = is_thawed(&run.status) || (self.snapshot.cluster.is_err() && !may_be_frozen(run));
        if !nothing && !self.lifted() && !self.is_named_as_debris() {
            return Some(if self.snapshot.cluster.is_ok() { AT_ONCE.max(SOON / 4) } else { LATER });
        }
        let remains = match &self.snapshot.cluster {
            Ok(cluster) => cluster.freeze.any(),
            Err(_) => !nothing,
        };
        let because = match remains {
            true => Reason::FreezeMayRemain { name: self.freeze_name() },
            false => Reason::FreezeRemoved,
        };
        self.step(Act::RemoveFinalizer, because);
        Some(SOON)
    }
}

/// Whether the run is over and its freeze was removed: then nothing of it is in the target, whether that responds or not.
#[must_use]
pub fn is_thawed(status: &DeorbitStatus) -> bool {
    status.phase.is_final() && !frozen_is_unknown(status)
}

/// Whether a freeze of this run may exist in a target that does not respond. It is created from the phase Freeze on, unless
/// spec.freeze is off, and one that was observed exists until it is observed to be gone.
#[must_use]
pub fn may_be_frozen(run: &Run) -> bool {
    let known = frozen_is_unknown(&run.status);
    match run.status.phase {
        phase if phase.is_final() => known,
        phase => phase >= Phase::Freeze && (known || run.spec.freeze != Freeze::None),
    }
}

/// Whether a freeze may exist there.
#[must_use]
pub fn frozen_is_unknown(status: &DeorbitStatus) -> bool {
    use common::conditions::Status;
    let frozen = status.conditions.iter().find(|condition| condition.kind == "Frozen");
    frozen.is_some_and(|condition| condition.status != Status::False)
}
