//! One request on the wire: its span, its metrics, its user agent and its deadlines.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use http::{HeaderValue, Method, Request, Response, header::USER_AGENT};
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
    patience: Patience,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until the headers of an answer to a request that reads, and between two pieces of any answer's body.
    pub(super) read: Duration,
    /// Until the headers of an answer to a request that writes.
    pub(super) write: Duration,
}

impl CallLayer {
    pub(super) fn new(program: &Program, metrics: &Metrics, patience: Patience) -> anyhow::Result<Self> {
        let user_agent = HeaderValue::try_from(program.user_agent())?;
        Ok(CallLayer { user_agent, metrics: metrics.clone(), patience })
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

/// The server did not answer, or stopped in the middle of one.
#[derive(Debug)]
pub(super) struct Silent {
    what: &'static str,
    patience: Duration,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} from the API server within {} s", self.what, self.patience.as_secs_f32())
    }
}

impl Error for Silent {}

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
        let CallLayer { user_agent, metrics, patience } = self.layer.clone();
        request.headers_mut().insert(USER_AGENT, user_agent);
        let (method, span, streams) = (request.method().clone(), span(&request), streams(&request));
        let answer = self.wire.call(request);
        let start = Instant::now();
        let seen = span.clone();
        Box::pin(
            async move {
                let reads = matches!(method, Method::GET | Method::HEAD);
                let first = if reads { patience.read } else { patience.write };
                let answer = match tokio::time::timeout(first, answer).await {
                    Ok(answer) => answer.map_err(Into::into),
                    Err(_) => Err(Silent { what: "answer", patience: first }.into()),
                };
                let code = answer.as_ref().ok().map(Response::status);
                metrics.request(&method, code, start.elapsed());
                match code {
                    Some(code) => {
                        seen.record("http.response.status_code", code.as_u16());
                        if code.is_client_error() || code.is_server_error() {
                            seen.record("otel.status_code", "ERROR");
                        }
                    }
                    None => {
                        seen.record("otel.status_code", "ERROR");
                    }
                }
                answer
                    .map(|answer| answer.map(|body| Guarded::new(body, (!streams).then_some(patience.read))))
            }
            .instrument(span),
        )
    }
}

/// Named by kube's word for the call (`list`, `patch`, ...), with the attributes of OpenTelemetry's conventions for HTTP.
///
/// None for the Lease: a renewal every two seconds would be most of all traces, and metrics and logs tell of it.
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

/// Whether the answer is meant to go on for long with nothing to say: kube's watcher has its own limit for those.
fn streams(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| {
        query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "follow=true" | "follow=1"))
    })
}

/// The body of an answer; one that is no stream fails when the next piece takes longer than `patience`.
pub(super) struct Guarded<B> {
    body: B,
    limit: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<B> Guarded<B> {
    fn new(body: B, patience: Option<Duration>) -> Self {
        Guarded { body, limit: patience.map(|patience| (patience, Box::pin(tokio::time::sleep(patience)))) }
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
            if let Some((patience, sleep)) = &mut this.limit {
                sleep.as_mut().reset(tokio::time::Instant::now() + *patience);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match &mut this.limit {
            None => Poll::Pending,
            Some((patience, sleep)) => {
                ready!(sleep.as_mut().poll(context));
                Poll::Ready(Some(Err(Silent { what: "more of an answer", patience: *patience }.into())))
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

    const PATIENCE: Patience = Patience { read: Duration::from_secs(9), write: Duration::from_secs(13) };

    fn layer() -> (CallLayer, Metrics) {
        let metrics = Metrics::new("test").unwrap();
        (CallLayer::new(&crate::program!(), &metrics, PATIENCE).unwrap(), metrics)
    }

    fn get(path: &str) -> Request<Body> {
        Request::get(path).body(Body::empty()).unwrap()
    }

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.text().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn each_request_says_who_asks_and_is_counted() {
        let (layer, metrics) = layer();
        let mut service = layer.layer(tower::service_fn(|request: Request<Body>| async move {
            let agent = request.headers()[USER_AGENT].to_str().unwrap().to_owned();
            Ok::<_, Infallible>(
                Response::builder().status(409).body(Full::new(bytes::Bytes::from(agent))).unwrap(),
            )
        }));
        let answer = service.call(get("/api/v1/nodes")).await.unwrap();
        let agent = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(agent.starts_with(b"common/0.1.0 (linux/"), "{agent:?}");
        assert!(text(&metrics).contains("rest_client_requests_total{code=\"409\",method=\"GET\"} 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_sends_no_headers_is_given_up() {
        let (layer, metrics) = layer();
        let mut service = layer.layer(tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Full<bytes::Bytes>>, Infallible>>()
        }));
        let write = Request::patch("/api/v1/nodes/a").body(Body::empty()).unwrap();
        for (request, patience, words) in [
            (get("/api/v1/nodes?watch=true"), PATIENCE.read, "no answer from the API server within 9 s"),
            (write, PATIENCE.write, "no answer from the API server within 13 s"),
        ] {
            let start = tokio::time::Instant::now();
            let error = service.call(request).await.err().unwrap();
            assert_eq!((start.elapsed(), error.to_string().as_str()), (patience, words));
        }
        assert!(text(&metrics).contains("rest_client_requests_total{code=\"<error>\",method=\"GET\"} 1"));
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
    async fn a_body_that_stalls_is_given_up_but_a_watch_may_be_silent() {
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
