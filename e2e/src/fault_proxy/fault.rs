//! What can go wrong.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::upstream::Flavour;

/// What happens to a request, or to the events of a watch.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The connection is reset; nothing is forwarded.
    Refuse,
    /// The request is forwarded this much later, even if the controller gave a write up meanwhile: the network
    /// delivers late.
    DelayRequest(Duration),
    /// The server acts at once; its answer begins this much later.
    DelayResponse(Duration),
    /// Nothing is forwarded and nothing is answered until the rule is removed; then the request goes on, if the
    /// controller still waits.
    Blackhole,
    /// The server acts; its answer is cut after this many bytes of the body. A shorter body of known length passes.
    CutResponse {
        /// How many bytes of the body arrive.
        after_bytes: usize,
    },
    /// Answered by the proxy; nothing is forwarded, and it is not counted as a write.
    Reject(Answer),
    /// The server acts; the controller gets this answer instead of the server's.
    Replace(Answer),
    /// The server acts; the connection is reset instead of an answer: accepted but not answered.
    Swallow,
    /// Something happens to the events of watches (open ones and new ones) that the filter picks.
    Event(Fate, EventFilter),
}

impl Fault {
    /// Watches come to rest before their next event, bookmarks included, until the rule is removed.
    pub fn hold_events() -> Fault {
        Fault::Event(Fate::Hold, EventFilter::all())
    }

    /// Events (`{"type":…,"object":…}`) for which `filter` says yes never arrive.
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

    /// Whether no later rule has anything left to do before the request is forwarded.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Fault::Refuse | Fault::Reject(_))
    }
}

/// What becomes of an event, or of a watch.
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

/// Picks events of a watch.
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

    /// Those (`{"type":…,"object":…}`) for which `filter` says yes.
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

/// An answer that the proxy makes up, with the body that the upstream's flavour would give it.
#[derive(Debug, Clone)]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    retry_after: Option<u64>,
    body: Option<Bytes>,
}

impl Answer {
    /// With this status. Kubernetes: a `Status` with the reason that belongs to it. Hetzner: an `error` with its code.
    pub fn status(status: StatusCode) -> Answer {
        Answer { status, headers: HeaderMap::new(), retry_after: None, body: None }
    }

    /// 409: somebody else changed it first.
    pub fn conflict() -> Answer {
        Answer::status(StatusCode::CONFLICT)
    }

    /// 410: the resource version of a list or a watch is too old.
    pub fn gone() -> Answer {
        Answer::status(StatusCode::GONE)
    }

    /// 429 with `Retry-After` in seconds.
    pub fn too_many_requests(retry_after: u64) -> Answer {
        Answer { retry_after: Some(retry_after), ..Answer::status(StatusCode::TOO_MANY_REQUESTS) }
    }

    /// 500.
    pub fn internal() -> Answer {
        Answer::status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// 503.
    pub fn unavailable() -> Answer {
        Answer::status(StatusCode::SERVICE_UNAVAILABLE)
    }

    /// With a `Retry-After` header in seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Answer {
        self.retry_after = Some(seconds);
        self
    }

    /// With one header more.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Answer {
        self.headers.append(name, value);
        self
    }

    /// With this body instead of the flavour's, sent as JSON unless a header says otherwise.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Answer {
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

/// The line of a watch that tells that its resource version is too old, as kube-apiserver writes it.
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
        422 => ("Invalid", "invalid, says the fault proxy"),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "the server was unable to return a response in the time allotted"),
        500.. => ("InternalError", "an error on the server has prevented the request from succeeding"),
        _ => ("", "an answer of the fault proxy"),
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
    json!({ "error": { "code": code, "message": format!("{code}, says the fault proxy"), "details": null } })
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
    json!({ "NeutronError": { "type": kind, "message": format!("{kind}, says the fault proxy"), "detail": "" } })
}
