//! Metrics of the keeper. A process has one virtual router, so none of them needs a label for it.

use common::metrics::register;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// From a request in the same cluster to several failed ones.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The metrics, which the reporter sets. Clones share them.
#[derive(Clone, Debug)]
pub struct KeeperMetrics {
    pub(super) master: IntGauge,
    pub(super) vips: IntGauge,
    pub(super) registered: IntGauge,
    pub(super) configuration_outdated: IntGauge,
    pub(super) transitions: IntCounterVec,
    pub(super) notification_seconds: Histogram,
    pub(super) notification_failures: IntCounter,
    pub(super) stripped: IntCounter,
    pub(super) restarts: IntCounterVec,
}

impl KeeperMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<KeeperMetrics, prometheus::Error> {
        let gauge = |name: &str, help: &str| register(registry, IntGauge::new(name, help)?);
        let counter = |name: &str, help: &str| register(registry, IntCounter::new(name, help)?);
        let counters = |name: &str, help: &str, label: &str| {
            register(registry, IntCounterVec::new(Opts::new(name, help), &[label])?)
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
            notification_seconds: register(
                registry,
                Histogram::with_opts(seconds.buckets(SECONDS.to_vec()))?,
            )?,
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
}
