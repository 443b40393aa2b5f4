//! The phases of a pod: Pending → Running → Succeeded or Failed, and removed once it is deleted.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The outcome of a pod's containers, decided when they start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// They exit with 0 after this time.
    Succeed(Duration),
    /// They exit with this code after this time.
    Fail(Duration, i32),
    /// They run until the test ends them.
    Hang,
}

/// The least time between two restarts of a container.
const RESTART: Duration = Duration::from_secs(1);

/// SIGTERM, as a shell reports it: all containers here end at once.
const TERMINATED: i32 = 143;

/// The node's state of a pod. Stages go forward only, and are ahead of the cache.
#[derive(Debug)]
pub(super) struct Course {
    stage: Stage,
    started: Timestamp,
    due: Option<(Instant, i32)>,
    restarts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Pending,
    Running,
    Ended,
    Gone,
}

/// The next write for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Report it Running.
    Start,
    /// Report that its containers ended with this code and were started again.
    Restart(i32),
    /// Report that its containers ended with this code for good.
    End(i32),
    /// Delete it without grace: its containers have ended.
    Confirm,
}

impl Course {
    /// Starts at the present stage of the pod: a kubelet may have been restarted.
    pub(super) fn of(pod: &Pod, decide: impl Fn() -> Outcome, now: Instant) -> Self {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let stage = match phase {
            Some("Running") => Stage::Running,
            Some("Succeeded" | "Failed") => Stage::Ended,
            _ => Stage::Pending,
        };
        let mut course = Self { stage, started: Timestamp::now(), due: None, restarts: 0 };
        if stage == Stage::Running {
            course.run(decide(), now, Duration::ZERO);
        }
        course
    }

