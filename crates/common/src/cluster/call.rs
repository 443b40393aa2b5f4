//! One request on the wire: its span, its metrics, its user agent and its deadlines.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use http::{HeaderValue, Method, Request, Response, StatusCode, header::USER_AGENT};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tokio::time::Sleep;
use tower::{BoxError, Layer, Service};
use tracing::{Instrument, Span, field::Empty};

use crate::{args::Program, metrics::Metrics};

/// Puts [`Call`] around the wire.
#[derive(Clone, Debug)]
pub(super) struct CallLayer {
    user_agent: HeaderValue,
    metrics: Metrics,
    /// The label of the cluster.
    api: &'static str,
    timeouts: Timeouts,
}

/// How long a response may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// Until the response headers of a read, and between two frames of any response body.
    pub(super) read: Duration,
    /// Until the response headers of a write.
    pub(super) write: Duration,
}

impl CallLayer {
    pub(super) fn new(
        program: &Program,
        metrics: &Metrics,
        api: &'static str,
        timeouts: Timeouts,
    ) -> anyhow::Result<Self> {
        let user_agent = HeaderValue::try_from(program.user_agent())?;
        Ok(CallLayer { user_agent, metrics: metrics.clone(), api, timeouts })
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = Call<S>;
    fn layer(&self, wire: S) -> Call<S> {
        Call { wire, layer: self.clone() }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Call<S> {
    wire: S,
    layer: CallLayer,
}

/// The server did not respond, or stopped in the middle of a response.
#[derive(Debug)]
pub(super) struct NoResponse {
    what: &'static str,
    timeout: Duration,
}

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} from the API server within {} s", self.what, self.timeout.as_secs_f32())
    }
}

impl Error for NoResponse {}

impl<S, B> Service<Request<Body>> for Call<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<Guarded<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.wire.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let CallLayer { user_agent, metrics, api, timeouts } = self.layer.clone();
        request.headers_mut().insert(USER_AGENT, user_agent);
        let (method, span, streams) = (request.method().clone(), span(&request), streams(&request));
        let mut counted = Counted {
            metrics,
            api,
            method: method.clone(),
            span: span.clone(),
            start: Instant::now(),
            code: None,
        };
        let response = self.wire.call(request);
        Box::pin(
            async move {
                let reads = matches!(method, Method::GET | Method::HEAD);
                let first = if reads { timeouts.read } else { timeouts.write };
                let response = match tokio::time::timeout(first, response).await {
                    Ok(response) => response.map_err(Into::into),
                    Err(_) => Err(NoResponse { what: "response", timeout: first }.into()),
                };
                counted.code = response.as_ref().ok().map(Response::status);
                drop(counted);
                response.map(|response| {
                    response.map(|body| Guarded::new(body, (!streams).then_some(timeouts.read)))
                })
            }
            .instrument(span),
        )
    }
}

/// Counts a request when its response arrives, it fails, or its future is dropped: a caller with a timeout of its own drops it, and
/// otherwise an API server that does not respond would show no error.
struct Counted {
    metrics: Metrics,
    api: &'static str,
    method: Method,
    span: Span,
    start: Instant,
    code: Option<StatusCode>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.request(self.api, &self.method, self.code, self.start.elapsed());
        if let Some(code) = self.code {
            self.span.record("http.response.status_code", code.as_u16());
        }
        if self.code.is_none_or(|code| code.is_client_error() || code.is_server_error()) {
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

/// Named by kube's word for the call (`list`, `patch`, ...), with the attributes of OpenTelemetry's conventions for HTTP.
///
/// None for the Lease: a renewal every two seconds would be most of all traces, and metrics and logs already show it.
fn span(request: &Request<Body>) -> Span {
    if request.uri().path().starts_with("/apis/coordination.k8s.io/") {
        return Span::none();
    }
    let name = request.extensions().get::<&'static str>().copied().unwrap_or("request");
    tracing::info_span!(
        "kubernetes",
        otel.name = format!("kubernetes {name}"),
        otel.kind = "client",
        http.request.method = %request.method(),
        url.path = request.uri().path(),
        http.response.status_code = Empty,
        otel.status_code = Empty,
    )
}

/// Whether the response is a stream that may be silent for long: kube's watcher has its own limit for those.
fn streams(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| {
        query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "follow=true" | "follow=1"))
    })
}

