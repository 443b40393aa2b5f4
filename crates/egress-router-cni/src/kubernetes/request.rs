//! One request to the API server, and its result.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use ureq::tls::{ClientCert, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, http::Uri};

use super::kubeconfig::Access;

/// Limit of a response. A ConfigMap has up to 1 MiB, and its managedFields may have as much again.
const MAX_RESPONSE_BYTES: u64 = 4 << 20;

/// Limit of the API server's message in an error.
const MAX_MESSAGE: usize = 300;

/// The result. It has no `Debug`, because a ConfigMap may be confidential.
pub enum Response {
    /// The ConfigMap's `data`.
    Data(BTreeMap<String, String>),
    /// The API server refused permanently.
    Refused {
        /// Of HTTP.
        status: u16,
        /// Its own.
        details: String,
    },
    /// The server's certificate is not trusted.
    Untrusted(String),
    /// A temporary failure.
    Retry(String),
}

/// A client. It has no `Debug`, because it contains the token.
pub(super) struct Client {
    agent: Agent,
    base: String,
    bearer: Option<String>,
}

impl Client {
    pub(super) fn new(access: &Access) -> Self {
        let roots = match &access.authorities {
            Some(certificates) => certificates.iter().cloned().into(),
            None => RootCerts::WebPki,
        };
        let identity =
            access.identity.as_ref().map(|(chain, key)| ClientCert::new_with_certs(chain, key.to_owned()));
        let tls = TlsConfig::builder()
            .root_certs(roots)
            .client_cert(identity)
            .disable_verification(access.skip_verification)
            .build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(true)
            // The token must not follow redirects to another server.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent("egress-router")
            .tls_config(tls)
            .build();
        let agent = match &access.server_name {
            // ureq verifies the name in the URL: the URL has `tls-server-name`, and the resolver returns the server's address.
            Some(_) => Agent::with_parts(config, DefaultConnector::default(), At(access.server.clone())),
            None => Agent::new_with_config(config),
        };
        Self {
            agent,
            base: access.base(),
            bearer: access.token.as_ref().map(|token| format!("Bearer {token}")),
        }
    }

    /// GET of `path`, within `timeout`.
    pub(super) fn get(&self, path: &str, timeout: Duration) -> Response {
        let mut request = self
            .agent
            .get(format!("{}{path}", self.base))
            .header("accept", "application/json")
            .config()
            // Zero would mean no timeout.
            .timeout_global(Some(timeout.max(Duration::from_millis(1))))
            .build();
        if let Some(bearer) = &self.bearer {
            request = request.header("authorization", bearer);
        }
        let mut response = match request.call() {
            Ok(response) => response,
            Err(error) => return no_response(&error),
        };
        let status = response.status().as_u16();
        let body = match response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec() {
            Ok(body) => body,
            Err(ureq::Error::BodyExceedsLimit(_)) => {
                return Response::Refused {
                    status,
                    details: format!("a response of more than {MAX_RESPONSE_BYTES} bytes"),
                };
            }
            Err(error) => return no_response(&error),
        };
        read(status, &body)
    }
}

/// The result of a complete response.
#[must_use]
pub fn read(status: u16, body: &[u8]) -> Response {
    #[derive(Deserialize)]
    struct ConfigMap {
        kind: Option<String>,
        data: Option<BTreeMap<String, String>>,
    }
    #[derive(Deserialize)]
    struct Status {
        message: Option<String>,
    }
    if status == 200 {
        return match serde_json::from_slice::<ConfigMap>(body) {
            Ok(ConfigMap { kind: Some(kind), data }) if kind == "ConfigMap" => {
                Response::Data(data.unwrap_or_default())
            }
            Ok(_) => Response::Refused { status, details: "the response is not a ConfigMap".to_owned() },
            // Truncated, for example by a proxy.
            Err(error) if error.is_eof() => Response::Retry(format!("the response was cut off: {error}")),
            // Not the parser's message, which quotes a whole value.
            Err(error) => {
                let what = if error.is_data() { "a value of another kind" } else { "no JSON" };
                let (line, column) = (error.line(), error.column());
                let details =
                    format!("the response is not a ConfigMap: {what} at line {line}, column {column}");
                Response::Refused { status, details }
            }
        };
    }
    let details =
        serde_json::from_slice::<Status>(body).ok().and_then(|status| status.message).unwrap_or_default();
    let details: String = details.chars().take(MAX_MESSAGE).collect();
    if status == 429 || status >= 500 {
        Response::Retry(format!("status {status}{}{details}", if details.is_empty() { "" } else { ": " }))
    } else {
        Response::Refused { status, details }
    }
}

fn no_response(error: &ureq::Error) -> Response {
    let tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()),
        _ => None,
    };
    match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Response::Untrusted(error.to_string())
        }
        // An alert of the server: with TLS 1.3 a client certificate is refused after the handshake.
        Some(rustls::Error::AlertReceived(alert)) => {
            Response::Refused { status: 401, details: format!("TLS alert {alert:?}") }
        }
        _ => Response::Retry(error.to_string()),
    }
}

/// Resolves every name to this server.
#[derive(Debug)]
struct At(Uri);

impl Resolver for At {
    fn resolve(
        &self,
        _: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        DefaultResolver::default().resolve(&self.0, config, timeout)
    }
}
