//! deorbiter's own metrics. `namespace` and `name` are those of the Deorbit; its series are removed with it.

use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{DeorbitStatus, Kind, Phase, Trigger};
use common::conditions::Condition;
use common::metrics::{Metrics as Common, register};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use crate::error::Error;
use crate::plan::Tally;
use crate::plan::conditions::{is_outage, is_refusal};
use crate::record::Recorded;

/// How a run can end.
const RESULTS: [&str; 3] = ["Complete", "CompletedWithDebris", "Failed"];

/// Kind of debris that has no [`Kind`].
const OTHER: &str = "Other";

/// The servers of a run, and the condition that reports whether each can be read.
const SERVERS: [(&str, &str); 2] = [("target", "TargetReachable"), ("openstack", "CloudReachable")];

/// deorbiter's own counters and gauges.
#[derive(Clone)]
pub struct Metrics {
    /// Those that all controllers have.
    pub common: Common,
    runs: IntCounterVec,
    phase: IntGaugeVec,
    remaining: IntGaugeVec,
    overdue: IntGaugeVec,
    kept: IntGaugeVec,
    debris: IntGaugeVec,
    refused: IntGaugeVec,
    unavailable: IntGaugeVec,
    seconds: HistogramVec,
    failures: IntCounterVec,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn new(common: Common) -> Result<Self, prometheus::Error> {
        let registry = common.registry();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        // Each has the labels of its Deorbit, and these.
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let labels = [&["namespace", "name"][..], labels].concat();
            register(registry, IntGaugeVec::new(Opts::new(name, help), &labels)?)
        };
        let runs = counter(
            "deorbiter_runs_total",
            "Runs that ended, by result and trigger",
            &["result", "trigger"],
        )?;
        for (result, trigger) in
            RESULTS.iter().flat_map(|result| Trigger::ALL.map(|trigger| (result, trigger)))
        {
            runs.with_label_values(&[*result, &trigger.to_string()]);
        }
        let seconds = HistogramVec::new(
            HistogramOpts::new("deorbiter_operation_duration_seconds", "How long an action took")
                .buckets(vec![0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0]),
            &["method"],
        )?;
        Ok(Metrics {
            runs,
            phase: gauge("deorbiter_phase", "1 for the phase that a Deorbit is in", &["phase"])?,
            remaining: gauge(
                "deorbiter_remaining",
                "Resources that are to be deleted and still exist, by kind",
                &["kind"],
            )?,
            overdue: gauge(
                "deorbiter_overdue",
                "Of the remaining resources, those that take longer than timeouts.perObject",
                &[],
            )?,
            kept: gauge("deorbiter_kept", "Resources that are kept on purpose, by kind", &["kind"])?,
            debris: gauge("deorbiter_debris", "Objects that were left at the end, by kind", &["kind"])?,
            refused: gauge(
                "deorbiter_access_refused",
                "1 while a Deorbit waits because its target cluster or OpenStack refuses access",
                &["server"],
            )?,
            unavailable: gauge(
                "deorbiter_unavailable",
                "1 while the target cluster or OpenStack of a Deorbit does not respond, or responds with 5xx or 429",
                &["server"],
            )?,
            failures: counter(
                "deorbiter_operation_failures_total",
                "Actions that failed, by action and error",
                &["method", "reason"],
            )?,
            seconds: register(registry, seconds)?,
            common,
        })
    }

    /// An action was executed.
    pub fn acted(&self, method: &str, took: Duration, failed: Option<&Error>) {
        self.seconds.with_label_values(&[method]).observe(took.as_secs_f64());
        if let Some(error) = failed {
            self.failures.with_label_values(&[method, error.code()]).inc();
        }
    }

    /// A status was stored, or found after a restart; `before` is the phase that it replaces.
    pub fn stored(
        &self,
        (namespace, name): (&str, &str),
        before: Phase,
        status: &DeorbitStatus,
        tally: &Tally,
    ) {
        for phase in Phase::ALL {
            self.phase
                .with_label_values(&[namespace, name, &phase.to_string()])
                .set((phase == status.phase).into());
        }
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for kind in Kind::ALL {
            let count = tally.remaining.get(&kind).copied().unwrap_or_default();
            self.remaining.with_label_values(&[namespace, name, kind.name()]).set(number(count));
        }
        self.overdue.with_label_values(&[namespace, name]).set(number(tally.overdue));
        for (server, condition) in SERVERS {
            let is = |what: fn(&Condition) -> bool| {
                !status.phase.is_final()
                    && status.conditions.iter().any(|one| one.kind == condition && what(one))
            };
            self.refused.with_label_values(&[namespace, name, server]).set(is(is_refusal).into());
            self.unavailable.with_label_values(&[namespace, name, server]).set(is(is_outage).into());
        }
        // The status lists only the first of many: the rest counts as OTHER, as does what is not in OpenStack. A failed run that is tried
        // again has no debris any more.
        let mut rest = status.debris_count;
        for kind in Kind::ALL {
            let count = number(status.debris.iter().filter(|one| one.kind == kind.name()).count());
            rest -= count;
            self.debris.with_label_values(&[namespace, name, kind.name()]).set(count);
        }
        self.debris.with_label_values(&[namespace, name, OTHER]).set(rest.max(0));
        if status.phase.is_final() && !before.is_final() {
            let result = match (status.phase, status.debris_count) {
                (Phase::Failed, _) => "Failed",
                (_, 0) => "Complete",
                _ => "CompletedWithDebris",
            };
            self.runs.with_label_values(&[result, &status.trigger.to_string()]).inc();
        }
    }

    /// The records of a Deorbit were stored.
    pub fn kept(&self, (namespace, name): (&str, &str), records: &[Arc<Recorded>]) {
        for kind in Kind::ALL {
            let of = |record: &&Arc<Recorded>| record.kind == kind && record.kept.is_some();
            let count = i64::try_from(records.iter().filter(of).count()).unwrap_or(i64::MAX);
            self.kept.with_label_values(&[namespace, name, kind.name()]).set(count);
        }
    }

    /// A Deorbit is gone, and its series with it.
    pub fn forget(&self, namespace: &str, name: &str) {
        for phase in Phase::ALL {
            drop(self.phase.remove_label_values(&[namespace, name, &phase.to_string()]));
        }
        drop(self.overdue.remove_label_values(&[namespace, name]));
        for (server, _) in SERVERS {
            drop(self.refused.remove_label_values(&[namespace, name, server]));
            drop(self.unavailable.remove_label_values(&[namespace, name, server]));
        }
        for kind in Kind::ALL {
            for gauge in [&self.remaining, &self.kept, &self.debris] {
                drop(gauge.remove_label_values(&[namespace, name, kind.name()]));
            }
        }
        drop(self.debris.remove_label_values(&[namespace, name, OTHER]));
    }
}

