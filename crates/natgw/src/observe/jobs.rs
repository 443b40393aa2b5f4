//! natgw's Jobs as a Snapshot has them.

use common::k8s;
use common::k8s::job::{Condition, Outcome as Seen};
use jiff::Timestamp;

use super::snapshot::{Job, Outcome};
use crate::names;
use crate::plan::jobs::node_hash;
use crate::task::{Kind, Task};

/// The reason of the condition `Failed` where a rule of `podFailurePolicy` ended the Job
/// (`JobReasonPodFailurePolicy` of k8s.io/api/batch/v1).
const POD_FAILURE_POLICY: &str = "PodFailurePolicy";

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
    let task = task();
    let read = Job {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        task,
        generation: job.label(names::GENERATION_LABEL).unwrap_or_default().to_owned(),
        attempt: job.annotation(names::ATTEMPT_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or(1),
        terminating: metadata.deletion_timestamp.is_some(),
        outcome: outcome(job, task),
    };
    Some((node, read))
}

fn outcome(job: &k8s::Job, task: Option<Task>) -> Outcome {
    let condition = |kind| {
        let mut conditions = job.status.conditions.iter();
        conditions.find(|condition| condition.kind == kind).cloned().unwrap_or_default()
    };
    let at = |condition: &Condition| condition.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH);
    match job.outcome() {
        Seen::Open => Outcome::Running,
        Seen::Succeeded => Outcome::Succeeded { at: at(&condition("Complete")) },
        Seen::Failed => {
            let failed = condition("Failed");
            let at = at(&failed);
            if task.is_some_and(|task| task.kind == Kind::Verify) && failed.reason == POD_FAILURE_POLICY {
                Outcome::Differs { at }
            } else {
                Outcome::Failed { at, message: format!("{} ({})", failed.message, failed.reason) }
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
    fn only_a_verification_differs_and_each_end_has_its_time() {
        let at = "2026-11-28T12:00:00Z";
        for (kind, condition, reason, differs) in [
            ("verify", "Failed", "PodFailurePolicy", true),
            ("setup", "Failed", "PodFailurePolicy", false),
            ("verify", "Failed", "DeadlineExceeded", false),
            ("verify", "Complete", "CompletionsReached", false),
        ] {
            let mut job = job(json!({ "labels": { names::TYPE_LABEL: kind } }));
            let condition = json!({ "type": condition, "status": "True", "reason": reason, "message": "exit code 5",
                "lastTransitionTime": at });
            job.status.conditions = vec![serde_json::from_value(condition).unwrap()];
            let read = read(&job).unwrap().1;
            assert_eq!(matches!(read.outcome, Outcome::Differs { .. }), differs, "{kind} {reason}");
            assert_eq!(read.outcome.ended(), Some(at.parse().unwrap()));
        }
        assert_eq!(read(&job(json!({}))).unwrap().1.outcome.ended(), None);
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
            (json!({ "labels": { names::TYPE_LABEL: "upgrade" } }), false, 2),
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
