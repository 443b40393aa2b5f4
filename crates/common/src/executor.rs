//! Executes one step of a plan: leadership, then action, then metric, log line and Event.

use std::{error::Error, future::Future};

use crate::{
    events::Events,
    leader::Leadership,
    metrics::{ActionResult, Metrics},
    plan::{Action, Reason as _, Step},
    runtime::Runtime,
};

/// The error of an action, as far as the executor has to know it.
pub trait ActionError: Error + Sync + 'static {
    /// The error where this process does not lead any more. The action is not executed.
    fn not_leading() -> Self;

    /// Whether the object has changed since it was observed. Nothing was done, the next reconciliation plans again, and
    /// this error is neither counted nor reported.
    fn is_outdated(&self) -> bool;
}

/// Executes steps. Each step is reported from the same value: metric, log line and Event.
#[derive(Clone, Copy, Debug)]
pub struct Executor<'a> {
    /// Asked before each action.
    pub leadership: &'a Leadership,
    /// Counts each action.
    pub metrics: &'a Metrics,
    /// Reports each action.
    pub events: &'a Events,
}

impl<'a> From<&'a Runtime> for Executor<'a> {
    fn from(runtime: &'a Runtime) -> Self {
        Executor { leadership: &runtime.leadership, metrics: &runtime.metrics, events: &runtime.events }
    }
}

impl Executor<'_> {
    /// Executes one step; `action` does what it says. Whether the steps after a failed one are executed is the caller's
    /// decision.
    ///
    /// # Errors
    /// [`ActionError::not_leading`], with `action` not polled, or the error of `action`.
    pub async fn execute<A: Action, E: ActionError>(
        &self,
        step: &Step<A>,
        action: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        if !self.leadership.is_leading() {
            return Err(E::not_leading());
        }
        let (name, reason) = (step.action.name(), step.because.code());
        let result = action.await;
        match &result {
            Ok(()) => {
                self.metrics.action(name, reason, ActionResult::Done);
                self.events.done(step);
            }
            Err(error) if error.is_outdated() => {
                tracing::debug!(action = name, reason, %error, "outdated: {}", step.action);
            }
            Err(error) => {
                self.metrics.action(name, reason, ActionResult::Failed);
                self.events.failed(step, error);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, fmt, sync::atomic::AtomicUsize, sync::atomic::Ordering};

    use kube::{Client, client::Body};
    use serde::Serialize;

    use super::*;
    use crate::plan::{Reason, Regarding};

    #[derive(Clone, Debug, Serialize)]
    struct Why;
    impl fmt::Display for Why {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the label is missing")
        }
    }
    impl Reason for Why {
        fn code(&self) -> &'static str {
            "LabelMissing"
        }
    }

    #[derive(Clone, Debug, Serialize)]
    struct Label;
    impl fmt::Display for Label {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("label Node a")
        }
    }
    impl Action for Label {
        type Reason = Why;
        fn name(&self) -> &'static str {
            "LabelNode"
        }
        fn regarding(&self) -> Regarding {
            Regarding { api_version: "v1", kind: "Node", namespace: None, name: "a".into(), uid: None }
        }
    }

    #[derive(Debug, PartialEq, thiserror::Error)]
    enum Failure {
        #[error("not leading")]
        NotLeading,
        #[error("outdated")]
        Outdated,
        #[error("refused")]
        Refused,
    }
    impl ActionError for Failure {
        fn not_leading() -> Self {
            Failure::NotLeading
        }
        fn is_outdated(&self) -> bool {
            *self == Failure::Outdated
        }
    }

    /// The number of Events that were published, and the metrics in text form.
    async fn execute(
        leadership: Leadership,
        result: Result<(), Failure>,
    ) -> (Result<(), Failure>, usize, String) {
        let published = std::sync::Arc::new(AtomicUsize::new(0));
        let count = published.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            let body = request.into_body();
            async move { Ok::<_, Infallible>(http::Response::builder().status(201).body(body).unwrap()) }
        });
        let metrics = Metrics::new("natgw").unwrap();
        let events = Events::new(Client::new(service, "default"), &metrics, "natgw", "natgw-0".into());
        let executor = Executor { leadership: &leadership, metrics: &metrics, events: &events };
        let result = executor.execute(&Step { action: Label, because: Why }, async { result }).await;
        events.drain(std::time::Duration::from_secs(60)).await;
        let text = String::from_utf8(metrics.text().unwrap()).unwrap();
        (result, published.load(Ordering::SeqCst), text)
    }

    fn counted(text: &str, result: &str) -> bool {
        let labels = "action=\"LabelNode\",controller=\"natgw\",reason=\"LabelMissing\"";
        text.contains(&format!("perimeter_actions_total{{{labels},result=\"{result}\"}} 1"))
    }

    #[tokio::test]
    async fn an_action_is_counted_and_reported_with_its_result() {
        let (result, events, text) = execute(Leadership::always(), Ok(())).await;
        assert!(result.is_ok() && events == 1 && counted(&text, "done"), "{text}");
        let (result, events, text) = execute(Leadership::always(), Err(Failure::Refused)).await;
        assert!(result.is_err() && events == 1 && counted(&text, "failed"), "{text}");
    }

    #[tokio::test]
    async fn an_outdated_action_is_neither_counted_nor_reported() {
        let (result, events, text) = execute(Leadership::always(), Err(Failure::Outdated)).await;
        assert_eq!((result, events), (Err(Failure::Outdated), 0));
        assert!(!text.contains("perimeter_actions_total{"), "{text}");
    }

    #[tokio::test]
    async fn without_the_lease_no_action_is_executed() {
        let (result, events, text) = execute(Leadership::never(), Ok(())).await;
        assert_eq!((result, events), (Err(Failure::NotLeading), 0));
        assert!(!text.contains("perimeter_actions_total{"), "{text}");
    }
}