#[cfg(test)]
mod tests {
    use common::api::deorbit::Debris;

    use super::*;

    #[test]
    fn debris_that_is_not_listed_or_has_no_kind_counts_as_other() {
        let metrics = Metrics::new(Common::new("deorbiter").unwrap()).unwrap();
        let entry = |kind: &str| Debris {
            kind: kind.into(),
            id: None,
            name: String::new(),
            namespace: String::new(),
            reason: String::new(),
        };
        let status = DeorbitStatus {
            phase: Phase::Failed,
            debris: vec![entry("Volume"), entry("Router")],
            debris_count: 7,
            ..DeorbitStatus::default()
        };
        metrics.stored(("team", "prod"), Phase::Failed, &status, &Tally::default());
        let value = |kind: &str| metrics.debris.with_label_values(&["team", "prod", kind]).get();
        assert_eq!((value("Volume"), value("Snapshot"), value(OTHER)), (1, 0, 6));
        let runs = |trigger: &str| metrics.runs.with_label_values(&["Failed", trigger]).get();
        assert_eq!(runs("Manual"), 0, "it had ended before");
        let status = DeorbitStatus { trigger: Trigger::Binding, ..status };
        metrics.stored(("team", "prod"), Phase::Finishing, &status, &Tally::default());
        assert_eq!((runs("Manual"), runs("Binding")), (0, 1));
        let retried = DeorbitStatus { phase: Phase::Inventory, ..DeorbitStatus::default() };
        metrics.stored(("team", "prod"), Phase::Failed, &retried, &Tally::default());
        assert_eq!(
            (value("Volume"), value(OTHER)),
            (0, 0),
            "nothing is left at the end of a run that goes on"
        );
    }

    #[test]
    fn the_series_of_a_deorbit_are_removed_with_it() {
        let metrics = Metrics::new(Common::new("deorbiter").unwrap()).unwrap();
        let status = DeorbitStatus { phase: Phase::Failed, ..DeorbitStatus::default() };
        metrics.stored(("team", "prod"), Phase::Finishing, &status, &Tally::default());
        metrics.kept(("team", "prod"), &[]);
        let shown = || String::from_utf8(metrics.common.text().unwrap()).unwrap().contains("name=\"prod\"");
        assert!(shown());
        metrics.forget("team", "prod");
        assert!(!shown());
    }
}
