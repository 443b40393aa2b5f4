//! One request to the API server, and its result.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use ureq::tls::{ClientCert, RootCerts, TlsConfig};

use super::kubeconfig::Access;
use crate::http::{Cause, Method, Network, Request, Transport as _, is_transient};

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
    network: Network,
    base: String,
    headers: Vec<(&'static str, String)>,
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
        // The URL has `tls-server-name`.
        let server = access.server_name.as_ref().map(|_| access.server.clone());
        let mut headers = vec![("accept", "application/json".to_owned())];
        headers.extend(access.token.as_ref().map(|token| ("authorization", format!("Bearer {token}"))));
        Self { network: Network::with(tls, server), base: access.base(), headers }
    }

    /// GET of `path`, within `timeout`.
    pub(super) fn get(&self, path: &str, timeout: Duration) -> Response {
        let url = format!("{}{path}", self.base);
        let (headers, method) = (self.headers.as_slice(), Method::GET);
        let request = Request { method, url: &url, headers, body: &[], timeout, proxy: false };
        match self.network.send(&request) {
            Ok(response) => read(response.status, &response.body),
            Err(failed) => match failed.cause {
                Cause::Untrusted => Response::Untrusted(failed.why),
                Cause::Alert => Response::Refused { status: 401, details: failed.why },
                Cause::TooLong => Response::Refused { status: 200, details: failed.why },
                Cause::Temporary | Cause::Invalid => Response::Retry(failed.why),
            },
        }
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
    if is_transient(status) {
        Response::Retry(format!("status {status}{}{details}", if details.is_empty() { "" } else { ": " }))
    } else {
        Response::Refused { status, details }
    }
}
