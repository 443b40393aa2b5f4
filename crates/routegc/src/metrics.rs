//! routegc's own metrics. The label `router` is as closed as the set of policies: a router that no policy names any more is
//! taken out.

use common::api::routegc::{Counts, Quota};
use common::metrics::Metrics as Common;
use jiff::Timestamp;
use prometheus::{GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use crate::error::TIMED_OUT;

/// States of a route: each has its own series, also while it is zero.
const STATES: [&str; 7] = ["valid", "orphan", "foreign", "unknown", "invalid", "duplicate", "contested"];
/// Guards that may hold a removal back.
const GUARDS: [&str; 3] = ["threshold", "partial", "precondition"];

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
            &["router"],
        )?;
        registry.register(Box::new(success.clone()))?;
        let policies = IntGauge::new("routegc_policies", "Policies that are served.")?;
        registry.register(Box::new(policies.clone()))?;
        Ok(Metrics {
            routes: gauges(
                "routegc_routes",
                "Routes of the router by what they are; duplicate and contested overlap with the others.",
                &["router", "state"],
            )?,
            limit: gauges(
                "routegc_routes_limit",
                "How many routes the cloud allows on the router; absent where it does not say.",
                &["router"],
            )?,
            removed: counters("routegc_orphaned_routes_removed_total", "Routes removed.", &["router"])?,
            failed: counters(
                "routegc_failed_operations_total",
                "Passes that could not be finished, by the reason in the condition Ready.",
                &["router", "reason"],
            )?,
            blocked: counters(
                "routegc_blocked_total",
                "Passes in which a guard held removals back: threshold, partial view, or a router that keeps changing.",
                &["router", "reason"],
            )?,
            success,
            policies,
            common,
        })
    }

    /// Takes over what a pass that succeeded has found.
    pub fn observed(&self, router: &str, counts: &Counts, quota: &Quota, now: Timestamp) {
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
            self.routes.with_label_values(&[router, state]).set(value.into());
        }
        match quota.limit {
            Some(limit) => self.limit.with_label_values(&[router]).set(limit),
            None => drop(self.limit.remove_label_values(&[router])),
        }
        self.begun(router);
        self.success.with_label_values(&[router]).set(now.as_second() as f64);
    }

    /// Counters of a router begin at zero, so that their first rise is one.
    pub fn begun(&self, router: &str) {
        self.removed.with_label_values(&[router]);
        for guard in GUARDS {
            self.blocked.with_label_values(&[router, guard]);
        }
        self.failed.with_label_values(&[router, TIMED_OUT]);
    }

    /// Routes were removed.
    pub fn removed(&self, router: &str, count: usize) {
        self.removed.with_label_values(&[router]).inc_by(count as u64);
    }

    /// A pass could not be finished.
    pub fn failed(&self, router: &str, reason: &str) {
        self.begun(router);
        self.failed.with_label_values(&[router, reason]).inc();
    }

    /// A guard held removals back.
    pub fn blocked(&self, router: &str, guard: &str) {
        self.blocked.with_label_values(&[router, guard]).inc();
    }

    /// How many policies are served.
    pub fn policies(&self, count: usize) {
        self.policies.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A router that no policy names any more. Its counters stay: a counter that vanishes is no news, one that comes back low is.
    pub fn forget(&self, router: &str) {
        for state in STATES {
            let _ = self.routes.remove_label_values(&[router, state]);
        }
        let _ = self.limit.remove_label_values(&[router]);
        let _ = self.success.remove_label_values(&[router]);
    }
}
