//! The metrics that every controller has, under the names that dashboards for controller-runtime and client-go look for.
//!
//! Label sets are closed: verbs, codes, kinds and reasons out of fixed sets, never an object's name. A metric that grows
//! with the cluster is a memory leak in every Prometheus that scrapes it.

use std::time::{Duration, Instant};

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::args::{REVISION, RUSTC};

/// controller-runtime's buckets for a pass: 5 ms to 60 s.
const PASS_SECONDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0];

/// client-go's buckets for a request: 5 ms to 60 s.
const REQUEST_SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// All metrics of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    controller: &'static str,
    registry: Registry,
    passes: IntCounterVec,
    pass_errors: IntCounterVec,
    pass_seconds: HistogramVec,
    steps: IntCounterVec,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    leading: IntGaugeVec,
    watch_errors: IntCounterVec,
}

/// How a step of a plan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionResult {
    /// It was done.
    Done,
    /// It was not, or not known to be.
    Failed,
}

impl Metrics {
    /// Registers everything below, the build information and, on Linux, the process itself.
    ///
    /// # Errors
    /// When a name is no Prometheus name: `controller` must be letters, digits, `-` and `_`.
    pub fn new(controller: &'static str) -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| -> Result<IntCounterVec, prometheus::Error> {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let histogram = |name: &str, help: &str, labels: &[&str], buckets: &[f64]| {
            let histogram =
                HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| -> Result<IntGaugeVec, prometheus::Error> {
            let gauge = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let metrics = Metrics {
            controller,
            passes: counter(
                "controller_runtime_reconcile_total",
                "Passes from observe to apply, by how they ended",
                &["controller", "result"],
            )?,
            pass_errors: counter(
                "controller_runtime_reconcile_errors_total",
                "Passes that failed",
                &["controller"],
            )?,
            pass_seconds: histogram(
                "controller_runtime_reconcile_time_seconds",
                "How long a pass took",
                &["controller"],
                &PASS_SECONDS,
            )?,
            steps: counter(
                "perimeter_actions_total",
                "Outward acts, by what was done, why and how it ended",
                &["controller", "action", "reason", "result"],
            )?,
            requests: counter(
                "rest_client_requests_total",
                "Requests to the Kubernetes API by HTTP code and method; code <error> where there was no answer",
                &["code", "method"],
            )?,
            request_seconds: histogram(
                "rest_client_request_duration_seconds",
                "Time until the headers of the answer of the Kubernetes API",
                &["verb"],
                &REQUEST_SECONDS,
            )?,
            leading: gauge(
                "leader_election_master_status",
                "1 while this process holds the Lease, 0 while it stands by",
                &["name"],
            )?,
            watch_errors: counter(
                "perimeter_watch_errors_total",
                "Watches that broke or did not start",
                &["kind", "reason"],
            )?,
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
        // Present from the start: an alert on a rate needs the zero before the first failure.
        for result in ["success", "error"] {
            metrics.passes.with_label_values(&[controller, result]);
        }
        metrics.pass_errors.with_label_values(&[controller]);
        Ok(metrics)
    }

    /// Where a controller registers its own.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Starts the clock of one pass.
    pub fn pass(&self) -> Pass {
        Pass { metrics: self.clone(), start: Instant::now(), succeeded: false }
    }

    /// Counts one step of a plan; `action` and `reason` are its closed words.
    pub fn step(&self, action: &'static str, reason: &'static str, result: ActionResult) {
        let result = match result {
            ActionResult::Done => "done",
            ActionResult::Failed => "failed",
        };
        self.steps.with_label_values(&[self.controller, action, reason, result]).inc();
    }

    /// Counts one answer of the API server, or the want of one.
    pub(crate) fn request(&self, method: &http::Method, code: Option<http::StatusCode>, took: Duration) {
        let method = match method.as_str() {
            known @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS") => known,
            _ => "other",
        };
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.as_u16().to_string());
        self.requests.with_label_values(&[code.as_str(), method]).inc();
        self.request_seconds.with_label_values(&[method]).observe(took.as_secs_f64());
    }

    /// The gauge of one Lease: 1 while it is held.
    pub(crate) fn leading(&self, lease: &str) -> IntGauge {
        self.leading.with_label_values(&[lease])
    }

    /// Counts one broken watch.
    pub(crate) fn watch_error(&self, kind: &str, reason: &'static str) {
        self.watch_errors.with_label_values(&[kind, reason]).inc();
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

/// One pass: counted and timed when it is dropped. One that nobody called a success counts as failed, so that an early
/// return by `?` and a pass that was cut off are counted right.
#[derive(Debug)]
#[must_use = "a pass is counted when it is dropped"]
pub struct Pass {
    metrics: Metrics,
    start: Instant,
    succeeded: bool,
}

impl Pass {
    /// Ends it as a success.
    pub fn succeeded(mut self) {
        self.succeeded = true;
    }

    /// Ends it as a failure.
    pub fn failed(self) {}
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Metrics { controller, passes, pass_errors, pass_seconds, .. } = &self.metrics;
        let controller = *controller;
        passes.with_label_values(&[controller, if self.succeeded { "success" } else { "error" }]).inc();
        if !self.succeeded {
            pass_errors.with_label_values(&[controller]).inc();
        }
        pass_seconds.with_label_values(&[controller]).observe(self.start.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.text().unwrap()).unwrap()
    }

    #[test]
    fn a_pass_that_nobody_called_a_success_counts_as_failed() {
        let metrics = Metrics::new("natgw").unwrap();
        metrics.pass().succeeded();
        metrics.pass().failed();
        drop(metrics.pass());
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
        metrics.request(&http::Method::GET, Some(http::StatusCode::OK), Duration::from_millis(1));
        metrics.request(&http::Method::PATCH, None, Duration::from_secs(9));
        metrics.request(&http::Method::from_bytes(b"ODD").unwrap(), None, Duration::ZERO);
        metrics.step("CreateJob", "Missing", ActionResult::Done);
        metrics.leading("natgw").set(1);
        metrics.watch_error("Node", "forbidden");
        let text = text(&metrics);
        for line in [
            "rest_client_requests_total{code=\"200\",method=\"GET\"} 1",
            "rest_client_requests_total{code=\"<error>\",method=\"PATCH\"} 1",
            "rest_client_requests_total{code=\"<error>\",method=\"other\"} 1",
            "rest_client_request_duration_seconds_count{verb=\"GET\"} 1",
            "leader_election_master_status{name=\"natgw\"} 1",
            "perimeter_watch_errors_total{kind=\"Node\",reason=\"forbidden\"} 1",
            "perimeter_actions_total{action=\"CreateJob\",controller=\"egress-router\",reason=\"Missing\",result=\"done\"} 1",
            "egress_router_build_info{revision=",
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