/// The body of a response. Unless it is a stream, it fails when the next frame takes longer than the limit.
pub(super) struct Guarded<B> {
    body: B,
    limit: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<B> Guarded<B> {
    fn new(body: B, timeout: Option<Duration>) -> Self {
        Guarded { body, limit: timeout.map(|timeout| (timeout, Box::pin(tokio::time::sleep(timeout)))) }
    }
}

impl<B> http_body::Body for Guarded<B>
where
    B: http_body::Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            if let Some((timeout, sleep)) = &mut this.limit {
                sleep.as_mut().reset(tokio::time::Instant::now() + *timeout);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match &mut this.limit {
            None => Poll::Pending,
            Some((timeout, sleep)) => {
                ready!(sleep.as_mut().poll(context));
                Poll::Ready(Some(Err(NoResponse { what: "more of the response", timeout: *timeout }.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    const TIMEOUTS: Timeouts = Timeouts { read: Duration::from_secs(9), write: Duration::from_secs(13) };

    fn layer() -> (CallLayer, Metrics) {
        let metrics = Metrics::new("test").unwrap();
        (CallLayer::new(&crate::program!(), &metrics, "main", TIMEOUTS).unwrap(), metrics)
    }

    fn get(path: &str) -> Request<Body> {
        Request::get(path).body(Body::empty()).unwrap()
    }

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.text().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn each_request_has_the_user_agent_and_is_counted() {
        let (layer, metrics) = layer();
        let mut service = layer.layer(tower::service_fn(|request: Request<Body>| async move {
            let agent = request.headers()[USER_AGENT].to_str().unwrap().to_owned();
            Ok::<_, Infallible>(
                Response::builder().status(409).body(Full::new(bytes::Bytes::from(agent))).unwrap(),
            )
        }));
        let response = service.call(get("/api/v1/nodes")).await.unwrap();
        let agent = response.into_body().collect().await.unwrap().to_bytes();
        assert!(agent.starts_with(b"common/0.1.0 (linux/"), "{agent:?}");
        assert!(
            text(&metrics).contains("rest_client_requests_total{api=\"main\",code=\"409\",method=\"GET\"} 1")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_response_headers_times_out() {
        let (layer, metrics) = layer();
        let mut service = layer.layer(tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Full<bytes::Bytes>>, Infallible>>()
        }));
        let write = Request::patch("/api/v1/nodes/a").body(Body::empty()).unwrap();
        for (request, timeout, words) in [
            (get("/api/v1/nodes?watch=true"), TIMEOUTS.read, "no response from the API server within 9 s"),
            (write, TIMEOUTS.write, "no response from the API server within 13 s"),
        ] {
            let start = tokio::time::Instant::now();
            let error = service.call(request).await.err().unwrap();
            assert_eq!((start.elapsed(), error.to_string().as_str()), (timeout, words));
        }
        assert!(
            text(&metrics)
                .contains("rest_client_requests_total{api=\"main\",code=\"<error>\",method=\"GET\"} 1")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_future_is_dropped_is_counted_as_an_error() {
        let (layer, metrics) = layer();
        let mut service = layer.layer(tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Full<bytes::Bytes>>, Infallible>>()
        }));
        let request = service.call(get("/api/v1/nodes"));
        assert!(tokio::time::timeout(Duration::from_secs(1), request).await.is_err());
        assert!(
            text(&metrics)
                .contains("rest_client_requests_total{api=\"main\",code=\"<error>\",method=\"GET\"} 1")
        );
    }

    /// One piece now, one after `pause`, then the end.
    fn slow(pause: Duration) -> impl http_body::Body<Data = bytes::Bytes, Error = Infallible> + Unpin {
        let pieces = futures::stream::unfold(0, move |count| async move {
            if count == 1 {
                tokio::time::sleep(pause).await;
            }
            (count < 2).then(|| (Ok(Frame::data(bytes::Bytes::from("x"))), count + 1))
        });
        StreamBody::new(Box::pin(pieces))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_times_out_but_a_watch_may_be_silent() {
        for (path, pause, whole) in [
            ("/api/v1/nodes", 8, true),
            ("/api/v1/nodes", 10, false),
            ("/api/v1/nodes?labelSelector=a&watch=true", 280, true),
            ("/api/v1/namespaces/a/pods/b/log?follow=true", 280, true),
        ] {
            let (layer, _) = layer();
            let mut service = layer.layer(tower::service_fn(move |_: Request<Body>| async move {
                Ok::<_, Infallible>(Response::new(slow(Duration::from_secs(pause))))
            }));
            let body = service.call(get(path)).await.unwrap().into_body().collect().await;
            assert_eq!(body.is_ok(), whole, "{path} with a pause of {pause} s");
        }
    }
}
