//! deorbiter's own metrics. `namespace` and `name` are those of the Deorbit; its series are removed with it.

use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{DeorbitStatus, Kind, Phase, Recorded};
use common::metrics::Metrics as Common;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use crate::error::Error;
use crate::plan::conditions::is_refusal;

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
    debris: IntGaugeVec,
    refused: IntGaugeVec,
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
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let gauge = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let runs = counter("deorbiter_runs_total", "Runs that ended, by how", &["result"])?;
        for result in ["Complete", "CompletedWithDebris", "Failed"] {
            runs.with_label_values(&[result]);
        }
        let seconds = HistogramVec::new(
            HistogramOpts::new("deorbiter_operation_duration_seconds", "How long an action took")
                .buckets(vec![0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0]),
            &["method"],
        )?;
        registry.register(Box::new(seconds.clone()))?;
        Ok(Metrics {
            runs,
            phase: gauge(
                "deorbiter_phase",
                "1 for the phase that a Deorbit is in",
                &["namespace", "name", "phase"],
            )?,
            remaining: gauge(
                "deorbiter_remaining",
                "Objects that are to be deleted and still exist",
                &["namespace", "name"],
            )?,
            debris: gauge(
                "deorbiter_debris",
                "Objects that were left at the end, by kind",
                &["namespace", "name", "kind"],
            )?,
            refused: gauge(
                "deorbiter_access_refused",
                "1 while a Deorbit waits because its target cluster or OpenStack refuses access",
                &["namespace", "name", "server"],
            )?,
            failures: counter(
                "deorbiter_operation_failures_total",
                "Actions that failed, by action and error",
                &["method", "reason"],
            )?,
            seconds,
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
    pub fn stored(&self, (namespace, name): (&str, &str), before: Phase, status: &DeorbitStatus) {
        for phase in Phase::ALL {
            self.phase
                .with_label_values(&[namespace, name, &phase.to_string()])
                .set((phase == status.phase).into());
        }
        self.remaining.with_label_values(&[namespace, name]).set(status.remaining);
        for (server, condition) in SERVERS {
            let refusal = status.conditions.iter().any(|one| one.kind == condition && is_refusal(one));
            let waits = refusal && !status.phase.is_final();
            self.refused.with_label_values(&[namespace, name, server]).set(waits.into());
        }
        if status.phase.is_final() {
            // The status lists only the first of many: the rest counts as OTHER, as does what is not in OpenStack.
            let mut rest = status.debris_count;
            for kind in Kind::ALL {
                let word = format!("{kind:?}");
                let count = status.debris.iter().filter(|one| one.kind == word).count();
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                rest -= count;
                self.debris.with_label_values(&[namespace, name, &word]).set(count);
            }
            self.debris.with_label_values(&[namespace, name, OTHER]).set(rest.max(0));
            if !before.is_final() {
                self.runs.with_label_values(&[&status.phase.to_string()]).inc();
            }
        }
    }

    /// A Deorbit is gone, and its series with it.
    pub fn forget(&self, namespace: &str, name: &str) {
        for phase in Phase::ALL {
            drop(self.phase.remove_label_values(&[namespace, name, &phase.to_string()]));
        }
        drop(self.remaining.remove_label_values(&[namespace, name]));
        for (server, _) in SERVERS {
            drop(self.refused.remove_label_values(&[namespace, name, server]));
        }
        for kind in Kind::ALL {
            drop(self.debris.remove_label_values(&[namespace, name, &format!("{kind:?}")]));
        }
        drop(self.debris.remove_label_values(&[namespace, name, OTHER]));
    }
}

/// How many records of each kind are to be deleted.
#[must_use]
pub fn tally(records: &[Arc<Recorded>]) -> Vec<(Kind, usize)> {
    let of =
        |kind: Kind| records.iter().filter(|record| record.kind == kind && record.kept.is_none()).count();
    Kind::ALL.iter().map(|kind| (*kind, of(*kind))).filter(|(_, count)| *count > 0).collect()
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
        metrics.stored(("team", "prod"), Phase::Failed, &status);
        let value = |kind: &str| metrics.debris.with_label_values(&["team", "prod", kind]).get();
        assert_eq!((value("Volume"), value("Snapshot"), value(OTHER)), (1, 0, 6));
        assert_eq!(metrics.runs.with_label_values(&["Failed"]).get(), 0, "it had ended before");
    }
}
