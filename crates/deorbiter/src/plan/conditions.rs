//! The conditions of a Deorbit: Complete and Failed as those of a Job; Ready, Reconciling and Stalled for kstatus; and what was observed.

use common::api::deorbit::{DeorbitStatus, Kind, Phase, Provider};
use common::conditions::{self, Condition, Seen, Status};
use jiff::Timestamp;

use super::presence::{Presence, presence};
use super::{Planner, block};
use crate::observe::snapshot::{self, Cluster, Snapshot, Unread};

/// A Lease that was not renewed for so many of its durations is stale: another replica would have acquired it long ago.
const DURATIONS: i64 = 4;
/// Clocks of different machines differ: a younger Lease is never stale.
const LEAST_STALE_SECONDS: i64 = 60;

/// Names of the controllers that do not renew their Leases. A controller without a Lease is unknown.
#[must_use]
pub fn stopped(cluster: &Cluster, now: Timestamp) -> Vec<String> {
    let is_stale = |provider: &&snapshot::Provider| {
        provider.renewed.is_some_and(|renewed| {
            now.duration_since(renewed).as_secs() > (provider.seconds * DURATIONS).max(LEAST_STALE_SECONDS)
        })
    };
    cluster.providers.iter().filter(is_stale).map(|provider| provider.name.clone()).collect()
}

/// The status of a stored condition.
#[must_use]
pub fn status_of(status: &DeorbitStatus, kind: &str) -> Option<Status> {
    status.conditions.iter().find(|one| one.kind == kind).map(|one| one.status)
}

/// Whether `TargetReachable` or `CloudReachable` reports a refusal, and not an outage.
#[must_use]
pub fn is_refusal(condition: &Condition) -> bool {
    condition.status == Status::False && !is_outage(condition)
}

/// Whether `TargetReachable` or `CloudReachable` reports an outage.
#[must_use]
pub fn is_outage(condition: &Condition) -> bool {
    condition.status == Status::False && Unread::OUTAGES.contains(&condition.reason.as_str())
}

/// One condition: type, status, reason and message.
type Word = (&'static str, Status, &'static str, String);

/// Sets all conditions.
pub(super) fn all(planner: &mut Planner<'_>) {
    let run = &planner.snapshot.run;
    let mut words = Vec::new();
    // A Deorbit that has ended is read only where its block is to be lifted.
    words.extend(block_word(planner));
    if run.deleting.is_none() && !run.status.phase.is_final() {
        words.extend(observed(planner));
        words.extend(progress(planner));
    } else if planner.status.phase == Phase::Aborting {
        words.extend(progress(planner));
    }
    for (kind, status, reason, message) in words {
        let seen = Seen { kind, status, observed_generation: run.generation, reason, message };
        conditions::set(&mut planner.status.conditions, seen, planner.now);
    }
}

fn block_word(planner: &Planner<'_>) -> Option<Word> {
    let run = &planner.snapshot.run;
    let (status, reason, message) = match &planner.snapshot.cluster {
        Ok(cluster) if cluster.block.any() => {
            let message = "new claims, snapshots and load balancers are refused until the Deorbit is deleted";
            (Status::True, "InPlace", message)
        }
        Ok(cluster) if cluster.block.forbidden && run.desires_block() => {
            let message = "nothing is refused: the target's admission objects may not be read";
            (Status::False, block::FORBIDDEN, message)
        }
        Ok(_) => (Status::False, "NotInPlace", "nothing is refused"),
        // An outage does not set it to Unknown if there was never a block.
        Err(_) if run.held && block::may_exist(run) => {
            (Status::Unknown, "Unavailable", "the target cluster cannot be read")
        }
        Err(_) => return None,
    };
    Some(("CreationBlocked", status, reason, message.to_owned()))
}

