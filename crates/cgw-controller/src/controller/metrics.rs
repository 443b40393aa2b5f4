//! Metrics of the controller, in addition to those of all programs.

use std::time::Duration;

use common::metrics::register;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// The problems, as labels.
const PROBLEMS: [&str; 6] =
    ["ServiceMissing", "NamespaceMissing", "OtherVip", "PortConflict", "NoMaster", "InvalidEntry"];

/// From a flip of a few Services, in milliseconds, to one of thousands while the API server is slow.
const NOTIFY_SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Counters and gauges of the controller.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: IntCounterVec,
    notify: Histogram,
    patched: IntCounterVec,
    bindings: IntGaugeVec,
    hosts: IntGauge,
    problems: IntGaugeVec,
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

    /// Counts a request. Another path than those of the API is `other`.
    pub fn requested(&self, route: Option<&'static str>, code: u16) {
        self.requests.with_label_values(&[route.unwrap_or("other"), &code.to_string()]).inc();
    }

    /// Measures a notification.
    pub fn notified(&self, took: Duration) {
        self.notify.observe(took.as_secs_f64());
    }

    /// Counts a patch of a Service.
    pub fn patched(&self, result: &'static str) {
        self.patched.with_label_values(&[result]).inc();
    }

    /// Sets the numbers of bindings by scope, and of keepers.
    pub fn observed(&self, namespaces: usize, services: usize, hosts: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.bindings.with_label_values(&["namespace"]).set(number(namespaces));
        self.bindings.with_label_values(&["service"]).set(number(services));
        self.hosts.set(number(hosts));
    }

    /// Sets the number of entries of stores that cannot be read.
    pub fn invalid_entries(&self, count: usize) {
        self.problems.with_label_values(&["InvalidEntry"]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A problem of a VIP begins.
    pub fn problem_begins(&self, reason: &'static str) {
        self.problems.with_label_values(&[reason]).inc();
    }

    /// A problem of a VIP ends.
    pub fn problem_ends(&self, reason: &'static str) {
        self.problems.with_label_values(&[reason]).dec();
    }
}
