//! The server behind the proxy.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::call::Call;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// The format of the errors that the proxy makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// A kube-apiserver: `Status` objects.
    Kubernetes,
    /// The Hetzner Cloud API: `{"error": {"code": …}}`.
    Hetzner,
    /// Neutron: `{"NeutronError": {"type": …}}`.
    Neutron,
}

/// The server that the proxy forwards to.
#[derive(Clone)]
pub struct Upstream {
    url: String,
    flavour: Flavour,
    ca_pem: Option<String>,
    identity_pem: Option<(String, String)>,
    impersonation: Option<(String, Vec<String>)>,
}

impl Upstream {
    /// A kube-apiserver at an `http://` or `https://` URL.
    pub fn kubernetes(url: impl Into<String>) -> Upstream {
        Upstream {
            url: url.into(),
            flavour: Flavour::Kubernetes,
            ca_pem: None,
            identity_pem: None,
            impersonation: None,
        }
    }

    /// A Hetzner Cloud API at an `http://` or `https://` URL.
    pub fn hetzner(url: impl Into<String>) -> Upstream {
        Upstream { flavour: Flavour::Hetzner, ..Upstream::kubernetes(url) }
    }

    /// A Neutron at an `http://` or `https://` URL.
    pub fn neutron(url: impl Into<String>) -> Upstream {
        Upstream { flavour: Flavour::Neutron, ..Upstream::kubernetes(url) }
    }

    /// Trusts the certificates of this PEM text, and no other. Needed for https.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<String>) -> Upstream {
        self.ca_pem = Some(pem.into());
        self
    }

    /// Presents this client certificate (chain and key, PEM text): all requests are made as its owner, unless they carry a
    /// token.
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<String>,
        key_pem: impl Into<String>,
    ) -> Upstream {
        self.identity_pem = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// All requests are made as this user, in these groups. The client certificate must have the permission to impersonate.
    /// Impersonation headers of the caller are dropped.
    #[must_use]
    pub fn impersonate(
        mut self,
        user: impl Into<String>,
        groups: impl IntoIterator<Item = String>,
    ) -> Upstream {
        self.impersonation = Some((user.into(), groups.into_iter().collect()));
        self
    }

    fn impersonation(&self) -> anyhow::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some((user, groups)) = &self.impersonation {
            headers.insert(IMPERSONATE_USER, HeaderValue::from_str(user)?);
            for group in groups {
                headers.append(IMPERSONATE_GROUP, HeaderValue::from_str(group)?);
            }
        }
        Ok(headers)
    }

    fn tls(&self) -> anyhow::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.ca_pem {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|error| anyhow!("CA certificate: {error:?}"))?;
                roots.add(certificate).context("CA certificate")?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("TLS versions")?
            .with_root_certificates(roots);
        let Some((chain, key)) = &self.identity_pem else { return Ok(builder.with_no_client_auth()) };
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| anyhow!("client certificate: {error:?}"))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| anyhow!("client key: {error:?}"))?;
        builder.with_client_auth_cert(chain, key).context("client certificate")
    }
}

/// The client of an [`Upstream`].
pub(super) struct Origin {
    pub(super) flavour: Flavour,
    base: Uri,
    /// Empty: the caller's own pass.
    impersonation: HeaderMap,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Origin {
    pub(super) fn new(upstream: &Upstream) -> anyhow::Result<Origin> {
        let base: Uri = upstream.url.parse().with_context(|| format!("upstream {}", upstream.url))?;
        match base.scheme_str() {
            Some("http") => {}
            Some("https") if upstream.ca_pem.is_some() => {}
            Some("https") => bail!("upstream {}: https needs a CA certificate", upstream.url),
            _ => bail!("upstream {}: neither http:// nor https://", upstream.url),
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        // Events are small and must be sent at once.
        http.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(upstream.tls()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        // No connection is used twice: one that the server has closed meanwhile would be a fault of no rule.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Origin {
            flavour: upstream.flavour,
            base,
            impersonation: upstream.impersonation().context("impersonation")?,
            client,
        })
    }

    /// Forwards the call, and returns once the head of its response is there.
    pub(super) async fn send(&self, call: &Call) -> anyhow::Result<Response<Incoming>> {
        let target = format!("{}{}", self.base.path().trim_end_matches('/'), call.target());
        let mut parts = self.base.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(target).context("path")?);
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = Uri::from_parts(parts).context("URI")?;
        let mut headers = call.headers.clone();
        remove_hop_by_hop(&mut headers);
        // The client sets both for this server and this body.
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        if !self.impersonation.is_empty() {
            let of_the_caller: Vec<_> =
                headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
            for name in of_the_caller {
                headers.remove(name);
            }
            for (name, value) in &self.impersonation {
                headers.append(name.clone(), value.clone());
            }
        }
        *request.headers_mut() = headers;
        let mut response = self.client.request(request).await?;
        remove_hop_by_hop(response.headers_mut());
        Ok(response)
    }
}

/// Headers of one connection (RFC 9110, 7.6.1), and `Expect`, which the proxy has handled.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    const NAMES: [HeaderName; 6] = [
        header::CONNECTION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::EXPECT,
    ];
    for name in NAMES {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}
