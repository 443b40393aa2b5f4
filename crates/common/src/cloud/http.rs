//! The HTTP client under every cloud client.
//!
//! * One exchange ends within 15 s, body included, and reads at most 8 MiB.
//! * A GET is retried within a [`Budget`] (4 retries a page, 30 s, full jitter, a short `Retry-After`), because it changes nothing.
//!   A POST is sent once: after a broken connection it is not known whether it acted, so the caller reads and compares first.
//! * Each exchange is one span and is counted in `cloud_api_requests_total` and `cloud_api_request_duration_seconds`.
//! * The credential is read for each exchange and is never part of an error, span or `Debug`.
//!
//! [`Http`] is for a cloud with one endpoint and a bearer token. A cloud with several endpoints, or with tokens that expire, builds
//! its own client on `Wire`, which makes one exchange, [`Endpoint`] and [`Budget`].

mod endpoint;
mod error;
mod metrics;
mod paging;
mod rate_limit;
mod retry;
mod secret;
mod trust;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::AUTHORIZATION;
use ::http::{HeaderMap, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use prometheus::Registry;
use serde_json::Value;
use tokio::time::Instant;

pub use endpoint::{Endpoint, with_query};
pub use error::Error;
pub(in crate::cloud) use metrics::Metrics;
pub use paging::{Page, Paging, Partial};
pub use rate_limit::RateLimit;
pub use retry::{Budget, Retry, retry_after};
pub use secret::{Secret, SecretError};
pub use trust::Trust;
pub(in crate::cloud) use wire::{Limits, Wire, json_request};

/// A slow server counts as one that is down. A page of 50 servers is about half a megabyte; a much larger body is not a list that
/// we requested.
const LIMITS: Limits = Limits { exchange: Duration::from_secs(15), bytes: 8 << 20 };

/// A complete response of any status. `Debug` shows only the status: a header of a login is the token.
#[derive(Clone)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Decides whether an error response is retried. The reason is in the body, which only the cloud's client can parse.
pub type RetryPolicy = fn(&Response) -> Retry;

/// A client of one cloud's API. Clones share connections and metrics.
#[derive(Clone)]
pub struct Http(Arc<Inner>);

struct Inner {
    wire: Wire,
    endpoint: Endpoint,
    secret: Secret,
    user_agent: HeaderValue,
    retry_policy: RetryPolicy,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { wire, endpoint, secret, .. } = &*self.0;
        f.debug_struct("Http")
            .field("cloud", &wire.cloud)
            .field("endpoint", endpoint)
            .field("secret", secret)
            .finish()
    }
}

impl Http {
    /// `cloud` is the metric label. `endpoint` is `https://…`, or `http://` to a host of one's own. The secret goes into
    /// `Authorization: Bearer`. `retry_policy` is called for responses whose status is not 2xx.
    pub fn new(
        cloud: &'static str,
        endpoint: &str,
        secret: Secret,
        user_agent: &str,
        registry: &Registry,
        retry_policy: RetryPolicy,
    ) -> Result<Http, Error> {
        let endpoint = Endpoint::parse(endpoint)?;
        endpoint.warn_if_exposed();
        let trust = if endpoint.tls() { Trust::System } else { Trust::Plain };
        let metrics = Metrics::register(cloud, registry)
            .map_err(|cause| Error::Setup(format!("cannot register the metrics of {cloud}: {cause}")))?;
        Http::over(Wire::new(cloud, &trust, LIMITS, metrics)?, endpoint, secret, user_agent, retry_policy)
    }

    fn over(
        wire: Wire,
        endpoint: Endpoint,
        secret: Secret,
        user_agent: &str,
        retry_policy: RetryPolicy,
    ) -> Result<Http, Error> {
        let user_agent = HeaderValue::try_from(user_agent).map_err(|_| {
            Error::Setup("the user agent has characters that a header cannot carry".to_owned())
        })?;
        Ok(Http(Arc::new(Inner { wire, endpoint, secret, user_agent, retry_policy })))
    }

    /// Sends a GET. `path` begins with a slash and may have a query. Repeats within the budget what `retry_policy` or the transport
    /// calls transient; when the budget is spent, the last response or error is returned.
    pub async fn get(&self, path: &str, budget: &mut Budget) -> Result<Response, Error> {
        loop {
            let deadline = budget.deadline().min(self.0.wire.deadline());
            let end = self.exchange(&Method::GET, path, None, deadline).await;
            let retry = match &end {
                Ok(response) if response.status.is_success() => return end,
                Ok(response) => (self.0.retry_policy)(response),
                Err(error) => error.retry(),
            };
            let Some(wait) = budget.next_wait(retry) else { return end };
            tracing::debug!(
                cloud = self.0.wire.cloud,
                path = without_query(path),
                after = ?wait,
                because = %end.map_or_else(|error| error.to_string(), |response| response.status.to_string()),
                "cloud request is retried"
            );
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends a POST, once. After an error it may or may not have acted.
    pub async fn post(&self, path: &str, json: &Value) -> Result<Response, Error> {
        self.exchange(&Method::POST, path, Some(json), self.0.wire.deadline()).await
    }

    async fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        deadline: Instant,
    ) -> Result<Response, Error> {
        let Inner { wire, endpoint, secret, user_agent, .. } = &*self.0;
        let mut request = json_request(method, endpoint.at(path)?, user_agent, body);
        request.headers_mut().insert(AUTHORIZATION, secret.bearer().map_err(Error::Secret)?);
        let end = wire.exchange(request, resource(path), without_query(path), deadline).await;
        if let Some(limit) = end.as_ref().ok().and_then(|response| RateLimit::of(&response.headers)) {
            wire.metrics.remaining(limit.remaining);
        }
        end
    }
}

/// The label `service`: the collection that a path begins with, which is one of those that our own calls name.
fn resource(path: &str) -> &str {
    path.split(['/', '?']).find(|segment| !segment.is_empty()).unwrap_or_default()
}

/// A query can hold what a user typed; only the path is logged.
fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

#[cfg(test)]
pub(in crate::cloud) mod tests;
