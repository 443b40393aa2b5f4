//! The metrics that every controller has, under the names that dashboards for controller-runtime and client-go look for.
//!
//! Label sets are closed: verbs, codes, kinds and reasons out of fixed sets, never an object's name. A metric that grows
//! with the cluster is a memory leak in every Prometheus that scrapes it.
//!
//! The label `api` tells the clusters of one program apart: `main`, the name of a further one
//! ([`ClusterName`](crate::cluster::ClusterName)), or `target` for all whose kubeconfigs are in Secrets of custom resources.

use std::time::{Duration, Instant};

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::Collector,
};

use crate::args::{REVISION, RUSTC};

/// controller-runtime's buckets for a reconciliation: 5 ms to 60 s.
const RECONCILE_SECONDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0];

/// client-go's buckets for a request: 5 ms to 60 s.
const REQUEST_SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// All metrics of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    controller: &'static str,
    registry: Registry,
    reconciliations: IntCounterVec,
    reconcile_errors: IntCounterVec,
    reconcile_seconds: HistogramVec,
    actions: IntCounterVec,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    leading: IntGaugeVec,
    watch_errors: IntCounterVec,
    events: IntCounterVec,
}

/// Registers a metric and returns it. The registry has a clone, which shares its values.
///
/// # Errors
/// Its name is registered already.
pub fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// The result of publishing an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventResult {
    /// The API server accepted it.
    Published,
    /// The API server refused it, or did not respond.
    Failed,
    /// The queue was full.
    Dropped,
}

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionResult {
    /// It succeeded.
    Done,
    /// It failed, or its result is not known.
    Failed,
}

impl Metrics {
    /// Registers everything below, the build information and, on Linux, the process itself.
    ///
    /// # Errors
    /// When a name is no Prometheus name: `controller` must be letters, digits, `-` and `_`.
    pub fn new(controller: &'static str) -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let histogram = |name: &str, help: &str, labels: &[&str], buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            register(&registry, HistogramVec::new(options, labels)?)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        let metrics = Metrics {
            controller,
            reconciliations: counter(
                "controller_runtime_reconcile_total",
                "Reconciliations, by result",
                &["controller", "result"],
            )?,
            reconcile_errors: counter(
                "controller_runtime_reconcile_errors_total",
                "Failed reconciliations",
                &["controller"],
            )?,
            reconcile_seconds: histogram(
                "controller_runtime_reconcile_time_seconds",
                "Duration of a reconciliation",
                &["controller"],
                &RECONCILE_SECONDS,
            )?,
            actions: counter(
                "perimeter_actions_total",
                "Executed actions, by action, reason and result",
                &["controller", "action", "reason", "result"],
            )?,
            requests: counter(
                "rest_client_requests_total",
                "Requests to the Kubernetes API by HTTP status code and method; code <error> where no response arrived",
                &["api", "code", "method"],
            )?,
            request_seconds: histogram(
                "rest_client_request_duration_seconds",
                "Time until the response headers of the Kubernetes API",
                &["api", "verb"],
                &REQUEST_SECONDS,
            )?,
            leading: gauge(
                "leader_election_master_status",
                "1 while this process holds the Lease, 0 while it is a standby",
                &["name"],
            )?,
            watch_errors: counter(
                "perimeter_watch_errors_total",
                "Watches that broke or did not start",
                &["api", "kind", "reason"],
            )?,
            events: counter("perimeter_events_total", "Kubernetes Events, by result", &["result"])?,
            registry: registry.clone(),
        };
        let build = gauge(
            &format!("{}_build_info", controller.replace('-', "_")),
            "Always 1; the labels say what runs",
            &["version", "revision", "rustc"],
        )?;
        // All crates of the workspace share one version.
        build.with_label_values(&[env!("CARGO_PKG_VERSION"), REVISION, RUSTC]).set(1);
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        metrics.controller(controller);
        Ok(metrics)
    }

    /// The registry for a controller's own metrics.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Creates the reconcile metrics of a controller with the value zero: an alert on a rate needs the zero before the first
    /// failure. [`Metrics::new`] does so for the program's own name.
    pub fn controller(&self, controller: &'static str) {
        for result in ["success", "error"] {
            self.reconciliations.with_label_values(&[controller, result]);
        }
        self.reconcile_errors.with_label_values(&[controller]);
    }

    /// Starts to measure one reconciliation.
    pub fn reconciliation(&self, controller: &'static str) -> Reconciliation {
        Reconciliation { metrics: self.clone(), controller, start: Instant::now(), succeeded: false }
    }

    /// Counts one action; `action` and `reason` are words of closed sets.
    pub fn action(&self, action: &'static str, reason: &'static str, result: ActionResult) {
        let result = match result {
            ActionResult::Done => "done",
            ActionResult::Failed => "failed",
        };
        self.actions.with_label_values(&[self.controller, action, reason, result]).inc();
    }

    /// Counts one request to the API server of a cluster; without a code no response arrived.
    pub(crate) fn request(
        &self,
        api: &'static str,
        method: &http::Method,
        code: Option<http::StatusCode>,
        took: Duration,
    ) {
        let method = match method.as_str() {
            known @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS") => known,
            _ => "other",
        };
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.as_u16().to_string());
        self.requests.with_label_values(&[api, code.as_str(), method]).inc();
        self.request_seconds.with_label_values(&[api, method]).observe(took.as_secs_f64());
    }

    /// The gauge of one Lease: 1 while it is held.
    pub(crate) fn leading(&self, lease: &str) -> IntGauge {
        self.leading.with_label_values(&[lease])
    }

    /// Counts one Event.
    pub(crate) fn event(&self, result: EventResult) {
        let result = match result {
            EventResult::Published => "published",
            EventResult::Failed => "failed",
            EventResult::Dropped => "dropped",
        };
        self.events.with_label_values(&[result]).inc();
    }

    /// Counts one broken watch of a cluster.
    pub(crate) fn watch_error(&self, api: &'static str, kind: &str, reason: &'static str) {
        self.watch_errors.with_label_values(&[api, kind, reason]).inc();
    }

    /// Everything in the Prometheus text format.
    ///
    /// # Errors
    /// When a collector contradicts itself; that would be a mistake in a controller's own one.
    pub fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// One reconciliation: counted and measured when it is dropped. It counts as failed unless [`Reconciliation::succeeded`] was
