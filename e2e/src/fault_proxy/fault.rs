//! The faults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::upstream::Flavour;

/// A fault of a request, or of the events of a watch.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The connection is reset; nothing is forwarded.
    Refuse,
    /// The request is forwarded this much later, even if the controller has given up a write meanwhile.
    DelayRequest(Duration),
    /// The server acts at once; its response begins this much later.
    DelayResponse(Duration),
    /// Nothing is forwarded until the rule is removed; then the request is, if the controller still waits.
    Blackhole,
    /// The server acts; its response is cut after this many bytes of the body. A shorter body of known length is not cut.
    CutResponse {
        /// How many bytes of the body arrive.
        after_bytes: usize,
    },
    /// The proxy responds; nothing is forwarded, and it is not counted as a write.
    Reject(Reply),
    /// The server acts; the controller gets this response instead of the server's.
    Replace(Reply),
    /// The server acts; the connection is reset without a response.
    Swallow,
    /// For the events of watches (open ones and new ones) that the filter selects.
    Event(Fate, EventFilter),
}

impl Fault {
    /// Watches stop before their next event, bookmarks included, until the rule is removed.
    pub fn hold_events() -> Fault {
        Fault::Event(Fate::Hold, EventFilter::all())
    }

    /// Events (`{"type":…,"object":…}`) for which `filter` is true never arrive.
    pub fn drop_events<F>(filter: F) -> Fault
    where
        F: Fn(&Value) -> bool + Send + Sync + 'static,
    {
        Fault::Event(Fate::Drop, EventFilter::when(filter))
    }

    /// Instead of its next event, a watch gets the ERROR event of an expired resource version (410), and ends.
    pub fn expire_watch() -> Fault {
        Fault::Event(Fate::Expire, EventFilter::all())
    }

    /// Instead of its next event, a watch ends.
    pub fn end_watch() -> Fault {
        Fault::Event(Fate::End, EventFilter::all())
    }

    /// Whether later rules do not apply before the request is forwarded.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Fault::Refuse | Fault::Reject(_))
    }
}

/// The effect of a fault on an event, or on a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It waits, and with it what comes after it, until the rule is removed.
    Hold,
    /// It arrives this much later, and what comes after it does too.
    Delay(Duration),
    /// It is swallowed.
    Drop,
    /// An ERROR event with code 410 comes instead, and the watch ends.
    Expire,
    /// The watch ends before it.
    End,
}

/// Selects events of a watch.
#[derive(Clone)]
pub struct EventFilter(Arc<dyn Fn(&Value) -> bool + Send + Sync>);

impl fmt::Debug for EventFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventFilter")
    }
}

impl EventFilter {
    /// Every event.
    pub fn all() -> EventFilter {
        EventFilter::when(|_| true)
    }

    /// Those (`{"type":…,"object":…}`) for which `filter` is true.
    pub fn when<F>(filter: F) -> EventFilter
    where
        F: Fn(&Value) -> bool + Send + Sync + 'static,
    {
        EventFilter(Arc::new(filter))
    }

    pub(super) fn picks(&self, event: &Value) -> bool {
        (self.0)(event)
    }
}

/// A response that the proxy makes, with the body of the upstream's flavour.
#[derive(Debug, Clone)]
pub struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    retry_after: Option<u64>,
    body: Option<Bytes>,
}

impl Reply {
    /// With this status. Kubernetes: a `Status` with its reason. Hetzner: an `error` with its code.
    pub fn status(status: StatusCode) -> Reply {
        Reply { status, headers: HeaderMap::new(), retry_after: None, body: None }
    }

    /// 409: another client changed the object first.
    pub fn conflict() -> Reply {
        Reply::status(StatusCode::CONFLICT)
    }

    /// 429 with `Retry-After` in seconds.
    pub fn too_many_requests(retry_after: u64) -> Reply {
        Reply { retry_after: Some(retry_after), ..Reply::status(StatusCode::TOO_MANY_REQUESTS) }
    }

    /// 500.
    pub fn internal() -> Reply {
        Reply::status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// 503.
    pub fn unavailable() -> Reply {
        Reply::status(StatusCode::SERVICE_UNAVAILABLE)
    }

    /// With one header more.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Reply {
        self.headers.append(name, value);
        self
    }

    /// With this body instead of the flavour's, sent as JSON unless a header says otherwise.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Reply {
        self.body = Some(body.into());
        self
    }

    pub(super) fn render(&self, flavour: Flavour) -> Response<Bytes> {
        let body = self.body.clone().unwrap_or_else(|| {
            let body = match flavour {
                Flavour::Kubernetes => kubernetes_status(self.status, self.retry_after),
                Flavour::Hetzner => hetzner_error(self.status),
                Flavour::Neutron => neutron_error(self.status),
            };
            Bytes::from(body.to_string())
        });
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        if !self.headers.contains_key(CONTENT_TYPE) {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// The line of a watch with an expired resource version, as kube-apiserver writes it.
pub(super) fn expired_event() -> Bytes {
    let event = json!({ "type": "ERROR", "object": kubernetes_status(StatusCode::GONE, None) });
    Bytes::from(format!("{event}\n"))
}

/// Reasons are those of k8s.io/apimachinery's `api/errors`.
fn kubernetes_status(status: StatusCode, retry_after: Option<u64>) -> Value {
    let (reason, message) = match status.as_u16() {
        400 => ("BadRequest", "the server rejected our request for an unknown reason"),
        401 => ("Unauthorized", "Unauthorized"),
        403 => ("Forbidden", "forbidden by the fault proxy"),
        404 => ("NotFound", "the server could not find the requested resource"),
        409 => (
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest \
             version and try again",
        ),
        410 => ("Expired", "too old resource version: 1 (2)"),
        422 => ("Invalid", "invalid (fault proxy)"),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "the server was unable to return a response in the time allotted"),
        500.. => ("InternalError", "an error on the server has prevented the request from succeeding"),
        _ => ("", "a response of the fault proxy"),
    };
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    if let (Some(seconds), Some(body)) = (retry_after, body.as_object_mut()) {
        body.insert("details".to_owned(), json!({ "retryAfterSeconds": seconds }));
    }
    body
}

/// Codes are those of the Hetzner Cloud API.
fn hetzner_error(status: StatusCode) -> Value {
    let code = match status.as_u16() {
        400 | 422 => "invalid_input",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        410 => "deprecated_api_endpoint",
        423 => "locked",
        429 => "rate_limit_exceeded",
        502 => "bad_gateway",
        503 => "unavailable",
        504 => "timeout",
        _ => "server_error",
    };
    json!({ "error": { "code": code, "message": format!("{code} (fault proxy)"), "details": null } })
}

/// Types are those of neutron-lib's exceptions.
fn neutron_error(status: StatusCode) -> Value {
    let kind = match status.as_u16() {
        400 => "BadRequest",
        403 => "PolicyNotAuthorized",
        404 => "RouterNotFound",
        409 => "Conflict",
        412 => "RevisionNumberConstraintFailed",
        _ => "HTTPInternalServerError",
    };
    json!({ "NeutronError": { "type": kind, "message": format!("{kind} (fault proxy)"), "detail": "" } })
}
