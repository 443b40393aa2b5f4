//! Pure: the actions of one reconciliation of one Deorbit, and its next status. No IO, no clock.
//!
//! A plan depends on the phase and the records that are *stored*. The next status, bookkeeping and records are written before the steps
//! are executed. So each ID is stored before its resource is deleted, wherever the process stops.
//!
//! * `machine`: the table of the phases. `ending`, `block`: the end, and the block of new objects.
//! * `found` (what belongs to the cluster) → `inventory` (records) → `deletion` | `orphans` | `discovery` (steps).
//! * `routes`: of the pod networks. `credential`: of the login, at the end.
//! * `presence` (what is known of one resource) → `outlook` (what is left) → `conditions`.

pub mod action;
pub mod block;
pub mod conditions;
pub mod credential;
pub mod deletion;
pub mod discovery;
pub mod ending;
pub mod found;
pub mod inventory;
pub mod machine;
pub mod orphans;
pub mod outlook;
pub mod presence;
pub mod preview;
pub mod reason;
pub mod routes;
pub mod sharing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{DeorbitStatus, Kind};
use common::plan::{Plan, Regarding};
use jiff::Timestamp;

pub use self::action::{Act, Action};
pub use self::ending::resting;
use self::found::Found;
use self::outlook::Left;
pub use self::reason::Reason;
use crate::observe::snapshot::{Cloud, Run, Snapshot, Unread};
use crate::record::{Book, Recorded};
use crate::settings::Settings;

/// The decision of one reconciliation.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Actions, all of which are tried after the status is stored.
    pub plan: Plan<Action>,
    /// The new status.
    pub status: DeorbitStatus,
    /// The new bookkeeping.
    pub book: Book,
    /// All records of the run after this reconciliation.
    pub records: Vec<Arc<Recorded>>,
    /// The resources that are left to delete.
    pub tally: Tally,
    /// When to reconcile again; None: when the Deorbit changes.
    pub requeue_after: Option<Duration>,
}

/// How many records are left, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that still exist.
    pub remaining: BTreeMap<Kind, usize>,
    /// Of all kinds.
    pub total: usize,
    /// Those of them that are only reported.
    pub reported: usize,
    /// Those that take too long.
    pub overdue: usize,
    /// The first of those, with the reason.
    pub first_overdue: Option<String>,
}

