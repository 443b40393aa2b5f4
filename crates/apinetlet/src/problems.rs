//! Source objects that cannot be mapped: reported once each, and counted in the metric `apinetlet_problems`.

use common::events::Events;
use common::metrics::Metrics;
use common::plan::{Problem, Reason};
use prometheus::{IntGaugeVec, Opts};

use crate::names::Kind;

/// The metric.
#[derive(Clone, Debug)]
pub struct ProblemsMetric(IntGaugeVec);

impl ProblemsMetric {
    /// Registers it.
    ///
    /// # Errors
    /// The name is registered already.
    pub fn new(metrics: &Metrics) -> Result<ProblemsMetric, prometheus::Error> {
        let help = "Source objects that cannot be mapped at present, by kind and reason of the Event";
        let gauge = IntGaugeVec::new(Opts::new("apinetlet_problems", help), &["kind", "reason"])?;
        metrics.registry().register(Box::new(gauge.clone()))?;
        Ok(ProblemsMetric(gauge))
    }

    /// Of one source object, without a problem at first.
    #[must_use]
    pub fn of_object(&self, kind: Kind, events: Events) -> Problems {
        Problems { events, metric: self.clone(), kind, reasons: Vec::new() }
    }
}

/// The problems of one source object. When this is dropped they do not count any more.
#[derive(Debug)]
pub struct Problems {
    /// Reports actions that failed.
    pub events: Events,
    metric: ProblemsMetric,
    kind: Kind,
    reasons: Vec<&'static str>,
}

impl Problems {
    /// Reports the problems of a plan, as [`Events::found`] does, and counts them instead of those of the plan before.
    pub fn found<R: Reason>(&mut self, problems: &[Problem<R>]) {
        self.events.found(problems);
        let mut reasons: Vec<_> = problems.iter().map(|problem| problem.because.code()).collect();
        // An object counts once for each reason.
        reasons.sort_unstable();
        reasons.dedup();
        self.count(reasons);
    }

    fn count(&mut self, reasons: Vec<&'static str>) {
        if reasons == self.reasons {
            return;
        }
        let gauge = |reason: &&str| self.metric.0.with_label_values(&[self.kind.name(), reason]);
        reasons.iter().for_each(|reason| gauge(reason).inc());
        self.reasons.iter().for_each(|reason| gauge(reason).dec());
        self.reasons = reasons;
    }
}

impl Drop for Problems {
    fn drop(&mut self) {
        self.count(Vec::new());
    }
}
