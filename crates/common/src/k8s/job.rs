//! The fields of a Job that its creator reads.

use jiff::Timestamp;
use k8s_openapi::{api::batch::v1 as batch, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::{metadata, or_default};
use crate::conditions::Status;

/// `batch/v1/Job`. `metadata` has name, namespace, uid, resourceVersion, labels, annotations and the two timestamps.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = batch::Job)]
pub struct Job {
    /// See above.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// The state that the Job controller reports.
    #[serde(default, deserialize_with = "or_default")]
    pub status: JobStatus,
}

/// The read part of `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// `Complete`, `Failed`, `Suspended`, `FailureTarget`, ...
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// One condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// `Complete`
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: Status,
    /// `BackoffLimitExceeded`, `DeadlineExceeded`, ...
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    /// For a person.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: Option<Timestamp>,
}

/// How far a Job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Neither `Complete` nor `Failed` is true yet.
    Open,
    /// `Complete` is true.
    Succeeded,
    /// `Failed` is true: the Job controller has given up.
    Failed,
}

impl Job {
    /// How far it is, by its conditions: counts move before the Job controller has decided.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let holds = |kind: &str| {
            self.status.conditions.iter().any(|one| one.kind == kind && one.status == Status::True)
        };
        if holds("Complete") {
            Outcome::Succeeded
        } else if holds("Failed") {
            Outcome::Failed
        } else {
            Outcome::Open
        }
    }

    /// One annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// One label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(status: serde_json::Value) -> Job {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "setup", "namespace": "natgw", "generation": 1, "ownerReferences": []},
            "spec": {"template": {"spec": {"containers": []}}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_outcome_is_read_from_conditions() {
        assert_eq!(job(serde_json::json!(null)).outcome(), Outcome::Open);
        assert_eq!(
            job(serde_json::json!({"succeeded": 1})).outcome(),
            Outcome::Open,
            "counted, not yet decided"
        );
        for (kind, status, outcome) in [
            ("Complete", "True", Outcome::Succeeded),
            ("Complete", "False", Outcome::Open),
            ("Failed", "True", Outcome::Failed),
            ("FailureTarget", "True", Outcome::Open),
            ("Suspended", "True", Outcome::Open),
        ] {
            let job = job(serde_json::json!({"conditions": [{"type": kind, "status": status}]}));
            assert_eq!(job.outcome(), outcome, "{kind}={status}");
        }
    }

    #[test]
    fn the_reason_and_the_time_of_a_condition_are_kept() {
        let job = job(serde_json::json!({
            "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m",
                "lastProbeTime": "2026-11-21T12:01:00Z", "lastTransitionTime": "2026-11-21T12:01:00Z"}],
        }));
        let condition = &job.status.conditions[0];
        assert_eq!(condition.reason, "BackoffLimitExceeded");
        assert_eq!(condition.last_transition_time, Some("2026-11-21T12:01:00Z".parse().unwrap()));
        assert_eq!(Job::url_path(&(), Some("natgw")), "/apis/batch/v1/namespaces/natgw/jobs");
    }
}
