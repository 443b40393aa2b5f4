//! The end of a run: clean, or with a list of what is left; and what happens to a Deorbit that has ended.

use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{Debris, OnTimeout, Phase, Trigger};
use common::plan::Plan;
use jiff::Timestamp;

use super::machine::is_retried;
use super::outlook::{self, Left, is_over};
use super::reason::Reason;
use super::{Act, Action, Decision, LATER, Planner, SELDOM, Tally, action, presence};
use crate::observe::snapshot::Run;
use crate::record::Book;

/// How many entries of debris a status shows: with these it stays far below etcd's limit, and more is not readable.
pub const SHOWN_DEBRIS: usize = 200;

/// A Deorbit that a binding or the hook created stays so long, whatever its TTL: they read its result first.
const READ_BY_TRIGGER: i64 = 5 * 60;

impl Planner<'_> {
    /// Lists what is left, and ends the run.
    pub(super) fn end(&mut self) -> Option<Duration> {
        let mut debris = self.debris();
        let phase = match (debris.is_empty(), self.snapshot.run.spec.on_timeout) {
            (true, _) | (false, OnTimeout::Release) => Phase::Succeeded,
            (false, OnTimeout::Block) => Phase::Failed,
        };
        if self.snapshot.run.deletes_credential()
            && phase == Phase::Succeeded
            && let Some(wait) = self.delete_credential(&mut debris)
        {
            return Some(wait);
        }
        self.finish(phase, debris)
    }

    /// Ends the run in this phase, with this left.
    pub(super) fn finish(&mut self, phase: Phase, mut debris: Vec<Debris>) -> Option<Duration> {
        if let Some(first) = debris.first() {
            let (kind, first) = (first.kind.clone(), first.id.as_ref().unwrap_or(&first.name).clone());
            self.find(Reason::DebrisLeft { count: debris.len(), kind, first });
        }
        self.status.debris_count = count(debris.len());
        debris.truncate(SHOWN_DEBRIS);
        self.status.debris = debris;
        self.status.completion_time = Some(self.now);
        self.book.limits = Book::limits_of(&self.snapshot.run.spec);
        self.book.discovering = false;
        self.go(phase)
    }

    fn debris(&self) -> Vec<Debris> {
        let run = &self.snapshot.run;
        if let Some(why) = &run.lost {
            return vec![entry("Records", run.status.records.clone(), why.clone())];
        }
        let left = outlook::left(self.snapshot, &self.book, &self.records, self.is_target_gone(), self.now);
        let mut debris: Vec<Debris> = left.iter().map(Left::debris).collect();
        let nothing_recorded = debris.is_empty();
        let cluster = || run.spec.cluster_name.clone();
        debris.extend(self.routes_left());
        if run.spec.discover_by_cluster_name && !self.book.discovered {
            let why = if self.book.proof.any() { "the run ended before" } else { presence::NOT_PROVEN };
            let why = format!("nothing was searched by its name: {why}");
            debris.push(entry("Cluster", cluster(), why));
        }
        if run.spec.cluster_survives {
            debris.extend(self.block_left().map(|why| entry("CreationBlock", self.block_name(), why)));
        }
        if !self.book.taken {
            let why = "the run has not read it whole, so there may be more than is listed".to_owned();
            debris.push(entry("Cluster", cluster(), why));
        } else if let (Some(Err(why)), true) = (&self.snapshot.cloud, nothing_recorded) {
            // Without records it must not look like a clean end.
            debris.push(entry("OpenStack", cluster(), format!("what is left there is unknown: {why}")));
        }
        debris
    }

    /// A run that is over.
    pub(super) fn ended(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        if is_retried(run) {
            self.book.clock = Some(self.now);
            (self.book.unreachable_since, self.book.block_refused_since) = (None, None);
            (self.book.over, self.book.lifting, self.book.discovered) = (false, false, false);
            self.status.completion_time = None;
            self.status.debris.clear();
            self.status.debris_count = 0;
            return self.go(Phase::Inventory);
        }
        let expires_in = expires_in(run, self.now);
        if expires_in.is_some_and(|wait| wait.is_zero()) {
            self.step(Act::DeleteDeorbit, Reason::Expired);
            return Some(LATER);
        }
        if !run.spec.cluster_survives {
            return expires_in;
        }
        match &self.snapshot.cluster {
            Ok(cluster) if cluster.block.any() => {
                self.step(self.lift(cluster), Reason::ClusterSurvives);
                Some(LATER)
            }
            Ok(_) => expires_in,
            Err(_) => Some(SELDOM),
        }
    }
}

/// Until when a Deorbit that has ended stays. None: as long as the user does not delete it.
fn expires_in(run: &Run, now: Timestamp) -> Option<Duration> {
    let ttl = run.spec.ttl_seconds_after_finished?;
    let is_triggered = run.trigger != Trigger::Manual;
    // A deleted one would be created again at once, and would fail again. A protected one is left alone, with its block.
    if run.protected || (is_triggered && run.status.phase == Phase::Failed) {
        return None;
    }
    let ttl = if is_triggered { ttl.max(READ_BY_TRIGGER) } else { ttl };
    let ttl = Duration::from_secs(u64::try_from(ttl).unwrap_or_default());
    let ended = run.status.completion_time?;
    let passed = Duration::try_from(now.duration_since(ended)).unwrap_or_default();
    Some(if is_over(ended, ttl, now) { Duration::ZERO } else { ttl.saturating_sub(passed) })
}

/// The decision for a Deorbit that needs no server: it has ended and leaves nothing to do, a dry run is done, or it belongs to another
/// version of deorbiter. None: its cluster has to be read.
#[must_use]
pub fn resting(run: &Run, now: Timestamp) -> Option<Decision> {
    let (mut plan, mut requeue_after) = (Plan::default(), None);
    if run.status.phase == Phase::Unknown && run.deleting.is_none() {
        plan.problem(action::regarding(run), Reason::UnknownPhase);
    } else {
        let is_settled = run.status.observed_generation == run.generation;
        let is_over = match run.status.phase {
            Phase::Planned => run.spec.dry_run,
            phase => phase.is_final() && !is_retried(run),
        };
        let may_be_blocked = run.spec.cluster_survives && super::block::may_exist(run);
        if run.deleting.is_some() || !is_settled || !is_over || may_be_blocked {
            return None;
        }
        requeue_after = run.status.phase.is_final().then(|| expires_in(run, now)).flatten();
        if requeue_after.is_some_and(|wait| wait.is_zero()) {
            let action = Action { run: Arc::new(action::regarding(run)), act: Act::DeleteDeorbit };
            plan.step(action, Reason::Expired);
            requeue_after = Some(LATER);
        }
    }
    let (status, book, records) = (run.status.clone(), run.book.clone(), run.records.clone());
    Some(Decision { plan, status, book, records, tally: Tally::default(), requeue_after })
}

pub(super) fn entry(kind: &str, name: String, reason: String) -> Debris {
    Debris { kind: kind.to_owned(), id: None, name, namespace: String::new(), reason }
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
