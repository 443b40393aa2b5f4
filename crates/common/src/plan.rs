//! The grammar that all controllers speak: what shall be done, to which object, and why.
//!
//! One [`Step`] is the single source of what a person sees of it: the dry-run line, the log line, the Event, the metric
//! labels and the line in `/statusz` are all made from it. Nothing here knows of a client, a clock or a runtime.

use std::fmt;

use serde::Serialize;

/// Why a step is taken, or what is wrong: a closed set for each controller.
pub trait Reason: fmt::Display + fmt::Debug + Serialize {
    /// One CamelCase word out of a closed set: the `reason` of the Event and of the metric.
    fn code(&self) -> &'static str;
    /// Whether its Event is a Warning although the action succeeded.
    fn is_trouble(&self) -> bool {
        false
    }
    /// The second object, if the Kubernetes object stands for many: each second object then has Events of its own.
    fn related(&self) -> Option<Related> {
        None
    }
}

/// One outward act: a closed set for each controller.
///
/// `Display` is one line for a person, in the imperative, naming the object: `create Job setup of 198.51.100.7 on node-1`.
pub trait Action: fmt::Display + fmt::Debug + Serialize {
    /// Why this controller acts.
    type Reason: Reason;
    /// One CamelCase verb phrase out of a closed set (`CreateJob`): the `action` of the Event and of the metric.
    fn name(&self) -> &'static str;
    /// The Kubernetes object that the act is about: its Events appear there.
    fn regarding(&self) -> Regarding;
    /// The second object of the act, if the Events of many appear on one Kubernetes object: each second object then has
    /// Events of its own.
    fn related(&self) -> Option<Related> {
        None
    }
}

/// The second object of an act or of a problem: one of another cluster or of a cloud, on which no Event can appear.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Related {
    /// `PersistentVolumeClaim`; `Volume` of a cloud.
    pub kind: String,
    /// None for what has none.
    pub namespace: Option<String>,
    /// metadata.name, or the ID in the cloud.
    pub name: String,
}

/// The Kubernetes object that an act or a problem is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Regarding {
    /// `v1`, `batch/v1`.
    pub api_version: &'static str,
    /// `Node`, `Job`.
    pub kind: &'static str,
    /// None for cluster-scoped kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// metadata.name
    pub name: String,
    /// metadata.uid where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl fmt::Display for Regarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// One act and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step<A: Action> {
    /// The act to perform.
    pub action: A,
    /// Why.
    pub because: A::Reason,
}

impl<A: Action> fmt::Display for Step<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}: {})", self.action, self.because.code(), self.because)
    }
}

/// Something that a person should know and that no step of this plan fixes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem<R: Reason> {
    /// The object on which the Warning Event appears.
    pub regarding: Regarding,
    /// The problem and its remedy.
    pub because: R,
}

impl<R: Reason> fmt::Display for Problem<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.regarding, self.because, self.because.code())
    }
}

/// The actions of one reconciliation, in order, and the problems that it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan<A: Action> {
    /// Steps, to be run in this order; a failed one ends the reconciliation.
    pub steps: Vec<Step<A>>,
    /// Problems that a person should know.
    pub problems: Vec<Problem<A::Reason>>,
}

impl<A: Action> Default for Plan<A> {
    fn default() -> Self {
        Plan { steps: Vec::new(), problems: Vec::new() }
    }
}

impl<A: Action> Plan<A> {
    /// Whether there is nothing to do. Problems do not count: they are no acts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Adds a step at the end.
    pub fn step(&mut self, action: A, because: A::Reason) {
        self.steps.push(Step { action, because });
    }

    /// Adds a problem.
    pub fn problem(&mut self, regarding: Regarding, because: A::Reason) {
        self.problems.push(Problem { regarding, because });
    }

    /// The plan as JSON for `--output json`: `{"steps": [{"name", "text", "reason", "because", "regarding", "action"}], "problems": [...]}`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "steps": self.steps.iter().map(|step| serde_json::json!({
                "name": step.action.name(),
                "text": step.action.to_string(),
                "reason": step.because.code(),
                "because": step.because.to_string(),
                "regarding": step.action.regarding(),
                "action": step.action,
            })).collect::<Vec<_>>(),
            "problems": self.problems.iter().map(|problem| serde_json::json!({
                "reason": problem.because.code(),
                "because": problem.because.to_string(),
                "regarding": problem.regarding,
            })).collect::<Vec<_>>(),
        })
    }
}

/// The plan for a person: numbered steps, then problems; `nothing to do` where there are no steps.
impl<A: Action> fmt::Display for Plan<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            writeln!(f, "nothing to do")?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", number + 1)?;
        }
        for problem in &self.problems {
            writeln!(f, "  ! {problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Serialize)]
    struct Missing;
    impl fmt::Display for Missing {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the label has no annotation yet")
        }
    }
    impl Reason for Missing {
        fn code(&self) -> &'static str {
            "AnnotationMissing"
        }
    }

    #[derive(Clone, Debug, Serialize)]
    struct Create(&'static str);
    impl fmt::Display for Create {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "create Job on {}", self.0)
        }
    }
    impl Action for Create {
        type Reason = Missing;
        fn name(&self) -> &'static str {
            "CreateJob"
        }
        fn regarding(&self) -> Regarding {
            Regarding { api_version: "v1", kind: "Node", namespace: None, name: self.0.into(), uid: None }
        }
    }

    #[test]
    fn a_plan_prints_steps_with_their_reasons() {
        let mut plan = Plan::default();
        plan.step(Create("node-1"), Missing);
        plan.problem(Create("node-2").regarding(), Missing);
        assert_eq!(
            plan.to_string(),
            "  1. create Job on node-1 (AnnotationMissing: the label has no annotation yet)\n  \
             ! Node node-2: the label has no annotation yet (AnnotationMissing)\n"
        );
        assert_eq!(Plan::<Create>::default().to_string(), "nothing to do\n");
    }

    #[test]
    fn json_carries_the_same_words() {
        let mut plan = Plan::default();
        plan.step(Create("node-1"), Missing);
        let json = plan.to_json();
        assert_eq!(json["steps"][0]["name"], "CreateJob");
        assert_eq!(json["steps"][0]["reason"], "AnnotationMissing");
        assert_eq!(json["steps"][0]["regarding"]["name"], "node-1");
    }
}
