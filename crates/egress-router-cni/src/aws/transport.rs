//! The HTTP that EC2 and the metadata service need: one request, one bounded response, no redirects.

use std::cell::OnceCell;
use std::time::Duration;

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, http};

/// Limit of a response. A page of 200 network interfaces with 50 addresses each is 4 MB. A longer one is refused, not truncated.
const MAX_RESPONSE_BYTES: u64 = 8 << 20;

/// A request. It has no `Debug`, because headers contain tokens.
pub struct Request<'a> {
    /// `GET`, `PUT` or `POST`.
    pub method: Method,
    /// Absolute.
    pub url: &'a str,
    /// Headers in addition to `Host`.
    pub headers: &'a [(&'static str, String)],
    /// Sent with `PUT` and `POST`.
    pub body: &'a [u8],
    /// Timeout from connecting to the last byte of the response.
    pub timeout: Duration,
    /// Whether the environment's proxy (`HTTPS_PROXY`, `NO_PROXY`) is used. Never for the metadata service, whose response depends on the
    /// client's machine.
    pub proxy: bool,
}

/// The HTTP method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// PUT
    Put,
    /// POST
    Post,
}

/// A response with any status. It has no `Debug`, because bodies contain credentials.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// All of the body.
    pub body: Vec<u8>,
}

/// No complete response: refused, interrupted, timed out, too long. Whether the request took effect is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NoResponse {
    /// The underlying error.
    pub why: String,
    /// Permanent: the certificate is not trusted, or the URL is invalid.
    pub permanent: bool,
}

/// Sends requests. Tests inject faults and crashes.
pub trait Transport {
    /// Sends one request. No status is an error.
    ///
    /// # Errors
    ///
    /// No complete response within the timeout.
    fn send(&self, request: &Request<'_>) -> Result<Response, NoResponse>;
}

/// The real transport. Connections are reused within a call, and opened at the first request.
pub struct Network {
    roots: RootCerts,
    direct: OnceCell<Agent>,
    through_proxy: OnceCell<Agent>,
}

impl Network {
    /// Trusts Mozilla's list of certificates.
    #[must_use]
    pub fn new() -> Self {
        Self::with(RootCerts::WebPki)
    }

    /// As [`Self::new`], but trusts the certificates of `bundle` (the content of `AWS_CA_BUNDLE`) instead; none if it has no certificate.
    #[must_use]
    pub fn trusting(bundle: &[u8]) -> Option<Self> {
        let certificates: Vec<_> = parse_pem(bundle)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        (!certificates.is_empty()).then(|| Self::with(certificates.into()))
    }

    fn with(roots: RootCerts) -> Self {
        Self { roots, direct: OnceCell::new(), through_proxy: OnceCell::new() }
    }

    fn agent(&self, proxy: bool) -> &Agent {
        let config = || {
            Agent::config_builder()
                .http_status_as_error(false)
                // A signed request must not follow redirects.
                .max_redirects(0)
                .max_redirects_will_error(false)
                .user_agent("egress-router")
                .tls_config(TlsConfig::builder().root_certs(self.roots.clone()).build())
        };
        if proxy {
            self.through_proxy.get_or_init(|| config().build().new_agent())
        } else {
            self.direct.get_or_init(|| config().proxy(None).build().new_agent())
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Transport for Network {
    fn send(&self, request: &Request<'_>) -> Result<Response, NoResponse> {
        let agent = self.agent(request.proxy);
        let method = match request.method {
            Method::Get => http::Method::GET,
            Method::Put => http::Method::PUT,
            Method::Post => http::Method::POST,
        };
        let no_request = |error: http::Error| NoResponse { why: error.to_string(), permanent: true };
        let mut builder = http::Request::builder().method(method).uri(request.url);
        for (name, value) in request.headers {
            builder = builder.header(*name, value);
        }
        let mut response = match request.method {
            Method::Get => {
                let built = builder.body(()).map_err(no_request)?;
                agent
                    .run(agent.configure_request(built).timeout_global(Some(request.timeout)).build())
                    .map_err(no_response)?
            }
            Method::Put | Method::Post => {
                let built = builder.body(request.body).map_err(no_request)?;
                agent
                    .run(agent.configure_request(built).timeout_global(Some(request.timeout)).build())
                    .map_err(no_response)?
            }
        };
        let status = response.status().as_u16();
        let body =
            response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec().map_err(no_response)?;
        Ok(Response { status, body })
    }
}

fn no_response(error: ureq::Error) -> NoResponse {
    let permanent = match &error {
        ureq::Error::Rustls(_) | ureq::Error::Tls(_) | ureq::Error::BadUri(_) | ureq::Error::Http(_) => true,
        // How rustls' refusal of a certificate comes out of a stream.
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    };
    NoResponse { why: error.to_string(), permanent }
}