    /// The next step, and `None` while there is nothing to do.
    pub(super) fn next(&self, pod: &Pod, now: Instant) -> Option<Step> {
        let deleted = pod.metadata.deletion_timestamp.is_some();
        match (self.stage, self.due) {
            (Stage::Ended, _) if deleted => Some(Step::Confirm),
            (Stage::Ended | Stage::Gone, _) => None,
            (Stage::Pending | Stage::Running, _) if deleted => Some(Step::End(TERMINATED)),
            (Stage::Pending, _) => Some(Step::Start),
            (Stage::Running, Some((at, code))) if at <= now => {
                let restarts = match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
                    Some("Never") => false,
                    Some("OnFailure") => code != 0,
                    _ => true,
                };
                Some(if restarts { Step::Restart(code) } else { Step::End(code) })
            }
            (Stage::Running, _) => None,
        }
    }

    /// A step was written to the server.
    pub(super) fn took(&mut self, step: Step, decide: impl Fn() -> Outcome, now: Instant) {
        match step {
            Step::Start => {
                self.stage = Stage::Running;
                // The test may have ended it before its start.
                if self.due.is_none() {
                    self.run(decide(), now, Duration::ZERO);
                }
            }
            Step::Restart(_) => {
                self.restarts += 1;
                self.started = Timestamp::now();
                self.run(decide(), now, RESTART);
            }
            Step::End(_) => self.stage = Stage::Ended,
            Step::Confirm => self.stage = Stage::Gone,
        }
    }

    /// Its containers end now, whatever was decided.
    pub(super) fn end(&mut self, code: i32, now: Instant) {
        self.due = Some((now, code));
    }

    /// The machine was restarted: the containers that ran are lost.
    pub(super) fn lose(&mut self, now: Instant) {
        if self.stage == Stage::Running {
            // As containerd reports a container after a reboot.
            self.end(255, now);
        }
    }

    /// The time of the next step.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| self.stage == Stage::Running).map(|(at, _)| at)
    }

    /// The status to report with a step, with all fields that the Job controller and `kubectl` read.
    pub(super) fn status(&self, step: Step, pod: &Pod, host: IpAddr, now: Timestamp) -> Value {
        let (phase, ready, reason) = match step {
            Step::Start | Step::Restart(_) => ("Running", "True", None),
            Step::End(0) => ("Succeeded", "False", Some("PodCompleted")),
            Step::End(_) | Step::Confirm => ("Failed", "False", Some("PodFailed")),
        };
        let condition = |kind: &str, status: &str, reason: Option<&str>| json!({ "type": kind, "status": status, "reason": reason, "lastTransitionTime": Time(now) });
        let restarts = self.restarts + u32::from(matches!(step, Step::Restart(_)));
        let terminated = |code: i32| {
            json!({ "terminated": {
                "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
                "startedAt": Time(self.started), "finishedAt": Time(now),
            }})
        };
        let running = json!({ "running": { "startedAt": Time(now) } });
        let (state, last) = match step {
            Step::Start => (running, json!({})),
            Step::Restart(code) => (running, terminated(code)),
            Step::End(code) => (terminated(code), json!({})),
            Step::Confirm => (terminated(TERMINATED), json!({})),
        };
        let container = |name: &str, image: Option<&str>, state: &Value, last: &Value, restarts: u32| {
            json!({
                "name": name, "image": image.unwrap_or_default(), "imageID": "", "restartCount": restarts,
                "ready": ready == "True", "started": ready == "True", "state": state, "lastState": last,
            })
        };
        let spec = pod.spec.clone().unwrap_or_default();
        let containers: Vec<_> = spec
            .containers
            .iter()
            .map(|c| container(&c.name, c.image.as_deref(), &state, &last, restarts))
            .collect();
        let init: Vec<_> = spec
            .init_containers
            .iter()
            .flatten()
            .map(|c| container(&c.name, c.image.as_deref(), &terminated(0), &json!({}), 0))
            .collect();
        let mut status = json!({
            "phase": phase,
            "hostIP": host, "hostIPs": [{ "ip": host }],
            // As with hostNetwork: there is no pod network here.
            "podIP": host, "podIPs": [{ "ip": host }],
            "conditions": [
                condition("Initialized", "True", None),
                condition("Ready", ready, reason),
                condition("ContainersReady", ready, reason),
            ],
            "containerStatuses": containers,
            "initContainerStatuses": init,
        });
        let never_started = pod.status.as_ref().is_none_or(|status| status.start_time.is_none());
        if let (true, Some(status)) = (never_started, status.as_object_mut()) {
            status.insert("startTime".into(), json!(Time(now)));
        }
        status
    }

    fn run(&mut self, outcome: Outcome, now: Instant, at_least: Duration) {
        self.due = match outcome {
            Outcome::Succeed(after) => Some((now + after.max(at_least), 0)),
            Outcome::Fail(after, code) => Some((now + after.max(at_least), code)),
            Outcome::Hang => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(restart: &str, deleted: bool) -> Pod {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p" },
            "spec": { "restartPolicy": restart, "containers": [{ "name": "c", "image": "i" }] },
        }))
        .unwrap();
        pod.metadata.deletion_timestamp = deleted.then(|| Time(Timestamp::now()));
        pod
    }

    fn steps_of(pod: &Pod, outcome: Outcome, steps: usize) -> Vec<Step> {
        let mut now = Instant::now();
        let mut course = Course::of(pod, || outcome, now);
        let mut taken = Vec::new();
        while let (Some(step), true) = (course.next(pod, now), taken.len() < steps) {
            course.took(step, || outcome, now);
            taken.push(step);
            now = course.due().unwrap_or(now);
        }
        taken
    }

    #[test]
    fn pod_ends_by_its_outcome_and_its_restart_policy() {
        let second = Duration::from_secs(1);
        assert_eq!(steps_of(&pod("Never", false), Outcome::Succeed(second), 9), [Step::Start, Step::End(0)]);
        assert_eq!(steps_of(&pod("Never", false), Outcome::Fail(second, 3), 9), [Step::Start, Step::End(3)]);
        assert_eq!(steps_of(&pod("Never", false), Outcome::Hang, 9), [Step::Start]);
        assert_eq!(
            steps_of(&pod("OnFailure", false), Outcome::Succeed(second), 9),
            [Step::Start, Step::End(0)]
        );
        let restarts = [Step::Start, Step::Restart(3), Step::Restart(3)];
        assert_eq!(steps_of(&pod("OnFailure", false), Outcome::Fail(second, 3), 3), restarts);
    }

    #[test]
    fn deleted_pod_is_ended_and_then_removed_once() {
        assert_eq!(steps_of(&pod("Never", true), Outcome::Hang, 9), [Step::End(TERMINATED), Step::Confirm]);
    }

    #[test]
    fn pod_is_ended_by_the_test_or_a_reboot() {
        let (pod, now) = (pod("Never", false), Instant::now());
        let mut course = Course::of(&pod, || Outcome::Hang, now);
        course.lose(now);
        assert_eq!(course.next(&pod, now), Some(Step::Start));
        course.took(Step::Start, || Outcome::Hang, now);
        assert_eq!(course.next(&pod, now), None);
        course.lose(now);
        assert_eq!(course.next(&pod, now), Some(Step::End(255)));
        course.end(0, now);
        assert_eq!(course.next(&pod, now), Some(Step::End(0)));
        let status = course.status(Step::End(0), &pod, [10, 0, 0, 2].into(), Timestamp::now());
        assert_eq!(status["phase"], "Succeeded");
        assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    }
}
