//! Metrics of the controller, in addition to those of all programs.

use common::metrics::register;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// The problems, as labels.
const PROBLEMS: [&str; 6] =
    ["ServiceMissing", "NamespaceMissing", "OtherVip", "PortConflict", "NoMaster", "InvalidEntry"];

/// From a flip of a few Services, in milliseconds, to one of thousands while the API server is slow.
const NOTIFY_SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0];

/// The metrics, which their users set. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) requests: IntCounterVec,
    pub(super) notify: Histogram,
    pub(super) patched: IntCounterVec,
    pub(super) bindings: IntGaugeVec,
    pub(super) hosts: IntGauge,
    pub(super) problems: IntGaugeVec,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        let seconds = HistogramOpts::new(
            "cgw_controller_master_notify_seconds",
            "From a notification of a keeper until the last Service is patched",
        );
        let hosts = IntGauge::new("cgw_controller_keepers", "Keepers that are registered")?;
        let metrics = Metrics {
            requests: counters(
                "cgw_controller_requests_total",
                "Authenticated requests of the HTTP API, by route and status code",
                &["route", "code"],
            )?,
            notify: register(registry, Histogram::with_opts(seconds.buckets(NOTIFY_SECONDS.to_vec()))?)?,
            patched: counters(
                "cgw_controller_service_patches_total",
                "Patches of tenants' Services, by result",
                &["result"],
            )?,
            bindings: gauges("cgw_controller_bindings", "Bound VIPs, by scope", &["scope"])?,
            hosts: register(registry, hosts)?,
            problems: gauges(
                "cgw_controller_problems",
                "VIPs, and entries of stores, with a problem that a person has to solve, by reason",
                &["reason"],
            )?,
        };
        for result in ["done", "conflict", "failed"] {
            metrics.patched.with_label_values(&[result]);
        }
        for reason in PROBLEMS {
            metrics.problems.with_label_values(&[reason]);
        }
        Ok(metrics)
    }
}
