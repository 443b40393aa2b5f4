//! natgw's Jobs as a Snapshot has them.

use common::k8s::{self, job::Outcome as Seen};
use jiff::Timestamp;

use super::snapshot::{Job, Outcome};
use crate::names;
use crate::task::Task;

/// Reads a Job with the name of its Node. None for one that natgw has not made, or that a person has mangled: nothing is
/// decided by it and it is left alone.
#[must_use]
pub fn read(job: &k8s::Job) -> Option<(String, Job)> {
    let metadata = &job.metadata;
    let node = job.annotation(names::NODE_NAME_ANNOTATION)?.to_owned();
    let task = Task {
        kind: job.label(names::TYPE_LABEL)?.parse().ok()?,
        ip: job.label(names::IP_LABEL)?.parse().ok()?,
    };
    let read = Job {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        task,
        generation: job.label(names::GENERATION_LABEL)?.to_owned(),
        attempt: job.annotation(names::ATTEMPT_ANNOTATION)?.parse().ok()?,
        terminating: metadata.deletion_timestamp.is_some(),
        outcome: outcome(job),
    };
    Some((node, read))
}

fn outcome(job: &k8s::Job) -> Outcome {
    match job.outcome() {
        Seen::Open => Outcome::Running,
        Seen::Succeeded => Outcome::Succeeded,
        Seen::Failed => {
            let condition = job.status.conditions.iter().find(|condition| condition.kind == "Failed");
            Outcome::Failed {
                at: condition
                    .and_then(|condition| condition.last_transition_time)
                    .unwrap_or(Timestamp::UNIX_EPOCH),
                message: condition.map_or_else(String::new, |condition| {
                    format!("{} ({})", condition.message, condition.reason)
                }),
            }
        }
    }
}
