//! Errors of a call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;

use super::error_body::ErrorBody;
use crate::cloud::http::{self, Response, Retry, retry_after};

/// A call that failed.
///
/// `Display` is one line with the service, method and path, the response, the request ID for the cloud's operators, and what to do.
/// It contains no token, password or secret, even if a server repeats one.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    /// `network GET /v2.0/routers/4711`, or the operation.
    call: String,
    why: Why,
}

#[derive(Clone, Debug)]
enum Why {
    /// The configuration or the call is not valid: nothing was sent.
    Setup(String),
    /// The catalogue has no such service, or more than one.
    Service(String),
    /// The catalogue has the service only in versions that are not supported any more.
    Outdated(String),
    /// Keystone refused the credential.
    Login(ErrorResponse),
    /// A service responded with an error.
    Response(ErrorResponse),
    /// No complete response came.
    Transport(Arc<http::Error>),
    /// The response does not match the documentation.
    Decode(String),
    /// A list that is incomplete.
    Partial(String),
}

#[derive(Clone, Debug)]
struct ErrorResponse {
    status: StatusCode,
    error_body: ErrorBody,
    request_id: Option<String>,
    retry: Retry,
    retry_after: Option<Duration>,
}

impl Error {
    pub(super) fn setup(call: impl Into<String>, why: impl Into<String>) -> Error {
        Error::new(call, Why::Setup(why.into()))
    }

    pub(super) fn service(call: impl Into<String>, why: impl Into<String>) -> Error {
        Error::new(call, Why::Service(why.into()))
    }

    pub(super) fn outdated(call: impl Into<String>, why: impl Into<String>) -> Error {
        Error::new(call, Why::Outdated(why.into()))
    }

    pub(super) fn transport(call: impl Into<String>, cause: http::Error) -> Error {
        Error::new(call, Why::Transport(Arc::new(cause)))
    }

    pub(super) fn decode(call: impl Into<String>, why: impl fmt::Display) -> Error {
        Error::new(call, Why::Decode(why.to_string()))
    }

    pub(super) fn partial(call: impl Into<String>, why: impl Into<String>) -> Error {
        Error::new(call, Why::Partial(why.into()))
    }

    /// A response without a 2xx status. `secrets` are redacted.
    pub(super) fn response(call: impl Into<String>, response: &Response, secrets: &[&str]) -> Error {
        Error::new(call, Why::Response(ErrorResponse::of(response, secrets)))
    }

    /// The same, of Keystone when it is asked for a token.
    pub(super) fn login(call: impl Into<String>, response: &Response, secrets: &[&str]) -> Error {
        Error::new(call, Why::Login(ErrorResponse::of(response, secrets)))
    }

    fn new(call: impl Into<String>, why: Why) -> Error {
        Error(Box::new(Inner { call: call.into(), why }))
    }

    fn error_response(&self) -> Option<&ErrorResponse> {
        match &self.0.why {
            Why::Login(error_response) | Why::Response(error_response) => Some(error_response),
            _ => None,
        }
    }

    fn is(&self, status: StatusCode) -> bool {
        matches!(&self.0.why, Why::Response(error_response) if error_response.status == status)
    }

