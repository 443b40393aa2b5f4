//! The work of each phase, and the next phase.

use std::time::Duration;

use common::api::deorbit::{Debris, Kind, Leftovers, OnTimeout, Phase};

use super::action::Act;
use super::outlook::{self, Left, is_over};
use super::reason::Reason;
use super::{LATER, Planner, SOON, conditions, deletion, found, inventory, leftovers, sweep};
use crate::observe::snapshot::{Cluster, DoubtfulRoute, key};

/// How many entries of debris a status shows: with these it stays far below etcd's limit, and more is not readable.
pub const SHOWN_DEBRIS: usize = 200;

impl Planner<'_> {
    /// The work of the stored phase, and the next phase when that is done.
    pub(super) fn forward(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        if self.is_refused() {
            self.count_left(false);
            return Some(LATER);
        }
        if !run.held {
            self.step(Act::AddFinalizer, Reason::RunStarted);
            return Some(Duration::ZERO);
        }
        if run.status.phase == Phase::Pending {
            return self.go(Phase::Inventory);
        }
        let cloud_is_known = !matches!(self.snapshot.cloud, Some(Err(_)));
        let mut found_now = Vec::new();
        match &self.snapshot.cluster {
            // The freeze is being removed: what is created from now on does not belong to this run.
            Ok(_) if self.is_ending() => {}
            Ok(cluster) => {
                found_now = found::found(self.settings, run, cluster, self.cloud());
                // While OpenStack does not respond it is unknown what it marks as kept: then nothing is decided.
                if cloud_is_known || run.status.phase == Phase::Inventory {
                    self.records = inventory::merge(&self.records, &found_now);
                    inventory::disown(&mut self.records, &found_now, cluster);
                }
            }
            Err(_) => {}
        }
        if let Some(cloud) = self.cloud() {
            inventory::name_late(&mut self.records, &run.spec.cluster_name, cloud);
            inventory::record_seen(&mut self.records, cloud);
        }
        if self.outage_is_over_limit() && !run.spec.dry_run {
            return self.unavailable();
        }
        if self.hangs() {
            return self.finish();
        }
        let Ok(cluster) = &self.snapshot.cluster else {
            self.count_left(false);
            return Some(LATER);
        };
        if !cloud_is_known {
            self.count_left(false);
            return Some(LATER);
        }
        if self.is_ending() {
            return self.finish();
        }
        if run.status.phase > Phase::Freeze {
            for (act, because) in deletion::steps(run, &run.records, cluster, &found_now) {
                self.step(act, because);
            }
        }
        // In a large cluster these are megabytes, and the rest needs only the records.
        drop(found_now);
        match run.status.phase {
            Phase::Pending | Phase::Inventory => self.inventory(),
            Phase::Freeze => self.freeze(cluster),
            Phase::Delete => self.delete(),
            Phase::Wait => self.wait(cluster),
            Phase::Verify => self.verify(false),
            Phase::Sweep => self.sweep(false),
            Phase::Routes => self.routes(),
            Phase::Complete | Phase::CompletedWithDebris | Phase::Failed => None,
        }
    }

    /// The end was decided, and only the freeze is still to be removed.
    fn is_ending(&self) -> bool {
        self.snapshot.run.status.completed_at.is_some()
    }

    fn hangs(&self) -> bool {
        let limit = self.snapshot.run.spec.timeouts.hang.duration();
        self.status.started_at.is_some_and(|since| is_over(since, limit, self.now))
    }

    fn inventory(&mut self) -> Option<Duration> {
        self.status.inventory.taken = true;
        self.status.inventory.cluster =
            self.snapshot.cluster.as_ref().ok().and_then(|cluster| cluster.uid.clone());
        self.status.inventory.project = self.cloud().map(|cloud| cloud.project.clone());
        // It is reported now and not only at the end; a dry run has no other time.
        if let (Some(asked), Some(why)) = (
            &self.snapshot.run.spec.resources.routes,
            self.cloud().and_then(|cloud| cloud.routes_unread.as_ref()),
        ) {
            self.find(Reason::RoutesUnknown { router: asked.router_id.clone(), why: why.clone() });
        }
        if self.cloud().is_some() && inventory::shows_nothing(&self.records) {
            self.find(Reason::NothingFoundInCloud);
        }
        if self.snapshot.run.spec.dry_run {
            // It stays in this phase: a dry run must not look like a finished clean-up.
            self.status.remaining = count(self.records.iter().filter(|record| record.kept.is_none()).count());
            return None;
        }
        self.count_left(false);
        self.go(Phase::Freeze)
    }

    pub(super) fn start(&mut self) -> Option<Duration> {
        self.status.started_at = Some(self.now);
        self.go(Phase::Delete)
    }

    fn delete(&mut self) -> Option<Duration> {
        let all_asked = {
            let left = outlook::left(self.snapshot, &self.records, false, self.now);
            self.status.remaining = count(left.len());
            left.iter().all(|one| !one.outlook.untouched || one.outlook.refused || one.outlook.stuck)
        };
        if all_asked { self.go(Phase::Wait) } else { Some(SOON / 4) }
    }

    fn wait(&mut self, cluster: &Cluster) -> Option<Duration> {
        let stale = conditions::stale(cluster, self.now);
        let take_over = !stale.is_empty() && self.snapshot.run.spec.leftovers == Leftovers::Delete;
        if !stale.is_empty() && !take_over {
            for lease in stale {
                self.find(Reason::CleanerNotRunning { lease });
            }
        }
        let done = {
            let left = outlook::left(self.snapshot, &self.records, false, self.now);
            self.status.remaining = count(left.len());
            left.iter().all(|one| {
                !one.outlook.in_cluster || one.outlook.stuck || (take_over && !one.outlook.untouched)
            })
        };
        if done { self.go(Phase::Verify) } else { Some(SOON) }
    }

    fn verify(&mut self, given_up: bool) -> Option<Duration> {
        let done = self.take_leftovers(given_up) && self.grace_is_over();
        if done { self.go(Phase::Sweep) } else { Some(SOON) }
    }

    /// Deletes by ID what may be deleted. True: nothing more will be deleted.
    fn take_leftovers(&mut self, given_up: bool) -> bool {
        let run = &self.snapshot.run;
        let (steps, remaining, done) = {
            let left = outlook::left(self.snapshot, &self.records, given_up, self.now);
            let steps = match self.cloud() {
                Some(cloud) if run.spec.leftovers == Leftovers::Delete => {
                    leftovers::steps(self.snapshot, cloud, &left, self.now)
                }
                _ => Vec::new(),
            };
            (steps, left.len(), left.iter().all(|one| one.outlook.stuck))
        };
        for (act, because) in steps {
            self.step(act, because);
        }
        self.status.remaining = count(remaining);
        done
    }

    /// Without credentials, or without an ID, load balancers cannot be verified: they get some time after the last Service is gone.
    fn grace_is_over(&self) -> bool {
        let run = &self.snapshot.run;
        let blind = self.snapshot.cloud.is_none();
        let any = self.records.iter().any(|record| {
            record.kind == Kind::LoadBalancer && record.kept.is_none() && (blind || record.id.is_none())
        });
        let limit = run.spec.timeouts.load_balancer_grace.duration();
        !any || run.status.phase_since.is_some_and(|since| is_over(since, limit, self.now))
    }

    fn sweep(&mut self, given_up: bool) -> Option<Duration> {
        let run = &self.snapshot.run;
        let Some(cloud) = self.cloud().filter(|_| run.spec.sweep && !inventory::shows_nothing(&self.records))
        else {
            return self.go(Phase::Routes);
        };
        let swept = sweep::found(run, &self.records, cloud);
        if !swept.is_empty() {
            self.records.extend(swept.into_iter().map(|one| one.record));
            return Some(Duration::ZERO);
        }
        // The first reconciliation of this phase has no lists yet.
        let done = self.take_leftovers(given_up) && cloud.whole;
        if done { self.go(Phase::Routes) } else { Some(SOON) }
    }

    fn routes(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        if let (Some(asked), Some(cloud)) = (&run.spec.resources.routes, self.cloud()) {
            let limit = run.spec.timeouts.per_object.duration();
            let over = run.status.phase_since.is_some_and(|since| is_over(since, limit, self.now));
            if let (Some(why), false) = (&cloud.routes_unread, over) {
                self.find(Reason::RoutesUnknown { router: asked.router_id.clone(), why: why.clone() });
                return Some(LATER);
            }
            if !cloud.routes.is_empty() && !over {
                let act = Act::RemoveRoutes { asked: asked.clone(), routes: cloud.routes.clone() };
                self.step(act, Reason::Requested);
                return Some(SOON);
            }
        }
        // Something was created after the wait for the rest.
        let fresh = outlook::left(self.snapshot, &self.records, false, self.now)
            .iter()
            .any(|one| one.outlook.untouched && !one.outlook.refused);
        if fresh { self.go(Phase::Wait) } else { self.finish() }
    }

    /// A server has not responded for too long. Where leftovers are deleted, OpenStack can still be cleaned by the recorded IDs.
    fn unavailable(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        let can_clean = self.cloud().is_some()
            && run.spec.leftovers == Leftovers::Delete
            && run.status.inventory.taken
            && !run.spec.dry_run;
        if !can_clean || self.is_ending() {
            return self.finish();
        }
        match run.status.phase {
            Phase::Verify if self.take_leftovers(true) => self.go(Phase::Sweep),
            Phase::Verify => Some(SOON),
            Phase::Sweep => self.sweep(true),
            // Next hops are known to OpenStack only.
            Phase::Routes => self.routes(),
            _ => {
                self.status.started_at = self.status.started_at.or(Some(self.now));
                self.go(Phase::Verify)
            }
        }
    }

    fn count_left(&mut self, given_up: bool) {
        let left = outlook::left(self.snapshot, &self.records, given_up, self.now).len();
        self.status.remaining = count(left);
    }

    /// The end: clean, or with a list of what is left. The freeze is removed before.
    fn finish(&mut self) -> Option<Duration> {
        let over = *self.status.completed_at.get_or_insert(self.now);
        if !self.lifted() && (self.removal_is_refused().is_none() || !self.is_too_long(over)) {
            // One that stays has another program's finalizer. It is waited for, however long: a freeze must not be left behind.
            return Some(if is_over(over, LATER, self.now) { LATER } else { SOON / 4 });
        }
        let mut debris = self.debris();
        let nothing_recorded = debris.is_empty();
        debris.extend(self.freeze_left().map(|why| entry("Freeze", self.freeze_name(), why)));
        if !self.status.inventory.taken {
            let why = "it was never read whole, so there may be more than is listed".to_owned();
            debris.push(entry("Cluster", self.snapshot.run.spec.cluster_name.clone(), why));
        } else if let (Some(Err(why)), true) = (&self.snapshot.cloud, nothing_recorded) {
            // In an outage each record is listed; without records, it must not look like a clean end.
            let why = format!("what is left there is unknown: {why}");
            debris.push(entry("OpenStack", self.snapshot.run.spec.cluster_name.clone(), why));
        }
        self.status.remaining = count(debris.len());
        self.status.debris_count = count(debris.len());
        if let Some(first) = debris.first() {
            let (kind, first) = (first.kind.clone(), first.id.as_ref().unwrap_or(&first.name).clone());
            self.find(Reason::DebrisLeft { count: debris.len(), kind, first });
        }
        let phase = match (debris.is_empty(), self.snapshot.run.spec.on_timeout) {
            (true, _) => Phase::Complete,
            (false, OnTimeout::Release) => Phase::CompletedWithDebris,
            (false, OnTimeout::Block) => Phase::Failed,
        };
        debris.truncate(SHOWN_DEBRIS);
        self.status.debris = debris;
        self.go(phase);
        // One more reconciliation after the end, in case a freeze came back.
        Some(SOON)
    }

    fn debris(&self) -> Vec<Debris> {
        let mut debris: Vec<Debris> =
            outlook::left(self.snapshot, &self.records, self.outage_is_over_limit(), self.now)
                .iter()
                .map(Left::debris)
                .collect();
        if let (Some(asked), Some(cloud)) = (&self.snapshot.run.spec.resources.routes, self.cloud()) {
            if let Some(why) = &cloud.routes_unread {
                let why = format!("its routes are not known: {why}");
                debris.push(entry("Router", asked.router_id.clone(), why));
            }
            for route in &cloud.routes {
                let why = self.snapshot.failures.get(&key("Routes", &asked.router_id));
                let why = why.cloned().unwrap_or_else(|| "it is still there".to_owned());
                debris.push(entry("Route", route.to_string(), why));
            }
            for DoubtfulRoute { route, why } in &cloud.doubtful_routes {
                let why = format!("its next hop may still exist: {why}");
                debris.push(entry("Route", route.to_string(), why));
            }
        }
        debris.extend(self.unchecked());
        debris
    }

    /// Debris entries for the routes and the sweep that the spec asks for and the run did not reach before it ended:
    /// their resources must not be reported as gone.
    fn unchecked(&self) -> Vec<Debris> {
        let run = &self.snapshot.run;
        if run.spec.dry_run {
            return Vec::new();
        }
        let phase = run.status.phase;
        let why = match &self.snapshot.cloud {
            Some(Err(why)) => format!("OpenStack cannot be read: {why}"),
            _ => "the run ended before".to_owned(),
        };
        let shows_nothing = self.cloud().is_some() && inventory::shows_nothing(&self.records);
        let mut out = Vec::new();
        let routes_read = self.cloud().is_some() && matches!(phase, Phase::Inventory | Phase::Routes);
        if let (Some(asked), false) = (&run.spec.resources.routes, routes_read) {
            let why = format!("its routes were not read: {why}");
            out.push(entry("Router", asked.router_id.clone(), why));
        }
        let swept = match phase {
            Phase::Sweep => self.cloud().is_some_and(|cloud| {
                // Resources that are found in this reconciliation are not recorded yet.
                cloud.whole && sweep::found(run, &self.records, cloud).is_empty()
            }),
            phase => phase > Phase::Sweep,
        };
        if run.spec.sweep && (!swept || shows_nothing) {
            let why = if shows_nothing { inventory::SHOWS_NOTHING.to_owned() } else { why };
            let why = format!("the sweep was not done: {why}");
            out.push(entry("Cluster", run.spec.cluster_name.clone(), why));
        }
        out
    }
}

fn entry(kind: &str, name: String, reason: String) -> Debris {
    Debris { kind: kind.to_owned(), id: None, name, namespace: String::new(), reason }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
