//! Traces, seen from a collector.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::{
    leases::Leases,
    program::{ALONE, NOWHERE, start},
};

/// A collector of traces: paths and bodies of what it was sent.
async fn collector() -> (String, Arc<Mutex<Vec<(String, Vec<u8>)>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::<Mutex<Vec<(String, Vec<u8>)>>>::default();
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let log = Arc::clone(&log);
            let response = service_fn(move |request: Request<Incoming>| {
                let log = Arc::clone(&log);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes().to_vec();
                    log.lock().unwrap().push((head.uri.path().to_owned(), body));
                    // An empty message, not compressed, and the status of gRPC.
                    let status =
                        http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                    let frames = [Frame::data(Bytes::from_static(&[0; 5])), Frame::trailers(status)];
                    let body = StreamBody::new(futures::stream::iter(frames.map(Ok::<_, Infallible>)));
                    let response = Response::builder().header("content-type", "application/grpc").body(body);
                    Ok::<_, Infallible>(response.unwrap())
                }
            });
            tokio::spawn(
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), response),
            );
        }
    });
    (url, seen)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn traces_leave_over_grpc_before_the_process_ends_where_a_collector_is_named() {
    for variable in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
        let (url, seen) = collector().await;
        let environment =
            [(variable, url.as_str()), ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=lab")];
        let mut program = start(NOWHERE, &[ALONE, "--then=return"], &environment);
        assert_eq!(program.code().await, 0, "{:#?}", program.seen);
        let seen = seen.lock().unwrap();
        let (path, body) = seen.first().unwrap_or_else(|| panic!("nothing was sent: {:#?}", program.seen));
        assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
        for text in ["service.name", "smallest", "deployment.environment", "lab", "reconcile"] {
            assert!(holds(body, text), "{text} is not in {}", String::from_utf8_lossy(body));
        }
    }
}

#[tokio::test]
async fn the_lease_is_renewed_without_a_span_each_time() {
    let leases = Leases::default();
    let (server, (url, seen)) = (leases.serve().await, collector().await);
    let mut program = start(&server, &["--then=return"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
    let sent: Vec<u8> = seen.lock().unwrap().iter().flat_map(|(_, body)| body.clone()).collect();
    assert!(holds(&sent, "reconcile"), "what it does as a leader: {}", String::from_utf8_lossy(&sent));
    for text in ["kubernetes ", "coordination.k8s.io"] {
        assert!(!holds(&sent, text), "{text} is in {}", String::from_utf8_lossy(&sent));
    }
}

#[tokio::test]
async fn the_standard_variables_change_or_stop_the_traces() {
    let (url, seen) = collector().await;
    for (name, value) in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ] {
        let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), (name, value)];
        let mut program = start(NOWHERE, &[ALONE, "--then=return"], &environment);
        assert_eq!(program.code().await, 0, "{:#?}", program.seen);
        assert!(seen.lock().unwrap().is_empty(), "{name}={value} sends nothing");
    }
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_SERVICE_NAME", "renamed")];
    let mut program = start(NOWHERE, &[ALONE, "--then=return"], &environment);
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
    assert!(holds(&seen.lock().unwrap()[0].1, "renamed"));
}

#[tokio::test]
async fn another_protocol_than_grpc_is_warned_of_and_not_used() {
    let (url, seen) = collector().await;
    for (more, is_warned) in [("http/protobuf", true), ("grpc", false), ("", false)] {
        let environment =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", more)];
        let mut program = start(NOWHERE, &[ALONE, "--then=return"], &environment);
        assert_eq!(program.code().await, 0, "{:#?}", program.seen);
        assert!(!std::mem::take(&mut *seen.lock().unwrap()).is_empty(), "{:#?}", program.seen);
        let logged = program.logged("OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf");
        assert_eq!(logged, is_warned, "{:#?}", program.seen);
    }
}

#[tokio::test]
async fn a_collector_that_is_away_does_not_prevent_the_end() {
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")];
    let mut program = start(NOWHERE, &[ALONE, "--then=reconcile"], &environment);
    program.line("nothing to do").await;
    program.signal("TERM").await;
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
    assert!(program.logged("opentelemetry"), "the failure is not logged: {:#?}", program.seen);
}
