//! Metrics of requests to clouds: one family for all of them.

use std::time::Duration;

use ::http::{Method, StatusCode};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// From a near data centre to the longest deadline of one exchange.
const BUCKETS: [f64; 11] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// `cloud_api_requests_total{cloud,service,method,code}`, `cloud_api_request_duration_seconds{cloud,service,method}` and
/// `cloud_api_rate_limit_remaining{cloud}`. Clones count together.
#[derive(Clone, Debug)]
pub(in crate::cloud) struct Metrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    remaining: IntGaugeVec,
}

impl Metrics {
    /// The cloud is a constant label, so that clients of several clouds share one registry. One cloud registers once.
    pub fn register(cloud: &str, registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new(
                "cloud_api_requests_total",
                "Requests to a cloud's API by service, method and status code; <error> if no complete response came.",
            )
            .const_label("cloud", cloud),
            &["service", "method", "code"],
        )?;
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "cloud_api_request_duration_seconds",
                "Duration of requests to a cloud's API, body included.",
            )
            .const_label("cloud", cloud)
            .buckets(BUCKETS.to_vec()),
            &["service", "method"],
        )?;
        // A vector without labels is absent until the cloud has named a number; zero would raise an alert.
        let remaining = IntGaugeVec::new(
            Opts::new(
                "cloud_api_rate_limit_remaining",
                "Requests that the cloud's API still allowed at its last response.",
            )
            .const_label("cloud", cloud),
            &[],
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(remaining.clone()))?;
        Ok(Metrics { requests, duration, remaining })
    }

    /// Counts one exchange. `service` is one of a closed set; `code` is None if no complete response came.
    pub fn exchange(&self, service: &str, method: &Method, code: Option<StatusCode>, took: Duration) {
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.requests.with_label_values(&[service, method.as_str(), code]).inc();
        self.duration.with_label_values(&[service, method.as_str()]).observe(took.as_secs_f64());
    }

    /// Sets how many requests the cloud still allows.
    pub fn remaining(&self, requests: u64) {
        self.remaining.with_label_values::<&str>(&[]).set(i64::try_from(requests).unwrap_or(i64::MAX));
    }
}
