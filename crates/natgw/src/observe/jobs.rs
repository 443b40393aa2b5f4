//! natgw's Jobs as a Snapshot has them.

use common::k8s::{self, job::Outcome as Seen};
use jiff::Timestamp;

use super::snapshot::{Job, Outcome};
use crate::names;
use crate::plan::jobs::node_hash;
use crate::task::Task;

/// Reads a Job with the hash of its Node's name. None for one that names no Node.
///
/// A Job that was edited, or that another version of natgw has made, is read as far as possible: the API server has it, so it
/// counts as the Node's Job.
#[must_use]
pub fn read(job: &k8s::Job) -> Option<(String, Job)> {
    let metadata = &job.metadata;
    let node = match job.label(names::NODE_LABEL) {
        Some(hash) => hash.to_owned(),
        None => node_hash(job.annotation(names::NODE_NAME_ANNOTATION)?),
    };
    let task = || {
        Some(Task {
            kind: job.label(names::TYPE_LABEL)?.parse().ok()?,
            ip: job.label(names::IP_LABEL)?.parse().ok()?,
        })
    };
    let read = Job {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        task: task(),
        generation: job.label(names::GENERATION_LABEL).unwrap_or_default().to_owned(),
        attempt: job.annotation(names::ATTEMPT_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or(1),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A Job as natgw makes it, changed by a JSON merge patch.
    fn job(patch: Value) -> k8s::Job {
        let mut job = json!({
            "metadata": {
                "name": "natgw-setup-1", "uid": "uid",
                "labels": { names::TYPE_LABEL: "setup", names::NODE_LABEL: node_hash("node-1"),
                    names::IP_LABEL: "198.51.100.1", names::GENERATION_LABEL: "generation" },
                "annotations": { names::NODE_NAME_ANNOTATION: "node-1", names::ATTEMPT_ANNOTATION: "2" },
            },
        });
        for (map, entries) in patch.as_object().unwrap() {
            for (key, value) in entries.as_object().unwrap() {
                job["metadata"][map][key] = value.clone();
            }
        }
        let text = serde_json::to_string(&job).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn defect_27_a_job_that_was_edited_still_is_its_nodes_job() {
        let (node, whole) = read(&job(json!({}))).unwrap();
        assert_eq!((node, whole.attempt), (node_hash("node-1"), 2));
        assert_eq!(whole.task.map(|task| task.to_string()).as_deref(), Some("setup:198.51.100.1"));
        for (patch, task, attempt) in [
            (
                json!({ "annotations": { names::NODE_NAME_ANNOTATION: "other", names::ATTEMPT_ANNOTATION: "" } }),
                true,
                1,
            ),
            (json!({ "labels": { names::TYPE_LABEL: "verify" } }), false, 2),
            (json!({ "labels": { names::IP_LABEL: "" } }), false, 2),
            (json!({ "labels": { names::GENERATION_LABEL: "" } }), true, 2),
        ] {
            let (node, read) = read(&job(patch.clone())).unwrap();
            assert_eq!(
                (node, read.task.is_some(), read.attempt),
                (node_hash("node-1"), task, attempt),
                "{patch}"
            );
        }
        let mut unlabelled = job(json!({}));
        unlabelled.metadata.labels = None;
        assert_eq!(read(&unlabelled).unwrap().0, node_hash("node-1"));
        unlabelled.metadata.annotations = None;
        assert_eq!(read(&unlabelled), None);
    }
}
