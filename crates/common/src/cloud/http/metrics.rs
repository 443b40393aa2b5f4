//! What a scrape sees of a cloud client.

use std::time::Duration;

use ::http::{Method, StatusCode};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// From a near data centre to the exchange deadline of 15 s.
const BUCKETS: [f64; 9] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0];

#[derive(Clone, Debug)]
pub(super) struct Metrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    remaining: IntGaugeVec,
}

impl Metrics {
    /// The cloud is a constant label, so that clients of several clouds share one registry; one cloud registers once.
    pub fn register(cloud: &str, registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new(
                "cloud_requests_total",
                "Requests to a cloud's API by status code; <error> if no whole answer came.",
            )
            .const_label("cloud", cloud),
            &["code", "method"],
        )?;
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "cloud_request_duration_seconds",
                "Duration of requests to a cloud's API, body included.",
            )
            .const_label("cloud", cloud)
            .buckets(BUCKETS.to_vec()),
            &["method"],
        )?;
        // A vector without labels: absent until the cloud has named a number, since zero would be an alarm.
        let remaining = IntGaugeVec::new(
            Opts::new(
                "cloud_rate_limit_remaining",
                "Requests that the cloud's API allowed at its last answer.",
            )
            .const_label("cloud", cloud),
            &[],
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(remaining.clone()))?;
        Ok(Metrics { requests, duration, remaining })
    }

    /// Counts one exchange. `code`: None if no whole answer came.
    pub fn exchange(&self, method: &Method, code: Option<StatusCode>, took: Duration) {
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.requests.with_label_values(&[code, method.as_str()]).inc();
        self.duration.with_label_values(&[method.as_str()]).observe(took.as_secs_f64());
    }

    /// Takes over how many requests the cloud said that it still allows.
    pub fn remaining(&self, requests: u64) {
        self.remaining.with_label_values::<&str>(&[]).set(i64::try_from(requests).unwrap_or(i64::MAX));
    }
}