    /// The service itself reports, in its own error body, that the object does not exist. False for a 404 of a proxy, of an unknown
    /// path, or of a deleted credential: they mean nothing for the object.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.is(StatusCode::NOT_FOUND)
            && self.error_response().is_some_and(|error_response| error_response.error_body.names_object())
    }

    /// A 404 that names no object: the service does not know the path, or a proxy responded.
    pub(super) fn is_unknown_path(&self) -> bool {
        self.is(StatusCode::NOT_FOUND) && !self.is_not_found()
    }

    /// The credential is wrong or has expired (Keystone), or a service refused a token that was just issued.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.error_response().is_some_and(|error_response| error_response.status == StatusCode::UNAUTHORIZED)
    }

    /// Keystone does not know the application credential (404): it or its user was deleted. It will not return.
    #[must_use]
    pub fn is_credential_gone(&self) -> bool {
        matches!(&self.0.why, Why::Login(error_response)
            if error_response.status == StatusCode::NOT_FOUND && error_response.error_body.names_object())
    }

    /// A role is missing, or the application credential's access rules do not have this call (`docs/openstack-rights.md`).
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.is(StatusCode::FORBIDDEN)
    }

    /// A service refuses the call: 403, or 401 for a token that was just issued. keystonemiddleware responds with 401 to a call that the
    /// application credential's access rules do not have. False for a refused login.
    #[must_use]
    pub fn is_permission_missing(&self) -> bool {
        self.is_forbidden() || self.is(StatusCode::UNAUTHORIZED)
    }

    /// 409: the object's state forbids it now, or a quota is used up ([`Error::kind`] is then `OverQuota`).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.is(StatusCode::CONFLICT)
    }

    /// 412: the object is no longer at the revision that was given.
    #[must_use]
    pub fn is_precondition_failed(&self) -> bool {
        self.is(StatusCode::PRECONDITION_FAILED)
    }

    /// 400: the request is not valid, or (Cinder) not possible in this state.
    #[must_use]
    pub fn is_bad_request(&self) -> bool {
        self.is(StatusCode::BAD_REQUEST)
    }

    /// 406: the service is older than the requested microversion; or the catalogue has it only in older versions.
    #[must_use]
    pub fn is_too_old(&self) -> bool {
        self.is(StatusCode::NOT_ACCEPTABLE) || matches!(self.0.why, Why::Outdated(_))
    }

    /// The catalogue does not have the service, or the wanted interface, region or version of it.
    #[must_use]
    pub fn is_no_service(&self) -> bool {
        matches!(self.0.why, Why::Service(_) | Why::Outdated(_))
    }

    /// Whether the same call may succeed later without any change: no response, 408, 429, most of 5xx, a list that changed while it was
    /// read. A 409 or 412 is not retryable: read the object again first.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retry() != Retry::Never
    }

    /// When to retry the same call.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match &self.0.why {
            Why::Login(error_response) | Why::Response(error_response) => error_response.retry,
            Why::Transport(cause) => cause.retry(),
            Why::Partial(_) => Retry::Soon,
            Why::Setup(_) | Why::Service(_) | Why::Outdated(_) | Why::Decode(_) => Retry::Never,
        }
    }

    /// A code for a metric label or a condition's reason, in lower case with underscores.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match &self.0.why {
            Why::Setup(_) => "setup",
            Why::Service(_) => "no_service",
            Why::Outdated(_) => "version",
            Why::Login(_) if self.is_credential_gone() => "credential_gone",
            Why::Transport(_) => "no_response",
            Why::Decode(_) => "unreadable",
            Why::Partial(_) => "partial_list",
            Why::Response(error_response) if error_response.error_body.over_quota() => "over_quota",
            Why::Login(error_response) | Why::Response(error_response) => {
                match error_response.status.as_u16() {
                    400 => "bad_request",
                    401 => "unauthorized",
                    403 => "forbidden",
                    404 if self.is_not_found() => "not_found",
                    404 => "not_found_elsewhere",
                    409 => "conflict",
                    412 => "precondition_failed",
                    413 | 429 => "rate_limited",
                    406 | 415 => "version",
                    500..=599 => "server_error",
                    _ => "refused",
                }
            }
        }
    }

    /// The service's own type of the error, such as `InvalidRoutes` or `itemNotFound`.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        self.error_response()?.error_body.kind()
    }

    /// The HTTP status, if there was a response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.error_response().map(|error_response| error_response.status.as_u16())
    }

    /// The message without the request ID, which differs each time: for a status, or to compare with an earlier message.
    #[must_use]
    pub fn lasting(&self) -> String {
        let text = self.to_string();
        match self.request_id() {
            Some(id) => text.replace(&format!(" ({id})"), ""),
            None => text,
        }
    }

    /// `x-openstack-request-id`, by which the cloud's operators search their logs.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.error_response()?.request_id.as_deref()
    }

    /// The wait that the service asks for with `Retry-After`: more than zero, at most ten minutes.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.error_response()?.retry_after
    }

    /// Advice for the user.
    fn advice(&self) -> &'static str {
        match &self.0.why {
            Why::Login(_) if self.is_credential_gone() => {
                "the application credential is gone: make a new one and put it in its Secret"
            }
            Why::Login(error_response) if error_response.status == StatusCode::UNAUTHORIZED => {
                "check the credential: it is wrong, has expired, or may not use this project"
            }
            Why::Login(error_response) if error_response.status == StatusCode::NOT_FOUND => {
                "this is not Keystone: check auth_url"
            }
            Why::Login(error_response) if error_response.status.is_redirection() => {
                "redirects of a login are not followed: check the scheme and path of auth_url"
            }
            Why::Response(error_response) if error_response.status.is_redirection() => {
                "redirects are not followed: the service's URL in the catalogue has no version, or is wrong"
            }
            Why::Response(error_response) => match error_response.status {
                StatusCode::UNAUTHORIZED => {
                    "a token that was just issued is refused: check this service's own connection to Keystone, and the access \
                     rules of the application credential (docs/openstack-rights.md)"
                }
                StatusCode::FORBIDDEN => "a role or an access rule is missing, see docs/openstack-rights.md",
                StatusCode::NOT_ACCEPTABLE => "the service is older than this microversion",
                _ => "",
            },
            _ => "",
        }
    }
}

impl ErrorResponse {
    fn of(response: &Response, secrets: &[&str]) -> ErrorResponse {
        let error_body = ErrorBody::of(response, secrets);
        let asked = retry_after(&response.headers);
        // Cinder and Nova respond with 413 to both a quota and too many requests; a quota has no time, or none to wait.
        let may = match response.status.as_u16() {
            _ if error_body.over_quota() => false,
            413 => asked.is_some_and(|asked| !asked.is_zero()),
            // A retry does not help where something is not implemented.
            501 | 505 => false,
            408 | 429 | 500..=599 => true,
            _ => false,
        };
        let retry = match (may, asked) {
            (false, _) => Retry::Never,
            (true, Some(asked)) => Retry::After(asked),
            (true, None) => Retry::Soon,
        };
        let id = response.headers.get("x-openstack-request-id");
        let request_id = id.and_then(|id| id.to_str().ok()).map(|id| id.chars().take(80).collect::<String>());
        ErrorResponse { status: response.status, error_body, request_id, retry, retry_after: asked }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { call, why } = &*self.0;
        write!(f, "{call}: ")?;
        match why {
            Why::Setup(why) | Why::Service(why) | Why::Outdated(why) | Why::Partial(why) => {
                f.write_str(why)?;
            }
            Why::Decode(why) => write!(f, "cannot parse the response: {why}")?,
            Why::Transport(cause) => write!(f, "{cause}")?,
            Why::Login(error_response) | Why::Response(error_response) => {
                write!(f, "{}", error_response.status.as_u16())?;
                if let Some(kind) = error_response.error_body.kind() {
                    write!(f, " {kind}")?;
                }
                write!(f, ": {}", error_response.error_body.message())?;
                if let Some(id) = &error_response.request_id {
                    write!(f, " ({id})")?;
                }
            }
        }
        match self.advice() {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}
