//! The conditions of a Deorbit.

use std::sync::Arc;

use common::api::deorbit::{DeorbitStatus, Phase, Recorded};
use common::conditions::{self, Condition, Seen, Status};
use jiff::Timestamp;

use super::{inventory, may_be_frozen, outlook};
use crate::observe::snapshot::{Cleaner, Cluster, Snapshot, Unread};

/// A Lease that was not renewed for so many of its durations is stale: another replica would have acquired it long ago.
const DURATIONS: i64 = 4;
/// Clocks of different machines differ: a younger Lease is never stale.
const LEAST_STALE_SECONDS: i64 = 60;

/// Names of the controllers that do not renew their Leases. A controller without a Lease is unknown.
#[must_use]
pub fn stale(cluster: &Cluster, now: Timestamp) -> Vec<String> {
    let is_stale = |cleaner: &&Cleaner| {
        cleaner.renewed.is_some_and(|renewed| {
            now.duration_since(renewed).as_secs() > (cleaner.seconds * DURATIONS).max(LEAST_STALE_SECONDS)
        })
    };
    cluster.cleaners.iter().filter(is_stale).map(|cleaner| cleaner.name.clone()).collect()
}

/// Whether `TargetReachable` or `CloudReachable` reports a refusal, and not an outage.
#[must_use]
pub fn is_refusal(condition: &Condition) -> bool {
    condition.status == Status::False && condition.reason != Unread::OUTAGE
}

/// Sets one.
pub fn set(
    status: &mut DeorbitStatus,
    generation: Option<i64>,
    now: Timestamp,
    what: (&'static str, Status),
    reason: &'static str,
    message: impl Into<String>,
) {
    let (kind, holds) = what;
    let seen = Seen { kind, status: holds, observed_generation: generation, reason, message: message.into() };
    conditions::set(&mut status.conditions, seen, now);
}

/// The conditions that depend on what was observed, not on the phase.
pub fn observed(status: &mut DeorbitStatus, snapshot: &Snapshot, now: Timestamp) {
    let generation = snapshot.run.generation;
    let mut say = |what, reason, message: String| set(status, generation, now, what, reason, message);
    match &snapshot.cluster {
        Ok(cluster) => {
            say(("TargetReachable", Status::True), "Read", "the target cluster was read".into());
            let stale = stale(cluster, now);
            if cluster.cleaners.is_empty() {
                say(
                    ("CleanerNotRunning", Status::Unknown),
                    "NoLease",
                    "neither the cloud controller manager nor the CSI driver has a Lease".into(),
                );
            } else if stale.is_empty() {
                say(("CleanerNotRunning", Status::False), "Renewed", "they renew their Leases".into());
            } else {
                let message = format!("{} no longer renews its Lease", stale.join(", "));
                say(("CleanerNotRunning", Status::True), "Stale", message);
            }
            if cluster.freeze.any() {
                say(
                    ("Frozen", Status::True),
                    "InPlace",
                    "new claims, snapshots and load balancers are refused".into(),
                );
            } else {
                say(("Frozen", Status::False), "NotInPlace", "nothing is refused".into());
            }
        }
        Err(why) => {
            say(("TargetReachable", Status::False), why.reason(), why.to_string());
            // An outage does not set Frozen to Unknown if there was never a freeze, or if it was removed before the
            // end.
            if snapshot.run.held && may_be_frozen(&snapshot.run) {
                say(("Frozen", Status::Unknown), "Unavailable", "the target cluster cannot be read".into());
            }
        }
    }
    match &snapshot.cloud {
        None => say(
            ("CloudReachable", Status::Unknown),
            "NoCredentials",
            "spec.openstack is not given: nothing can be proven".into(),
        ),
        Some(Ok(_)) => say(("CloudReachable", Status::True), "Read", "OpenStack was read".into()),
        Some(Err(why)) => say(("CloudReachable", Status::False), why.reason(), why.to_string()),
    }
    if snapshot.run.protected {
        let message = format!("nothing is done while it carries {}", crate::names::PROTECT);
        say(("Protected", Status::True), "Annotation", message);
    } else if status.conditions.iter().any(|condition| condition.kind == "Protected") {
        set(status, generation, now, ("Protected", Status::False), "NoAnnotation", "");
    }
}

/// The condition Complete, and whether everything was verified.
pub fn complete(status: &mut DeorbitStatus, snapshot: &Snapshot, records: &[Arc<Recorded>], now: Timestamp) {
    let (generation, dry_run) = (snapshot.run.generation, snapshot.run.spec.dry_run);
    let (remaining, debris) = (status.remaining, status.debris_count);
    let (what, reason, message) = match status.phase {
        _ if dry_run => {
            (Status::False, "DryRun", "a dry run deletes nothing and is never complete".to_owned())
        }
        Phase::Complete => (Status::True, "Complete", "everything is gone".to_owned()),
        Phase::CompletedWithDebris => (
            Status::True,
            "CompletedWithDebris",
            format!("released with {debris} left; status.debris lists them"),
        ),
        Phase::Failed => (Status::False, "Failed", format!("{debris} left, and spec.onTimeout is Block")),
        phase => (Status::False, word(phase), format!("{remaining} remaining")),
    };
    set(status, generation, now, ("Complete", what), reason, message);
    if dry_run {
        let (what, reason, message) = match status.inventory.taken {
            true => {
                let message = format!("{remaining} would be deleted; status.inventory lists them");
                (Status::True, "InventoryTaken", message)
            }
            false => (Status::False, word(status.phase), "the inventory is not taken yet".to_owned()),
        };
        set(status, generation, now, ("Planned", what), reason, message);
    }
    // Clean is set only when the run reaches a final phase: a resource that was verified then stays verified.
    if status.phase.is_final() && !snapshot.run.status.phase.is_final() {
        let (what, reason, message) = match status.phase {
            Phase::Complete if is_proven(snapshot, records) => (Status::True, "Proven", "0 left".to_owned()),
            Phase::Complete => {
                let why = match snapshot.cloud {
                    None => "the cluster has nothing left; OpenStack was not read",
                    Some(_) => "the cluster has nothing left; not everything could be verified in OpenStack",
                };
                (Status::Unknown, "NotProven", why.to_owned())
            }
            _ => (Status::False, "NotClean", format!("{debris} left")),
        };
        set(status, generation, now, ("Clean", what), reason, message);
    }
}

/// Whether everything was read from OpenStack, with a login that has shown something of the cluster.
fn is_proven(snapshot: &Snapshot, records: &[Arc<Recorded>]) -> bool {
    let Some(Ok(cloud)) = &snapshot.cloud else { return false };
    let cluster = &snapshot.run.spec.cluster_name;
    let went: Vec<_> = records.iter().filter(|record| record.kept.is_none()).collect();
    let certain = |record: &Recorded| {
        inventory::is_searched(record, cluster, cloud)
            && !outlook::is_shared_unverifiably(record, cloud)
            && !outlook::is_known_to_the_cluster_only(record)
    };
    let shown = went.iter().any(|record| record.seen) && inventory::is_own_project(records);
    went.iter().all(|record| certain(record)) && (went.is_empty() || shown)
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Inventory => "Inventory",
        Phase::Freeze => "Freeze",
        Phase::Delete => "Delete",
        Phase::Wait => "Wait",
        Phase::Verify => "Verify",
        Phase::Sweep => "Sweep",
        Phase::Routes => "Routes",
        Phase::Complete => "Complete",
        Phase::CompletedWithDebris => "CompletedWithDebris",
        Phase::Failed => "Failed",
    }
}
