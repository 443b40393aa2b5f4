//! Metrics of the keeper. A process has one virtual router, so none of them needs a label for it.

use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, core::Collector,
};

use crate::api::http::VrrpState;

/// From a request in the same cluster to several failed ones.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct KeeperMetrics {
    master: IntGauge,
    vips: IntGauge,
    registered: IntGauge,
    configuration_outdated: IntGauge,
    transitions: IntCounterVec,
    notification_seconds: Histogram,
    notification_failures: IntCounter,
    stripped: IntCounter,
    restarts: IntCounterVec,
}

impl KeeperMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<KeeperMetrics, prometheus::Error> {
        fn add<C: Collector + Clone + 'static>(
            registry: &Registry,
            metric: C,
        ) -> Result<C, prometheus::Error> {
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        }
        let gauge = |name: &str, help: &str| add(registry, IntGauge::new(name, help)?);
        let counter = |name: &str, help: &str| add(registry, IntCounter::new(name, help)?);
        let counters = |name: &str, help: &str, label: &str| {
            add(registry, IntCounterVec::new(Opts::new(name, help), &[label])?)
        };
        let seconds = HistogramOpts::new(
            "cgw_keeper_notification_seconds",
            "Time from a change of the MASTER's state until the controller has confirmed it",
        );
        Ok(KeeperMetrics {
            master: gauge("cgw_keeper_master", "1 while the VRRP instance is MASTER")?,
            vips: gauge("cgw_keeper_vips", "VIPs on the interface of the VIPs")?,
            registered: gauge(
                "cgw_keeper_registered",
                "1 while the store hosts has the entry of this keeper",
            )?,
            configuration_outdated: gauge(
                "cgw_keeper_configuration_outdated",
                "1 while the changed configuration is not used",
            )?,
            transitions: counters(
                "cgw_keeper_transitions_total",
                "State changes of the VRRP instance",
                "state",
            )?,
            notification_seconds: add(registry, Histogram::with_opts(seconds.buckets(SECONDS.to_vec()))?)?,
            notification_failures: counter(
                "cgw_keeper_notification_failures_total",
                "Notifications that the controller did not confirm",
            )?,
            stripped: counter(
                "cgw_keeper_stripped_vips_total",
                "Addresses that were removed because keepalived or the keeper did not run",
            )?,
            restarts: counters("cgw_keeper_keepalived_restarts_total", "Restarts of keepalived", "reason")?,
        })
    }

    /// The VRRP instance has entered a state.
    pub fn entered(&self, state: VrrpState) {
        self.master.set(i64::from(state == VrrpState::Master));
        self.transitions.with_label_values(&[state.to_string()]).inc();
    }

    /// VIPs on the interface.
    pub fn vips(&self, count: usize) {
        self.vips.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether the entry is in the store.
    pub fn registered(&self, registered: bool) {
        self.registered.set(i64::from(registered));
    }

    /// Whether the changed configuration is used.
    pub fn configured(&self, is_used: bool) {
        self.configuration_outdated.set(i64::from(!is_used));
    }

    /// The controller has confirmed a state, so long after its change.
    pub fn notified(&self, after: Duration) {
        self.notification_seconds.observe(after.as_secs_f64());
    }

    /// A notification failed.
    pub fn notification_failed(&self) {
        self.notification_failures.inc();
    }

    /// Addresses were removed.
    pub fn stripped(&self, count: usize) {
        self.stripped.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// keepalived is restarted; `reason` is one of a closed set.
    pub fn restarted(&self, reason: &'static str) {
        self.restarts.with_label_values(&[reason]).inc();
    }
}
