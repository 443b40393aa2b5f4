//! HTTP, as little of it as EC2 and the metadata service need: one request, one bounded answer, no redirects.

use std::cell::OnceCell;
use std::time::Duration;

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, http};

/// No answer of ours is near it: a page of 200 network interfaces with 50 addresses each is 4 MB. What is longer is refused,
/// not cut.
const MAX_RESPONSE_BYTES: u64 = 8 << 20;

/// What is asked. It has no `Debug`: headers carry tokens.
pub struct Request<'a> {
    /// `GET`, `PUT` or `POST`.
    pub method: Method,
    /// Absolute.
    pub url: &'a str,
    /// Besides `Host`, which follows from the URL.
    pub headers: &'a [(&'static str, String)],
    /// Sent with `PUT` and `POST`.
    pub body: &'a [u8],
    /// From connecting to the last byte of the answer.
    pub timeout: Duration,
    /// Whether the environment's proxy (`HTTPS_PROXY`, `NO_PROXY`) stands between. Never for the metadata service, which
    /// answers for the machine that asks.
    pub proxy: bool,
}

/// HTTP's word for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// PUT
    Put,
    /// POST
    Post,
}

/// An answer, of whatever status. It has no `Debug`: bodies carry credentials.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// All of the body.
    pub body: Vec<u8>,
}

/// No whole answer: refused, cut off, too late, too long. Whether the request was carried out is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NoResponse {
    /// In the words of who noticed.
    pub why: String,
    /// Asking again changes nothing: the certificate is not trusted, the URL is none.
    pub permanent: bool,
}

/// Who carries requests; tests put faults and crashes in its way.
pub trait Transport {
    /// One request. A status is never an error here.
    ///
    /// # Errors
    ///
    /// No whole answer within the request's time.
    fn send(&self, request: &Request<'_>) -> Result<Response, NoResponse>;
}

/// The network. Connections are kept for the next request of the same call; nothing is set up before the first.
pub struct Network {
    roots: RootCerts,
    direct: OnceCell<Agent>,
    through_proxy: OnceCell<Agent>,
}

impl Network {
    /// Servers are trusted as Mozilla's list says.
    #[must_use]
    pub fn new() -> Self {
        Self::with(RootCerts::WebPki)
    }

    /// As [`Self::new`], but trusts what `bundle`, a file's text (`AWS_CA_BUNDLE`), lists instead; none: there is no
    /// certificate in it.
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
                // A signed request goes where it was signed for, and nowhere else.
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