/// called, so that an early return by `?` and a dropped future are counted as failures.
#[derive(Debug)]
#[must_use = "a reconciliation is counted when it is dropped"]
pub struct Reconciliation {
    metrics: Metrics,
    controller: &'static str,
    start: Instant,
    succeeded: bool,
}

impl Reconciliation {
    /// Ends it as a success.
    pub fn succeeded(mut self) {
        self.succeeded = true;
    }

    /// Ends it as a failure.
    pub fn failed(self) {}
}

impl Drop for Reconciliation {
    fn drop(&mut self) {
        let Metrics { reconciliations, reconcile_errors, reconcile_seconds, .. } = &self.metrics;
        let controller = self.controller;
        let result = if self.succeeded { "success" } else { "error" };
        reconciliations.with_label_values(&[controller, result]).inc();
        if !self.succeeded {
            reconcile_errors.with_label_values(&[controller]).inc();
        }
        reconcile_seconds.with_label_values(&[controller]).observe(self.start.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.text().unwrap()).unwrap()
    }

    #[test]
    fn a_reconciliation_without_a_reported_success_counts_as_failed() {
        let metrics = Metrics::new("natgw").unwrap();
        metrics.reconciliation("natgw").succeeded();
        metrics.reconciliation("natgw").failed();
        drop(metrics.reconciliation("natgw"));
        let text = text(&metrics);
        for line in [
            "controller_runtime_reconcile_total{controller=\"natgw\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"natgw\",result=\"error\"} 2",
            "controller_runtime_reconcile_errors_total{controller=\"natgw\"} 2",
            "controller_runtime_reconcile_time_seconds_count{controller=\"natgw\"} 3",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn names_and_labels_are_those_of_client_go() {
        let metrics = Metrics::new("egress-router").unwrap();
        metrics.request("main", &http::Method::GET, Some(http::StatusCode::OK), Duration::from_millis(1));
        metrics.request("main", &http::Method::PATCH, None, Duration::from_secs(9));
        metrics.request("main", &http::Method::from_bytes(b"ODD").unwrap(), None, Duration::ZERO);
        metrics.action("CreateJob", "Missing", ActionResult::Done);
        metrics.leading("natgw").set(1);
        metrics.watch_error("edge", "Node", "forbidden");
        let text = text(&metrics);
        for line in [
            "rest_client_requests_total{api=\"main\",code=\"200\",method=\"GET\"} 1",
            "rest_client_requests_total{api=\"main\",code=\"<error>\",method=\"PATCH\"} 1",
            "rest_client_requests_total{api=\"main\",code=\"<error>\",method=\"other\"} 1",
            "rest_client_request_duration_seconds_count{api=\"main\",verb=\"GET\"} 1",
            "leader_election_master_status{name=\"natgw\"} 1",
            "perimeter_watch_errors_total{api=\"edge\",kind=\"Node\",reason=\"forbidden\"} 1",
            "perimeter_actions_total{action=\"CreateJob\",controller=\"egress-router\",reason=\"Missing\",result=\"done\"} 1",
            "egress_router_build_info{revision=",
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
