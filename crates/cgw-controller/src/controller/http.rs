//! The HTTP API: routes, checks of requests, and responses. [`OPENAPI`] describes it.
//!
//! The server authenticates each request by its bearer token (TokenReview with our audience), and authorizes it by verb and path
//! (SubjectAccessReview) before anything here runs.

mod route;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::server::{Caller, Limits, Server};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use self::route::{Refusal, Route};
use super::bindings::Bindings;
use super::error::Error;
use super::metrics::Metrics;
use super::notify::Sender;
use super::plan::{self, Reply};
use super::services::Updated;
use crate::api::http::{MasterNotify, Outcome, VipRequest};

/// The description of the API, in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("http/openapi.json");

/// A notification of a keeper with the most VIPs, of IPv6, has less than 256 KiB.
pub const LIMITS: Limits = Limits {
    connections: 256,
    head_time: Duration::from_secs(10),
    head_bytes: 16 << 10,
    body_time: Duration::from_secs(10),
    body_bytes: 256 << 10,
};

/// VIPs of one notification: a virtual router has fewer.
const NOTIFIED_VIPS: usize = 4096;

/// The extra field of a token that is bound to a Pod: the Node, since Kubernetes 1.30.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

type Response = http::Response<Full<Bytes>>;

/// Handles requests.
pub struct Http {
    bindings: Arc<Bindings>,
    metrics: Metrics,
    /// User of the keepers.
    keepers: String,
}

impl Http {
    /// `keepers`: the only user that may call `/master_notify`.
    #[must_use]
    pub fn new(bindings: Arc<Bindings>, metrics: Metrics, keepers: String) -> Http {
        Http { bindings, metrics, keepers }
    }

    /// Serves until `shutdown`, then finishes the requests in flight.
    pub async fn serve(self, server: Server, shutdown: CancellationToken) {
        let http = Arc::new(self);
        let handler = move |caller, request| {
            let http = Arc::clone(&http);
            async move { http.respond(&caller, &request).await }
        };
        server.serve(handler, shutdown).await;
    }

    async fn respond(&self, caller: &Caller, request: &Request<Bytes>) -> Response {
        let (label, route) = route::route(request.method(), request.uri().path());
        let response = match route {
            Ok(route) => self.handle(caller, request, route).await.unwrap_or_else(refused),
            Err(refusal) => refused(refusal),
        };
        // Another path than those of the API is `other`.
        let (label, code) = (label.unwrap_or("other"), response.status());
        self.metrics.requests.with_label_values(&[label, code.as_str()]).inc();
        response
    }

    async fn handle(
        &self,
        caller: &Caller,
        request: &Request<Bytes>,
        route: Route,
    ) -> Result<Response, Refusal> {
        let user = caller.user.as_ref().and_then(|user| user.username.clone()).unwrap_or_default();
        match route {
            Route::OpenApi => Ok(body(StatusCode::OK, OPENAPI.to_owned())),
            Route::Vips => Ok(json(StatusCode::OK, &self.bindings.views())),
            Route::Vip(vip) => match self.bindings.view(vip) {
                Some(view) => Ok(json(StatusCode::OK, &view)),
                None => Err(Refusal::new(
                    StatusCode::NOT_FOUND,
                    format!("VIP {vip} is not known: it is not bound, and no keeper serves it"),
                )),
            },
            Route::Bind => {
                let bind: VipRequest = parse(request)?;
                self.bind(&bind, &user).await
            }
            Route::Unbind(vip, owner) => {
                Ok(replied(self.bindings.execute(vip, &plan::Request::Unbind(owner), &user).await))
            }
            Route::Notify => {
                let notify: MasterNotify = parse(request)?;
                if notify.vips.len() > NOTIFIED_VIPS {
                    let message = format!("vips has more than {NOTIFIED_VIPS} items");
                    return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
                }
                if notify.since.is_some_and(|since| plan::master::epoch(since).is_none()) {
                    let message = "since has to be a time in seconds since 1970";
                    return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
                }
                let started = Instant::now();
                let sender = Sender { user, address: caller.peer.ip(), node: node(caller) };
                let result = self.bindings.notify(&notify, &sender, &self.keepers).await;
                self.metrics.notify.observe(started.elapsed().as_secs_f64());
                Ok(replied(result))
            }
        }
    }

    async fn bind(&self, request: &VipRequest, user: &str) -> Result<Response, Refusal> {
        let bad = |message: &str| Err(Refusal::new(StatusCode::BAD_REQUEST, message));
        let VipRequest { vip, namespace, service, notify_only } = request;
        if *notify_only {
            return match (namespace, service) {
                (None, None) => Ok(replied(self.bindings.notify_only(*vip, user).await)),
                _ => bad("notify_only binds nothing: namespace and service must be absent"),
            };
        }
        let Some(namespace) = namespace else {
            return bad("namespace is required, unless notify_only is true");
        };
        let owner = route::owner(namespace, service.as_deref())?;
        Ok(replied(self.bindings.execute(*vip, &plan::Request::Bind(owner), user).await))
    }
}

/// The Node of a token that is bound to a Pod.
fn node(caller: &Caller) -> Option<String> {
    let extra = caller.user.as_ref()?.extra.as_ref()?;
    match extra.get(NODE_OF_TOKEN)?.as_slice() {
        [node] => Some(node.clone()),
        _ => None,
    }
}

fn parse<T: DeserializeOwned>(request: &Request<Bytes>) -> Result<T, Refusal> {
    let is_json = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    };
    if !request.headers().get(header::CONTENT_TYPE).is_some_and(is_json) {
        let message = "the body has to be application/json";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    serde_json::from_slice(request.body())
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("the body is invalid: {error}")))
}

fn replied(result: Result<(Reply, Updated), Error>) -> Response {
    match result {
        Ok((Reply { code, message }, Updated { updated, failed })) => {
            let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            json(code, &Outcome { message, updated, failed })
        }
        Err(error) => {
            let code = error.status();
            tracing::warn!(%error, code = code.as_u16(), "a request failed");
            json(code, &Outcome { message: error.to_string(), updated: Vec::new(), failed: Vec::new() })
        }
    }
}

fn refused(refusal: Refusal) -> Response {
    let Refusal { code, message, allow } = refusal;
    let mut response = json(code, &Outcome { message, updated: Vec::new(), failed: Vec::new() });
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    response
}

fn json(code: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => body(code, text),
        // None of the types can fail.
        Err(_) => body(StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    }
}

fn body(code: StatusCode, text: String) -> Response {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