/// The conditions that depend on what was observed, not on the phase.
fn observed(planner: &Planner<'_>) -> Vec<Word> {
    let Snapshot { run, cluster, cloud, .. } = planner.snapshot;
    let mut words = Vec::new();
    match cluster {
        Ok(_) if run.spec.cluster_gone.is_some() => {
            let message = "spec.clusterGone is given: the cluster is not read".to_owned();
            words.push(("TargetReachable", Status::Unknown, "ClusterGone", message));
        }
        Ok(cluster) => {
            words.push(("TargetReachable", Status::True, "Read", "the target cluster was read".to_owned()));
            let stopped = stopped(cluster, planner.now);
            words.push(if cluster.providers.is_empty() {
                let message = "neither the cloud controller manager nor a CSI driver has a Lease".to_owned();
                ("ProvidersHealthy", Status::Unknown, "NoLease", message)
            } else if stopped.is_empty() {
                ("ProvidersHealthy", Status::True, "Renewed", "they renew their Leases".to_owned())
            } else {
                let message = format!("{} no longer renews its Lease", stopped.join(", "));
                ("ProvidersHealthy", Status::False, "Stale", message)
            });
        }
        Err(why) => words.push(("TargetReachable", Status::False, why.reason(), why.to_string())),
    }
    words.push(match (cloud, &planner.unproven) {
        (None, _) if run.spec.provider == Provider::Any => {
            let message = "spec.provider is Any: no cloud is read, so nothing is verified in one".to_owned();
            ("CloudReachable", Status::Unknown, "NotRead", message)
        }
        (None, _) => {
            let message = "spec.openstack is not given: nothing can be verified".to_owned();
            ("CloudReachable", Status::Unknown, "NoCredentials", message)
        }
        (Some(Err(Unread::CredentialGone(_))), _) if run.book.credential.is_some() => {
            let message = "the application credential of the login was deleted, as the last".to_owned();
            ("CloudReachable", Status::Unknown, "CredentialDeleted", message)
        }
        (Some(Err(why)), _) | (Some(Ok(_)), Some(why)) => {
            ("CloudReachable", Status::False, why.reason(), why.to_string())
        }
        (Some(Ok(_)), None) => ("CloudReachable", Status::True, "Read", "OpenStack was read".to_owned()),
    });
    if run.protected {
        words.push(("Protected", Status::True, "Annotation", protected()));
    } else if status_of(&run.status, "Protected").is_some() {
        words.push(("Protected", Status::False, "NoAnnotation", String::new()));
    }
    words
}

fn protected() -> String {
    format!("nothing is done while it has the annotation {}", crate::names::PROTECT)
}

/// The conditions that depend on the phase.
fn progress(planner: &Planner<'_>) -> Vec<Word> {
    let (status, run) = (&planner.status, &planner.snapshot.run);
    let (remaining, kept, debris) = (planner.tally.total, status.kept, status.debris_count);
    let left = format!("{debris} left; status.debris lists them");
    let (reason, message) = match status.phase {
        Phase::Succeeded if debris == 0 => {
            let message = match (&planner.snapshot.cloud, run.spec.provider) {
                (Some(_), _) => "everything is gone",
                (None, Provider::OpenStack) => "the cluster has nothing left; OpenStack was not read",
                (None, Provider::Any) => "the cluster has nothing left; no cloud was read",
            };
            ("Complete", message.to_owned())
        }
        Phase::Succeeded => ("CompletedWithDebris", format!("released with {left}")),
        Phase::Failed => ("Failed", format!("{left}, and spec.onTimeout is Block")),
        Phase::Planned => {
            let reported = planner.tally.reported;
            let only = if reported > 0 { format!(", {reported} reported") } else { String::new() };
            let credential = planner.cloud().and_then(|cloud| cloud.credential.as_ref());
            let last = match credential.filter(|_| run.deletes_credential()) {
                Some(one) => format!(", and last the application credential {}", one.id),
                None => String::new(),
            };
            let message = format!(
                "{} would be deleted{only}{last}, {kept} kept; ConfigMap {} lists them",
                remaining - reported,
                status.records
            );
            ("Planned", message)
        }
        _ if run.protected => ("Protected", protected()),
        phase => match planner.refusal() {
            Some((server, unread)) => {
                let reason = match unread {
                    _ if server == "TargetReachable" => "TargetRefused",
                    Unread::NotProven(_) => "LoginNotProven",
                    _ => "CloudRefused",
                };
                (reason, format!("the run waits until this is fixed: {unread}"))
            }
            None => (word(phase), format!("{remaining} remaining, {kept} kept")),
        },
    };
    let (is_complete, is_failed) = (status.phase == Phase::Succeeded, status.phase == Phase::Failed);
    let is_ready = is_complete || status.phase == Phase::Planned;
    let is_stalled = is_failed || !is_ready && (run.protected || planner.refusal().is_some());
    let condition =
        |kind, is_so| (kind, if is_so { Status::True } else { Status::False }, reason, message.clone());
    let mut words = vec![
        condition("Complete", is_complete),
        condition("Failed", is_failed),
        condition("Ready", is_ready),
        condition("Reconciling", !is_ready && !is_stalled),
        condition("Stalled", is_stalled),
    ];
    if run.spec.dry_run {
        words.push(condition("Planned", status.phase == Phase::Planned));
    } else if status_of(&run.status, "Planned").is_some() {
        words.push(("Planned", Status::False, "DryRunEnded", "spec.dryRun is false".to_owned()));
    }
    if status.phase.is_final() {
        words.push(verified(planner, debris));
    }
    words
}

