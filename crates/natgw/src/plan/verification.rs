//! The periodic verification of gateways (opt-in): a Job compares the Node with its setup, and changes nothing.
//!
//! It needs no annotation. The finished Job records its time and its result. A setup that is run because of a difference deletes
//! this Job after the pending annotation has been written.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;

use super::action::{Action, NodeRef};
use super::jobs::{self, generation};
use super::reason::Reason;
use super::{Output, regarding};
use crate::config::Config;
use crate::observe::snapshot::{Job, Node, Outcome, Snapshot};
use crate::task::{Kind, Role, Task};

/// The Job that has verified the present setup of the Node.
fn of<'a>(config: &Config, snapshot: &'a Snapshot, node: &Node) -> Option<&'a Job> {
    let mut jobs = snapshot.jobs_of(&node.name).iter();
    let job = jobs.find(|job| job.task.is_some_and(|task| task.kind == Kind::Verify))?;
    let present = generation(config, snapshot.network.ip_range, node, Kind::Verify);
    (job.generation == present).then_some(job)
}

/// Whether the last verification has found that the Node differs from its present setup.
pub(super) fn differs(config: &Config, snapshot: &Snapshot, node: &Node) -> bool {
    of(config, snapshot, node).is_some_and(|job| matches!(job.outcome, Outcome::Differs { .. }))
}

/// Plans the next verification of a gateway that is set up for `ip`.
pub(super) fn plan(
    config: &Config,
    snapshot: &Snapshot,
    node: &Node,
    ip: Ipv4Addr,
    now: Timestamp,
    out: &mut Output,
) {
    let jobs = snapshot.jobs_of(&node.name);
    match of(config, snapshot, node).map(|job| &job.outcome) {
        // It stays until the setup runs.
        Some(Outcome::Differs { .. }) => return out.problem(regarding(node), Reason::SetupDiffers),
        Some(Outcome::Failed { message, .. }) => {
            out.problem(regarding(node), Reason::VerificationFailed(message.clone()));
        }
        _ => {}
    }
    // A Node that is to be set up by another script is verified after that.
    if !config.verification.enabled
        || !node.can_be_set_up()
        || !jobs::has_present_setup(config, snapshot, node, Role::Gateway)
    {
        return;
    }
    let ended = jobs.iter().map(|job| job.outcome.ended().filter(|_| !job.terminating));
    let Some(ended) = ended.collect::<Option<Vec<Timestamp>>>() else { return };
    let Some(last) = ended.into_iter().max() else {
        let task = Task { kind: Kind::Verify, ip };
        let generation = generation(config, snapshot.network.ip_range, node, Kind::Verify);
        let job = jobs::job(snapshot, node, task, generation, 1);
        return out.step(Action::CreateJob { node: NodeRef::from(node), job }, Reason::VerificationDue);
    };
    let interval = Duration::from(config.verification.interval);
    if last.checked_add(interval).is_ok_and(|due| now >= due) {
        for job in jobs {
            out.step(jobs::delete(node, job), Reason::VerificationDue);
        }
    }
}
