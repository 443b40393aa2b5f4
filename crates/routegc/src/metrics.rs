//! routegc's own metrics. `cluster` is the RouteGC, as `namespace/name`: several may judge routes of one router. What it counted
//! goes with it.

use std::collections::HashMap;

use common::api::routegc::{Counts, Quota};
use common::metrics::Metrics as Common;
use jiff::Timestamp;
use prometheus::core::{Collector as _, MetricVec, MetricVecBuilder};
use prometheus::{GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use crate::error::TIMED_OUT;

/// States of a route: each has its own series, also while it is zero.
const STATES: [&str; 7] = ["valid", "orphan", "foreign", "unknown", "invalid", "duplicate", "contested"];
/// Guards that may hold a removal back.
const GUARDS: [&str; 3] = ["threshold", "partial", "precondition"];

/// Whose series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The RouteGC, as `namespace/name`; where flags are the policy, the ConfigMap that remembers for them.
    pub cluster: String,
    /// ID of its router.
    pub router: String,
}

/// Counters and gauges of routegc, beside those that all controllers have.
#[derive(Clone)]
pub struct Metrics {
    /// Those that all controllers have.
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
            let gauges = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauges.clone()))?;
            Ok::<_, prometheus::Error>(gauges)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let success = GaugeVec::new(
            Opts::new(
                "routegc_last_success_timestamp_seconds",
                "When a pass over the router last succeeded.",
            ),
            &["cluster", "router"],
        )?;
        registry.register(Box::new(success.clone()))?;
        let policies = IntGauge::new("routegc_policies", "Policies that are served.")?;
        registry.register(Box::new(policies.clone()))?;
        Ok(Metrics {
            routes: gauges(
                "routegc_routes",
                "Routes of the router by what they are; duplicate and contested overlap with the others.",
                &["cluster", "router", "state"],
            )?,
            limit: gauges(
                "routegc_routes_limit",
                "How many routes the cloud allows on the router; absent where it does not say.",
                &["cluster", "router"],
            )?,
            removed: counters(
                "routegc_orphaned_routes_removed_total",
                "Routes removed.",
                &["cluster", "router"],
            )?,
            failed: counters(
                "routegc_failed_operations_total",
                "Passes that could not be finished, by the reason in the condition Ready.",
                &["cluster", "router", "reason"],
            )?,
            blocked: counters(
                "routegc_blocked_total",
                "Passes in which a guard held removals back: threshold, partial view, or a router that keeps changing.",
                &["cluster", "router", "reason"],
            )?,
            success,
            policies,
            common,
        })
    }

    /// Takes over what a pass that succeeded has found.
    pub fn observed(&self, whose: &Whose, counts: &Counts, quota: &Quota, now: Timestamp) {
        let [cluster, router] = whose.labels();
        let values = [
            counts.valid,
            counts.orphan,
            counts.foreign,
            counts.unknown,
            counts.invalid,
            counts.duplicates,
            counts.contested,
        ];
        for (state, value) in STATES.iter().zip(values) {
            self.routes.with_label_values(&[cluster, router, state]).set(value.into());
        }
        match quota.limit {
            Some(limit) => self.limit.with_label_values(&[cluster, router]).set(limit),
            None => drop(self.limit.remove_label_values(&[cluster, router])),
        }
        self.begun(whose);
        self.success.with_label_values(&[cluster, router]).set(now.as_second() as f64);
    }

    /// Counters of a RouteGC begin at zero, so that their first rise is one; and so does the time of its last success, whose first
    /// change is one.
    pub fn begun(&self, whose: &Whose) {
        let [cluster, router] = whose.labels();
        self.removed.with_label_values(&[cluster, router]);
        self.success.with_label_values(&[cluster, router]);
        for guard in GUARDS {
            self.blocked.with_label_values(&[cluster, router, guard]);
        }
        self.failed.with_label_values(&[cluster, router, TIMED_OUT]);
    }

    /// Routes were removed.
    pub fn removed(&self, whose: &Whose, count: usize) {
        self.removed.with_label_values(&whose.labels()).inc_by(count as u64);
    }

    /// A pass could not be finished.
    pub fn failed(&self, whose: &Whose, reason: &str) {
        self.begun(whose);
        let [cluster, router] = whose.labels();
        self.failed.with_label_values(&[cluster, router, reason]).inc();
    }

    /// A guard held removals back.
    pub fn blocked(&self, whose: &Whose, guard: &str) {
        let [cluster, router] = whose.labels();
        self.blocked.with_label_values(&[cluster, router, guard]).inc();
    }

    /// How many policies are served.
    pub fn policies(&self, count: usize) {
        self.policies.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A RouteGC is gone, or has another router: its series go.
    pub fn forget(&self, whose: &Whose) {
        take_out(&self.routes, whose);
        take_out(&self.limit, whose);
        take_out(&self.removed, whose);
        take_out(&self.failed, whose);
        take_out(&self.blocked, whose);
        take_out(&self.success, whose);
    }
}

impl Whose {
    fn labels(&self) -> [&str; 2] {
        [&self.cluster, &self.router]
    }
}

/// Which reasons there are is known to the series alone.
fn take_out<T: MetricVecBuilder>(all: &MetricVec<T>, whose: &Whose) {
    let theirs = [Some(whose.cluster.as_str()), Some(whose.router.as_str())];
    for family in all.collect() {
        for series in family.get_metric() {
            let labels: HashMap<&str, &str> =
                series.get_label().iter().map(|label| (label.name(), label.value())).collect();
            if ["cluster", "router"].map(|name| labels.get(name).copied()) == theirs {
                drop(all.remove(&labels));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_routegc_of_a_router_has_series_of_its_own_and_they_go_with_it() {
        let metrics = Metrics::new(Common::new("routegc").unwrap()).unwrap();
        let whose = |cluster: &str| Whose { cluster: cluster.to_owned(), router: "r1".to_owned() };
        let (one, two) = (whose("team/one"), whose("team/two"));
        for (whose, orphan) in [(&one, 1), (&two, 2)] {
            let counts = Counts { orphan, ..Counts::default() };
            let quota = Quota { limit: Some(30), ..Quota::default() };
            metrics.observed(whose, &counts, &quota, Timestamp::UNIX_EPOCH);
            metrics.failed(whose, "Forbidden");
            metrics.removed(whose, 3);
        }
        let value = |cluster: &str| metrics.routes.with_label_values(&[cluster, "r1", "orphan"]).get();
        assert_eq!((value("team/one"), value("team/two")), (1, 2));
        let series = |cluster: &str| {
            let families = metrics.common.registry().gather();
            let all = families.iter().flat_map(|family| family.get_metric());
            all.filter(|one| one.get_label().iter().any(|label| label.value() == cluster)).count()
        };
        let each = STATES.len() + GUARDS.len() + 5;
        assert_eq!((series("team/one"), series("team/two")), (each, each));
        metrics.forget(&Whose { router: "r2".to_owned(), ..one.clone() });
        assert_eq!(series("team/one"), each, "those of another router");
        metrics.forget(&one);
        assert_eq!((series("team/one"), series("team/two")), (0, each));
    }
}