/// Set at the end: a resource that was verified then stays verified.
pub(super) fn verified(planner: &Planner<'_>, debris: i64) -> Word {
    let Snapshot { run, cloud, .. } = planner.snapshot;
    if debris > 0 {
        return ("Verified", Status::False, "DebrisLeft", format!("{debris} left"));
    }
    if run.book.credential.is_some() {
        let reason = if run.spec.cluster_gone.is_some() { "NothingFound" } else { "EachIDIsGone" };
        let message = "0 left, before the application credential was deleted".to_owned();
        return ("Verified", Status::True, reason, message);
    }
    let desired = || planner.records.iter().filter(|record| record.kept.is_none());
    if run.spec.provider == Provider::Any {
        let count = |kind: Kind| desired().filter(|record| record.kind == kind).count();
        let message = format!(
            "the objects of {} volumes, {} snapshots and {} load balancers are gone from the cluster, with their finalizers; no cloud was read, so it is not verified that nothing is left there",
            count(Kind::Volume),
            count(Kind::Snapshot),
            count(Kind::LoadBalancer)
        );
        return ("Verified", Status::Unknown, "ClusterOnly", message);
    }
    let unknown =
        desired().find_map(|record| match presence(run, cloud.as_ref(), &planner.book.proof, record) {
            Presence::Unknown(why) => Some(format!("{} {}: {why}", record.kind, record.name)),
            Presence::Present(_) | Presence::Absent(_) => None,
        });
    match (cloud, unknown) {
        (Some(Ok(cloud)), None) if run.spec.cluster_gone.is_some() => {
            let (place, name) = (cloud.place(), &run.spec.cluster_name);
            let message = format!("nothing in project {place} has the name of cluster {name} any more");
            ("Verified", Status::True, "NothingFound", message)
        }
        (Some(Ok(_)), None) => ("Verified", Status::True, "EachIDIsGone", "0 left".to_owned()),
        (_, unknown) => {
            let why = match unknown {
                Some(why) => format!("not everything could be verified: {why}"),
                None => "OpenStack was not read".to_owned(),
            };
            ("Verified", Status::Unknown, "NotProven", format!("the cluster has nothing left; {why}"))
        }
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Inventory => "Inventory",
        Phase::Planned => "Planned",
        Phase::Deleting => "Deleting",
        Phase::Verifying => "Verifying",
        Phase::Finishing => "Finishing",
        Phase::Aborting => "Aborting",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        Phase::Unknown => "UnknownPhase",
    }
}
