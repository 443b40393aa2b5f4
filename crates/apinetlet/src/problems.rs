//! Source objects that cannot be mapped: reported once each, and counted in the metric `apinetlet_problems`.

use std::time::{Duration, Instant};

use common::events::Events;
use common::metrics::{Metrics, register};
use common::plan::{self, Reason as _};
use prometheus::{IntGaugeVec, Opts};

use crate::names::Kind;
use crate::plan::Reason;

/// From when on a transient problem is reported. ironcore-net reacts within a second, and elects a new leader within 15.
const TRANSIENT: Duration = Duration::from_secs(20);

type Problem = plan::Problem<Reason>;

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
        register(metrics.registry(), gauge).map(ProblemsMetric)
    }

    /// Of one source object, without a problem at first.
    #[must_use]
    pub fn of_object(&self, kind: Kind, events: Events) -> Problems {
        Problems { events, metric: self.clone(), kind, reasons: Vec::new(), transient: Since::default() }
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
    transient: Since,
}

/// Since when there has been a transient problem.
#[derive(Debug, Default)]
struct Since(Option<Instant>);

impl Since {
    /// The problems without the transient ones, until these have lasted; then how long that is from now.
    fn lasting(&mut self, mut problems: Vec<Problem>, now: Instant) -> (Vec<Problem>, Option<Duration>) {
        let is_transient = |one: &Problem| one.because.is_transient();
        self.0 = problems.iter().any(is_transient).then(|| self.0.unwrap_or(now));
        let remaining = self.0.and_then(|since| (since + TRANSIENT).checked_duration_since(now));
        let remaining = remaining.filter(|remaining| !remaining.is_zero());
        if remaining.is_some() {
            problems.retain(|one| !is_transient(one));
        }
        (problems, remaining)
    }
}

impl Problems {
    /// Reports the problems of a plan, as [`Events::found`] does, and counts them instead of those of the plan before. Returns after
    /// which time a problem that is transient so far has to be reported, if it is still in the plan then.
    pub fn found(&mut self, problems: Vec<Problem>) -> Option<Duration> {
        let (problems, remaining) = self.transient.lasting(problems, Instant::now());
        self.events.found(&problems);
        let mut reasons: Vec<_> = problems.iter().map(|problem| problem.because.code()).collect();
        // An object counts once for each reason.
        reasons.sort_unstable();
        reasons.dedup();
        self.count(reasons);
        remaining
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Flavor;
    use crate::origin::Origin;
    use crate::plan::regarding_origin;

    fn problem(because: Reason) -> Problem {
        let origin = Origin { uid: "u".into(), namespace: "team".into(), name: "nat".into() };
        Problem { regarding: regarding_origin(Flavor::Ironcore, Kind::NatGateway, &origin), because }
    }

    #[test]
    fn a_transient_problem_is_reported_only_if_it_lasts() {
        let (missing, other) = (problem(Reason::AddressMissing(0)), problem(Reason::FamilyMissing));
        let both = || vec![missing.clone(), other.clone()];
        let (mut since, start) = (Since::default(), Instant::now());
        for (seconds, problems, reported, remaining) in [
            (0, both(), vec![other.clone()], Some(20)),
            (5, both(), vec![other.clone()], Some(15)),
            (6, vec![other.clone()], vec![other.clone()], None),
            (7, both(), vec![other.clone()], Some(20)),
            // The number of addresses is another one.
            (26, vec![problem(Reason::AddressMissing(1))], vec![], Some(1)),
            (27, both(), both(), None),
            (90, both(), both(), None),
        ] {
            let now = start + Duration::from_secs(seconds);
            let remaining = remaining.map(Duration::from_secs);
            assert_eq!(since.lasting(problems, now), (reported, remaining), "after {seconds} s");
        }
    }
}
