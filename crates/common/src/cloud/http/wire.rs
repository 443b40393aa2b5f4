//! One exchange: a request is sent, the complete response is read, within a deadline and a size limit. It is one span, and is counted. Below
//! it: TCP, TLS, HTTP/1.1.

use std::time::Duration;

use ::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderValue, Method, Request, Uri};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;
use tracing::Instrument as _;

use super::Response;
use super::error::{self, Error, chain};
use super::metrics::Metrics;
use super::trust::Trust;
use crate::proxy::Proxy;

/// Limits of one exchange with a cloud.
#[derive(Clone, Copy, Debug)]
pub(in crate::cloud) struct Limits {
    /// From the connection to the last byte of the body.
    pub exchange: Duration,
    /// The size of a response's body.
    pub bytes: usize,
}

/// Connections to a cloud. It does not retry and knows no credential and no endpoint: the client builds its requests. Clones share
/// connections.
#[derive(Clone)]
pub(in crate::cloud) struct Wire {
    pub(super) cloud: &'static str,
    limits: Limits,
    transport: Transport,
    pub(super) metrics: Metrics,
}

/// A request without a credential. A body has a known size, so hyper gives it a Content-Length, which uWSGI's services need.
pub(in crate::cloud) fn json_request(
    method: &Method,
    uri: Uri,
    user_agent: &HeaderValue,
    body: Option<&Value>,
) -> Request<Full<Bytes>> {
    let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    let mut request = Request::new(Full::new(bytes));
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, user_agent.clone());
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    request
}

impl Wire {
    /// `cloud` names it in spans.
    ///
    /// # Errors
    /// [`Error::Setup`] when there are no authorities to trust.
    pub fn new(cloud: &'static str, trust: &Trust, limits: Limits, metrics: Metrics) -> Result<Wire, Error> {
        Ok(Wire::over(connect(trust)?, cloud, limits, metrics))
    }

    pub(super) fn over(transport: Transport, cloud: &'static str, limits: Limits, metrics: Metrics) -> Wire {
        Wire { cloud, limits, transport, metrics }
    }

    /// When an exchange that starts now ends at the latest.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.limits.exchange
    }

    /// Sends a request once and reads the complete response. A body has a known length and is never sent in chunks. The request asks
    /// for an uncompressed response, because a server may choose any encoding otherwise. `service` is the metric label, one of a closed set.
    /// `path` is the URL in the span: without a query, which can hold what a user typed.
    ///
    /// # Errors
    /// If no complete response came until `deadline`. The request may or may not have acted, except after [`Error::Connect`].
    pub async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        service: &str,
        path: &str,
        deadline: Instant,
    ) -> Result<Response, Error> {
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // With the attributes of OpenTelemetry's conventions for HTTP, as requests to Kubernetes have them.
        let span = tracing::info_span!(
            "cloud request",
            otel.name = format!("{} {}", self.cloud, request.method()),
            otel.kind = "client",
            cloud = self.cloud,
            http.request.method = %request.method(),
            url.path = path,
            http.response.status_code = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
            error = tracing::field::Empty,
        );
        let method = request.method().clone();
        let began = Instant::now();
        let end = async {
            match tokio::time::timeout_at(deadline, self.send(request)).await {
                Ok(end) => end,
                Err(_) => Err(Error::Deadline(deadline - began)),
            }
        }
        .instrument(span.clone())
        .await;
        let status = end.as_ref().ok().map(|response| response.status);
        self.metrics.exchange(service, &method, status, began.elapsed());
        match &end {
            Ok(response) => {
                span.record("http.response.status_code", response.status.as_u16());
                if response.status.is_client_error() || response.status.is_server_error() {
                    span.record("otel.status_code", "ERROR");
                }
            }
            Err(error) => {
                span.record("otel.status_code", "ERROR");
                span.record("error", tracing::field::display(error));
            }
        }
        end
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response, Error> {
        let most = self.limits.bytes;
        let (head, body) = self.transport.clone().oneshot(request).await?.into_parts();
        if let Some(encoding) = head.headers.get(CONTENT_ENCODING).and_then(compression) {
            return Err(Error::Encoded(encoding));
        }
        let body =
            Limited::new(body, most).collect().await.map_err(|error| match error.downcast::<Error>() {
                Ok(error) => *error,
                Err(error) if error.is::<LengthLimitError>() => Error::TooLarge(most),
                Err(error) => Error::Broken(error::chain(error.as_ref())),
            })?;
        Ok(Response { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

/// Some servers name the character set here, which changes nothing.
fn compression(value: &HeaderValue) -> Option<&'static str> {
    let value = value.to_str().unwrap_or_default().to_ascii_lowercase();
    ["gzip", "deflate", "br", "zstd", "compress"].into_iter().find(|known| value.contains(known))
}

/// Sends one request; the body of the response is not read yet. A service, so that tests can respond without a network.
pub(super) type Transport = BoxCloneSyncService<Request<Full<Bytes>>, ::http::Response<Body>, Error>;
pub(super) type Body = UnsyncBoxBody<Bytes, Error>;

/// A third of the exchange's deadline: an address that does not respond leaves time for the next one.
const CONNECT: Duration = Duration::from_secs(5);
/// Longer than the interval between two polls of an action, shorter than that between two reconciliations: a connection through a
/// gateway that has changed since is dropped silently, and would cost a whole deadline.
const IDLE: Duration = Duration::from_secs(10);

/// Reads the system's trusted authorities, if they are used, and which servers are reached through a proxy.
fn connect(trust: &Trust) -> Result<Transport, Error> {
    let mut client = Client::builder(TokioExecutor::new());
    client.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_nodelay(true);
    if *trust == Trust::Plain {
        return Ok(boxed(client.build(tcp)));
    }
    let tcp = Proxy::of_environment().map_err(|error| Error::Setup(error.to_string()))?.connector(tcp);
    let tls = match trust.config()? {
        Some(config) => HttpsConnectorBuilder::new().with_tls_config(config),
        None => HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|cause| {
                Error::Setup(format!(
                    "no trusted certificate authorities ({cause}): install ca-certificates or set SSL_CERT_FILE"
                ))
            })?,
    };
    // `Endpoint` decides which scheme is allowed.
    Ok(boxed(client.build(tls.https_or_http().enable_http1().wrap_connector(tcp))))
}

fn boxed<C>(client: Client<C, Full<Bytes>>) -> Transport
where
    C: Connect + Clone + Send + Sync + 'static,
{
    BoxCloneSyncService::new(
        client
            .map_response(|response| {
                response.map(|body| body.map_err(|error| Error::Broken(chain(&error))).boxed_unsync())
            })
            .map_err(|error| match error.is_connect() {
                true => Error::Connect(chain(&error)),
                false => Error::Broken(chain(&error)),
            }),
    )
}