impl Tally {
    fn of(left: &[Left<'_>]) -> Tally {
        let mut tally = Tally { total: left.len(), ..Tally::default() };
        for one in left {
            *tally.remaining.entry(one.record.kind).or_default() += 1;
            tally.reported += usize::from(one.reported);
            if one.overdue && !one.reported {
                tally.overdue += 1;
                tally.first_overdue.get_or_insert_with(|| {
                    let id = one.record.id.as_deref().unwrap_or(&one.record.name);
                    format!("{} {id}: {}", one.record.kind, one.why)
                });
            }
        }
        tally
    }
}

/// While resources are being deleted: a user waits at most 5 s longer than necessary.
pub const SOON: Duration = Duration::from_secs(2);
/// While a server does not respond, or nothing is expected to change soon.
pub const LATER: Duration = Duration::from_secs(10);
/// After the end, while a block may exist in a cluster that does not respond.
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
    about: Arc<Regarding>,
    plan: Plan<Action>,
    status: DeorbitStatus,
    book: Book,
    records: Vec<Arc<Recorded>>,
    tally: Tally,
    /// Why the login is not proven, if the cluster names something that could prove it.
    unproven: Option<Unread>,
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
            // Without records only the status is known, and the limits count from there.
            book: match &run.lost {
                None => run.book.clone(),
                Some(_) => {
                    let since = run.status.start_time;
                    Book { taken: true, clock: since, phase_since: since, ..Book::default() }
                }
            },
            records: run.records.clone(),
            tally: Tally::default(),
            unproven: None,
        }
    }

    fn decide(mut self) -> Decision {
        let run = &self.snapshot.run;
        let requeue_after = match run.deleting {
            Some(since) => self.aborting(since),
            None => {
                self.status.observed_generation = run.generation;
                self.status.trigger = run.trigger;
                self.status.target = target(run);
                let requeue_after = if run.status.phase.is_final() { self.ended() } else { self.running() };
                if !run.status.phase.is_final() {
                    self.summary();
                }
                requeue_after
            }
        };
        conditions::all(&mut self);
        let Planner { plan, status, book, records, tally, .. } = self;
        Decision { plan, status, book, records, tally, requeue_after }
    }

    /// The counts of the status.
    fn summary(&mut self) {
        use self::ending::count;
        self.status.remaining = count(self.tally.total);
        self.status.overdue = count(self.tally.overdue);
        self.status.kept = count(self.records.iter().filter(|record| record.kept.is_some()).count());
        if let (Some(first), false) = (&self.tally.first_overdue, self.status.phase.is_final()) {
            let because = Reason::Overdue { count: self.tally.overdue, first: first.clone() };
            self.find(because);
        }
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

    /// Whether the present phase has lasted so long.
    fn in_phase_for(&self, limit: Duration) -> bool {
        self.book.phase_since.is_some_and(|since| outlook::is_over(since, limit, self.now))
    }

    /// Reports servers that cannot be used, and since when the target has not responded.
    fn availability(&mut self) {
        self.book.unreachable_since = match &self.snapshot.cluster {
            Err(Unread::NoResponse(_)) => Some(self.book.unreachable_since.unwrap_or(self.now)),
            _ => None,
        };
        if let Err(unread) = &self.snapshot.cluster {
            let why = unread.to_string();
            self.find(match unread {
                Unread::ManagementCluster(_) => Reason::TargetIsManagementCluster { why },
                unread if unread.is_outage() => Reason::TargetUnavailable { why },
                _ => Reason::TargetRefused { why },
            });
        }
        if let Some(Err(unread)) = &self.snapshot.cloud {
            let why = unread.to_string();
            let outage = unread.is_outage();
            self.find(if outage { Reason::CloudUnavailable { why } } else { Reason::CloudRefused { why } });
        }
        if let Some(why) = &self.snapshot.run.lost {
            self.find(Reason::RecordsLost { why: why.clone() });
        }
    }

    /// Records what was observed, and what it proves. Returns what the cluster names.
    fn record(&mut self) -> Vec<Found> {
        let run = &self.snapshot.run;
        // The end was decided: what is created from now on does not belong to this run.
        if self.book.over || self.book.lifting || run.lost.is_some() || run.protected {
            return Vec::new();
        }
        let mut found = Vec::new();
        if let Ok(cluster) = &self.snapshot.cluster {
            found = found::found(self.settings, run, cluster, self.cloud());
            // While OpenStack does not respond it is unknown what it keeps: then nothing is decided.
            let is_known = !matches!(self.snapshot.cloud, Some(Err(_)));
            if is_known || run.status.phase <= common::api::deorbit::Phase::Inventory {
                // From the first record on, no other cluster is cleaned up in its place.
                self.book.cluster = self.book.cluster.take().or_else(|| cluster.uid.clone());
                self.records = inventory::merge(&self.records, &found, is_known);
                inventory::disown(&mut self.records, &found, cluster, run.spec.provider);
            }
        }
        if let Some(cloud) = self.cloud() {
            inventory::name_late(&mut self.records, &run.spec.cluster_name, cloud);
            inventory::record_seen(&mut self.records, cloud);
            inventory::prove(&mut self.book.proof, run, &self.records, cloud);
            if self.book.proof.any() {
                self.book.bind(cloud);
            }
            let cluster = self.snapshot.cluster.as_ref().ok();
            self.unproven = inventory::unproven(&self.book.proof, run, &self.records, cluster, cloud);
            if let Some(unread) = &self.unproven {
                let why = unread.to_string();
                self.find(Reason::LoginNotProven { why });
            }
        }
        found
    }
}

/// The cluster of a run, for a person.
fn target(run: &Run) -> String {
    match (&run.target, &run.spec.kubeconfig) {
        (Some(target), _) => target.clone(),
        (None, Some(kubeconfig)) => format!("Secret {}", kubeconfig.secret_ref.name),
        (None, None) if run.spec.in_cluster => "inCluster".to_owned(),
        (None, None) => run.spec.cluster_name.clone(),
    }
}

#[cfg(test)]
mod tests;
