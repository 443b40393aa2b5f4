//! The responses of the hook.

use prometheus::{IntCounterVec, Opts, Registry};

use super::protocol::Response;

/// Counts responses.
#[derive(Clone)]
pub struct Metrics {
    responses: IntCounterVec,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let responses = IntCounterVec::new(
            Opts::new(
                "deorbiter_hook_responses_total",
                "Answers to Cluster API's BeforeClusterDelete: wait, go_on, refused.",
            ),
            &["response"],
        )?;
        registry.register(Box::new(responses.clone()))?;
        for response in ["wait", "go_on", "refused"] {
            responses.with_label_values(&[response]);
        }
        Ok(Metrics { responses })
    }

    /// Counts one.
    pub fn responded(&self, response: &Response) {
        self.responses.with_label_values(&[response.word()]).inc();
    }
}
