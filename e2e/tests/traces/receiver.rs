//! An OTLP receiver in this process: gRPC, which is HTTP/2 with framed protobuf messages, and the spans that it was sent.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{span::SpanKind, status::StatusCode};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::collector::Span;

const PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

pub struct Receiver {
    endpoint: String,
    spans: Arc<Mutex<Vec<Span>>>,
    _server: JoinSet<()>,
}

impl Receiver {
    pub async fn start() -> Result<Receiver> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let received = Arc::clone(&spans);
        let mut server = JoinSet::new();
        server.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let received = Arc::clone(&received);
                let service = service_fn(move |request| respond(request, Arc::clone(&received)));
                tokio::spawn(
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Ok(Receiver { endpoint, spans, _server: server })
    }

    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }
}

/// An empty message, or the status INVALID_ARGUMENT with the reason.
async fn respond(
    request: Request<Incoming>,
    received: Arc<Mutex<Vec<Span>>>,
) -> Result<Response<StreamBody<impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>>>>, Infallible> {
    let outcome = read(request).await;
    let mut trailers = HeaderMap::new();
    let frames = match outcome {
        Ok(spans) => {
            received.lock().unwrap().extend(spans);
            trailers.insert("grpc-status", "0".parse().unwrap());
            vec![Frame::data(Bytes::from_static(&[0; 5])), Frame::trailers(trailers)]
        }
        Err(error) => {
            println!("refused: {error:#}");
            trailers.insert("grpc-status", "3".parse().unwrap());
            vec![Frame::trailers(trailers)]
        }
    };
    let body = StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok)));
    Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
}

async fn read(request: Request<Incoming>) -> Result<Vec<Span>> {
    ensure!(request.uri().path() == PATH, "no such method: {}", request.uri().path());
    ensure!(
        request.headers().get("content-type").is_some_and(|value| value == "application/grpc"),
        "no gRPC"
    );
    let mut body = request.into_body().collect().await?.to_bytes();
    ensure!(body.len() >= 5 && body.get_u8() == 0, "a compressed or no message");
    let length = usize::try_from(body.get_u32())?;
    ensure!(body.len() == length, "{} bytes, not {length}", body.len());
    let request = ExportTraceServiceRequest::decode(body).context("no ExportTraceServiceRequest")?;
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = pairs(of_resource.resource.context("spans without a resource")?.attributes);
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let kind = format!("{:?}", SpanKind::try_from(span.kind)?);
            let status = match span.status.map(|status| StatusCode::try_from(status.code)).transpose()? {
                Some(StatusCode::Error) => "Error",
                Some(StatusCode::Ok) => "Ok",
                _ => "Unset",
            };
            let events = span.events.into_iter().flat_map(|event| {
                let lines = pairs(event.attributes).into_iter().map(|(key, value)| format!("{key}: {value}"));
                std::iter::once(event.name).chain(lines)
            });
            spans.push(Span {
                name: span.name,
                kind,
                status: status.to_owned(),
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                attributes: pairs(span.attributes),
                resource: resource.clone(),
                events: events.collect(),
            });
        }
    }
    Ok(spans)
}

fn pairs(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.into_iter().map(|pair| (pair.key, text(pair.value.and_then(|value| value.value)))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
