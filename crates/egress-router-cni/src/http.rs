//! The HTTP of the API server, EC2 and the metadata service: one request, one bounded response, no redirects. [`retry`] has the retry policy.

pub mod retry;

use std::cell::OnceCell;
use std::time::Duration;

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, http};

pub use ureq::http::Method;

/// Limit of a response. A page of 200 network interfaces with 50 addresses each is 4 MB; a ConfigMap has up to 1 MiB, and its managedFields
/// may have as much. A longer one is refused, not truncated.
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
    /// client's machine, and not for the API server, whose kubeconfig has its own setting.
    pub proxy: bool,
}

/// A response with any status. It has no `Debug`, because bodies contain credentials.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// All of the body.
    pub body: Vec<u8>,
}

/// No complete response. Whether the request took effect is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NoResponse {
    /// The underlying error.
    pub why: String,
    /// Its kind.
    pub cause: Cause,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Refused, interrupted, timed out.
    Temporary,
    /// It has more than 8 MiB.
    TooLong,
    /// The server's certificate is not trusted.
    Untrusted,
    /// The server refused the handshake. With TLS 1.3 it refuses a client certificate so.
    Alert,
    /// The URL is invalid, or the server does not speak TLS.
    Invalid,
}

impl Cause {
    /// Whether another attempt has the same result.
    #[must_use]
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::Untrusted | Self::Alert | Self::Invalid)
    }
}

/// Whether a status means throttling or a failure of the server, which a retry may get past.
#[must_use]
pub fn is_transient(status: u16) -> bool {
    status == 429 || status >= 500
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
    tls: TlsConfig,
    server: Option<http::Uri>,
    direct: OnceCell<Agent>,
    through_proxy: OnceCell<Agent>,
}

impl Network {
    /// Trusts Mozilla's list of certificates.
    #[must_use]
    pub fn new() -> Self {
        Self::with(TlsConfig::builder().root_certs(RootCerts::WebPki).build(), None)
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
        let trusting = || TlsConfig::builder().root_certs(certificates.clone().into()).build();
        (!certificates.is_empty()).then(|| Self::with(trusting(), None))
    }

    /// With this configuration of TLS. With `server`, requests go to its address, whatever host their URL has: ureq verifies the name in the
    /// URL.
    #[must_use]
    pub fn with(tls: TlsConfig, server: Option<http::Uri>) -> Self {
        Self { tls, server, direct: OnceCell::new(), through_proxy: OnceCell::new() }
    }

    fn agent(&self, proxy: bool) -> &Agent {
        let config = || {
            Agent::config_builder()
                .http_status_as_error(false)
                // Neither a signed request nor a token must follow redirects.
                .max_redirects(0)
                .max_redirects_will_error(false)
                .user_agent("egress-router")
                .tls_config(self.tls.clone())
        };
        if proxy {
            return self.through_proxy.get_or_init(|| config().build().new_agent());
        }
        self.direct.get_or_init(|| {
            let config = config().proxy(None).build();
            match &self.server {
                Some(server) => Agent::with_parts(config, DefaultConnector::default(), Fixed(server.clone())),
                None => config.new_agent(),
            }
        })
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
        let invalid = |error: http::Error| NoResponse { why: error.to_string(), cause: Cause::Invalid };
        // Zero would mean no timeout.
        let timeout = Some(request.timeout.max(Duration::from_millis(1)));
        let mut builder = http::Request::builder().method(request.method.clone()).uri(request.url);
        for (name, value) in request.headers {
            builder = builder.header(*name, value);
        }
        let sent = if request.method == Method::GET {
            let built = builder.body(()).map_err(invalid)?;
            agent.run(agent.configure_request(built).timeout_global(timeout).build())
        } else {
            let built = builder.body(request.body).map_err(invalid)?;
            agent.run(agent.configure_request(built).timeout_global(timeout).build())
        };
        let mut response = sent.map_err(no_response)?;
        let status = response.status().as_u16();
        let body =
            response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec().map_err(no_response)?;
        Ok(Response { status, body })
    }
}

fn no_response(error: ureq::Error) -> NoResponse {
    let tls = match &error {
        ureq::Error::Rustls(error) => Some(error),
        // How rustls' refusal comes out of a stream.
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()),
        _ => None,
    };
    let cause = match (tls, &error) {
        (Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented), _) => {
            Cause::Untrusted
        }
        (Some(rustls::Error::AlertReceived(_)), _) => Cause::Alert,
        (Some(_), _) => Cause::Invalid,
        (_, ureq::Error::Tls(_) | ureq::Error::BadUri(_) | ureq::Error::Http(_)) => Cause::Invalid,
        (_, ureq::Error::BodyExceedsLimit(_)) => Cause::TooLong,
        _ => Cause::Temporary,
    };
    NoResponse { why: error.to_string(), cause }
}

/// Resolves every name to this server.
#[derive(Debug)]
struct Fixed(http::Uri);

impl Resolver for Fixed {
    fn resolve(
        &self,
        _: &http::Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        DefaultResolver::default().resolve(&self.0, config, timeout)
    }
}
