//! What a scrape sees of OpenStack.

use std::time::Duration;

use ::http::{Method, StatusCode};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// From a near data centre to the exchange's limit.
const BUCKETS: [f64; 11] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// `openstack_api_requests_total{service,method,code}` and `openstack_api_request_duration_seconds{service}`. Clones count
/// together: a controller registers once and gives it to every [`super::Cloud`].
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: IntCounterVec,
    duration: HistogramVec,
}

impl Metrics {
    /// # Errors
    /// When the registry has metrics of these names.
    pub fn register(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new(
                "openstack_api_requests_total",
                "Requests to OpenStack by service, method and status code; <error> if no whole answer came.",
            ),
            &["service", "method", "code"],
        )?;
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "openstack_api_request_duration_seconds",
                "Duration of requests to OpenStack, body included.",
            )
            .buckets(BUCKETS.to_vec()),
            &["service"],
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Metrics { requests, duration })
    }

    /// Counts one exchange. `code`: None if no whole answer came.
    pub(super) fn exchange(&self, service: &str, method: &Method, code: Option<StatusCode>, took: Duration) {
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.requests.with_label_values(&[service, method.as_str(), code]).inc();
        self.duration.with_label_values(&[service]).observe(took.as_secs_f64());
    }
}
