//! What the hook has answered.

use prometheus::{IntCounterVec, Opts, Registry};

use super::protocol::Response;

/// Counts answers.
#[derive(Clone)]
pub struct Metrics {
    answers: IntCounterVec,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let answers = IntCounterVec::new(
            Opts::new(
                "deorbiter_hook_answers_total",
                "Answers to Cluster API's BeforeClusterDelete: wait, go_on, refused.",
            ),
            &["answer"],
        )?;
        registry.register(Box::new(answers.clone()))?;
        for answer in ["wait", "go_on", "refused"] {
            answers.with_label_values(&[answer]);
        }
        Ok(Metrics { answers })
    }

    /// Counts one.
    pub fn answered(&self, response: &Response) {
        self.answers.with_label_values(&[response.word()]).inc();
    }
}
