//! The two paths of the hook, over HTTPS.

use std::sync::Arc;
use std::time::Duration;

use common::runtime::Runtime;
use common::server::{Caller, Limits, Server};
use http::{Method, Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;

use super::handler::Handler;
use super::protocol::{DELETE_PATH, DISCOVERY_PATH, discovery};

/// Cluster API keeps one connection or two. An object of Kubernetes has at most 1.5 MiB in etcd; as JSON, with the rest of the
/// request, it is a little larger.
pub const LIMITS: Limits = Limits {
    connections: 32,
    head_time: Duration::from_secs(5),
    head_bytes: 16 << 10,
    body_time: Duration::from_secs(5),
    body_bytes: 3 << 20,
};

type Response = http::Response<Full<Bytes>>;

/// Serves the hook until the process shuts down, then finishes the requests in flight.
pub async fn serve(server: Server, handler: Handler, runtime: &Runtime) {
    let handler = Arc::new(handler);
    let hook = move |_: Caller, request| {
        let handler = Arc::clone(&handler);
        async move { respond(&handler, &request).await }
    };
    server.serve(hook, runtime.shutdown.clone()).await;
}

async fn respond(handler: &Handler, request: &Request<Bytes>) -> Response {
    match request.uri().path() {
        DISCOVERY_PATH | DELETE_PATH if request.method() != Method::POST => {
            plain(StatusCode::METHOD_NOT_ALLOWED, "hooks are called by POST")
        }
        DISCOVERY_PATH => json(discovery().to_string()),
        DELETE_PATH => {
            let response = handler.before_cluster_delete(request.body()).await;
            json(serde_json::to_string(&response).unwrap_or_default())
        }
        _ => plain(StatusCode::NOT_FOUND, "no such hook"),
    }
}

fn json(body: String) -> Response {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
