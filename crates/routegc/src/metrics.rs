//! routegc's own metrics. `namespace` and `name` are those of the RouteGC, or of the ConfigMap with the status if the policy comes from
//! flags. Several RouteGCs may have one router. The series of a RouteGC are removed with it.

use std::collections::HashMap;

use common::api::routegc::{Counts, Quota};
use common::metrics::{Metrics as Common, register};
use jiff::Timestamp;
use prometheus::core::Collector as _;
use prometheus::{GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use crate::error::TIMED_OUT;

/// States of a route: each has its own series, also while it is zero.
const STATES: [&str; 7] = ["valid", "orphan", "foreign", "unknown", "invalid", "duplicate", "recreated"];
/// Guards that may prevent a removal.
const GUARDS: [&str; 3] = ["threshold", "partial", "precondition"];

/// Labels that the series of one policy share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Namespace of the object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// ID of its router; empty before it is known.
    pub router: String,
}

/// Counters and gauges of routegc, in addition to those of all controllers.
#[derive(Clone)]
pub struct Metrics {
    /// Metrics of all controllers.
    pub common: Common,
    routes: IntGaugeVec,
    limit: IntGaugeVec,
    removed: IntCounterVec,
    failed: IntCounterVec,
    blocked: IntCounterVec,
    success: GaugeVec,
    policies: IntGauge,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn new(common: Common) -> Result<Self, prometheus::Error> {
        let registry = common.registry();
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let success = Opts::new(
            "routegc_last_success_timestamp_seconds",
            "When a reconciliation of the router last succeeded.",
        );
        let policies = IntGauge::new("routegc_policies", "Policies that are served.")?;
        Ok(Metrics {
            routes: gauges(
                "routegc_routes",
                "Routes of the router by state; duplicate and recreated overlap with the others.",
                &["namespace", "name", "router", "state"],
            )?,
            limit: gauges(
                "routegc_routes_limit",
                "How many routes the cloud allows on the router; absent if the cloud does not report it.",
                &["namespace", "name", "router"],
            )?,
            removed: counters(
                "routegc_orphaned_routes_removed_total",
                "Routes removed.",
                &["namespace", "name", "router"],
            )?,
            failed: counters(
                "routegc_failed_operations_total",
                "Reconciliations that failed, by the reason of the condition Ready.",
                &["namespace", "name", "router", "reason"],
            )?,
            blocked: counters(
                "routegc_blocked_total",
                "Reconciliations in which a guard prevented removals: threshold, partial inventory, or a router that keeps changing.",
                &["namespace", "name", "router", "reason"],
            )?,
            success: register(registry, GaugeVec::new(success, &["namespace", "name", "router"])?)?,
            policies: register(registry, policies)?,
            common,
        })
    }

    /// Records what a reconciliation that succeeded observed.
    pub fn observed(&self, series: &Series, counts: &Counts, quota: &Quota, now: Timestamp) {
        let [namespace, name, router] = series.labels();
        let values = [
            counts.valid,
            counts.orphan,
            counts.foreign,
            counts.unknown,
            counts.invalid,
            counts.duplicates,
            counts.recreated,
        ];
        for (state, value) in STATES.iter().zip(values) {
            self.routes.with_label_values(&[namespace, name, router, state]).set(value.into());
        }
        match quota.limit {
            Some(limit) => self.limit.with_label_values(&[namespace, name, router]).set(limit),
            None => drop(self.limit.remove_label_values(&[namespace, name, router])),
        }
        self.begun(series);
        self.success.with_label_values(&[namespace, name, router]).set(now.as_second() as f64);
    }

    /// The router does not exist: the gauges about its routes are removed. With their last values, alerts about them would never resolve.
    pub fn no_router(&self, series: &Series) {
        let [namespace, name, router] = series.labels();
        for state in STATES {
            drop(self.routes.remove_label_values(&[namespace, name, router, state]));
        }
        drop(self.limit.remove_label_values(&[namespace, name, router]));
    }

    /// Creates the series of a RouteGC with zero, so that its first increase is visible to `increase()`.
    pub fn begun(&self, series: &Series) {
        let [namespace, name, router] = series.labels();
        self.removed.with_label_values(&[namespace, name, router]);
        self.success.with_label_values(&[namespace, name, router]);
        for guard in GUARDS {
            self.blocked.with_label_values(&[namespace, name, router, guard]);
        }
        self.failed.with_label_values(&[namespace, name, router, TIMED_OUT]);
    }

    /// Routes were removed.
    pub fn removed(&self, series: &Series, count: usize) {
        self.removed.with_label_values(&series.labels()).inc_by(count as u64);
    }

    /// A reconciliation failed.
    pub fn failed(&self, series: &Series, reason: &str) {
        self.begun(series);
        let [namespace, name, router] = series.labels();
        self.failed.with_label_values(&[namespace, name, router, reason]).inc();
    }

    /// A guard prevented removals.
    pub fn blocked(&self, series: &Series, guard: &str) {
        let [namespace, name, router] = series.labels();
        self.blocked.with_label_values(&[namespace, name, router, guard]).inc();
    }

    /// How many policies are served.
    pub fn policies(&self, count: usize) {
        self.policies.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A RouteGC is gone, or has another router: its series are removed.
    pub fn forget(&self, series: &Series) {
        self.no_router(series);
        let [namespace, name, router] = series.labels();
        drop(self.removed.remove_label_values(&[namespace, name, router]));
        drop(self.success.remove_label_values(&[namespace, name, router]));
        for guard in GUARDS {
            drop(self.blocked.remove_label_values(&[namespace, name, router, guard]));
        }
        remove(&self.failed, series);
    }
}

impl Series {
    fn labels(&self) -> [&str; 3] {
        [&self.namespace, &self.name, &self.router]
    }
}

/// Removes all series of one policy, found by their labels: their reasons are not known here. It reads the series of all policies.
fn remove(all: &IntCounterVec, series: &Series) {
    let theirs = series.labels().map(Some);
    for family in all.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> =
                metric.get_label().iter().map(|label| (label.name(), label.value())).collect();
            if ["namespace", "name", "router"].map(|name| labels.get(name).copied()) == theirs {
                drop(all.remove(&labels));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_routegc_of_a_router_has_its_own_series_which_are_removed_with_it() {
        let metrics = Metrics::new(Common::new("routegc").unwrap()).unwrap();
        let of = |name: &str| Series {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            router: "r1".to_owned(),
        };
        let (one, two) = (of("one"), of("two"));
        for (series, orphan) in [(&one, 1), (&two, 2)] {
            let counts = Counts { orphan, ..Counts::default() };
            let quota = Quota { limit: Some(30), ..Quota::default() };
            metrics.observed(series, &counts, &quota, Timestamp::UNIX_EPOCH);
            metrics.failed(series, "Forbidden");
            metrics.removed(series, 3);
        }
        let value = |name: &str| metrics.routes.with_label_values(&["team", name, "r1", "orphan"]).get();
        assert_eq!((value("one"), value("two")), (1, 2));
        let series = |name: &str| {
            let families = metrics.common.registry().gather();
            let all = families.iter().flat_map(|family| family.get_metric());
            all.filter(|one| one.get_label().iter().any(|label| label.value() == name)).count()
        };
        let each = STATES.len() + GUARDS.len() + 5;
        assert_eq!((series("one"), series("two")), (each, each));
        metrics.forget(&Series { router: "r2".to_owned(), ..one.clone() });
        assert_eq!(series("one"), each, "those of another router");
        metrics.forget(&one);
        assert_eq!((series("one"), series("two")), (0, each));
    }
}
