//! Notifies the controller, as [`Notifier`] decides.

use std::future::{Future, pending};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::cluster::error_chain;
use common::runtime::ConfigError;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::node::Observed;
use super::plan::{Attempt, Next, Notification, Notifier};
use super::report::Reporter;
use super::resolve::Resolver;
use super::sys;
use super::vrrp::Vrrp;
use crate::api::http::{MasterNotify, Outcome};

/// A connection in a cluster takes milliseconds. A replica that has died does not respond, and the next attempt reaches another one.
const CONNECT: Duration = Duration::from_millis(500);

/// The controller writes to all Services of the virtual router before it responds: about 2 s for a thousand of them.
const REQUEST: Duration = Duration::from_secs(10);

/// A connection is kept for this long, for the retry of a notification.
const IDLE: Duration = Duration::from_secs(10);

/// A response is one short sentence, and names of Services.
const RESPONSE_BYTES: usize = 256 * 1024;

/// Why the controller has not confirmed a notification.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

type Https = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// The controller's interface `master_notify`.
#[derive(Debug)]
pub struct Controller {
    url: Uri,
    ca: PathBuf,
    token: PathBuf,
    resolver: Resolver,
    /// The client, and the certificates that it accepts.
    client: Option<(Vec<u8>, Https)>,
}

impl Controller {
    /// Checks the URL and the files.
    ///
    /// # Errors
    /// One line that names the flag, and what is allowed.
    pub fn new(url: &str, ca: PathBuf, token: PathBuf) -> Result<Controller, ConfigError> {
        let wrong = |why: &str| ConfigError(format!("--controller-url {url:?}: {why}"));
        let parsed: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        if parsed.scheme_str() != Some("https") || parsed.host().is_none_or(str::is_empty) {
            return Err(wrong("https://<host>[:<port>] is needed, because the request has a token"));
        }
        if parsed.query().is_some() {
            return Err(wrong("a query is not allowed"));
        }
        let url = format!("{}/master_notify", url.trim_end_matches('/'));
        let url = url.parse().map_err(|_| wrong("it is no URL"))?;
        let mut controller = Controller { url, ca, token, resolver: Resolver::default(), client: None };
        controller.client().map_err(|error| ConfigError(format!("--controller-ca: {error}")))?;
        controller.bearer().map_err(|error| ConfigError(format!("--token-file: {error}")))?;
        Ok(controller)
    }

    /// The kubelet replaces the token long before it expires.
    fn bearer(&self) -> Result<HeaderValue, Error> {
        let file = self.token.display();
        let token =
            std::fs::read_to_string(&self.token).map_err(|error| Error(format!("{file}: {error}")))?;
        let token = token.trim();
        let value = Some(token).filter(|token| !token.is_empty());
        let value = value.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let mut value = value.ok_or_else(|| Error(format!("{file}: it contains no token")))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The client, made again when the certificates have changed.
    fn client(&mut self) -> Result<Https, Error> {
        let wrong = |why: String| Error(format!("{}: {why}", self.ca.display()));
        let bundle = std::fs::read(&self.ca).map_err(|error| wrong(error.to_string()))?;
        if let Some((current, client)) = &self.client
            && *current == bundle
        {
            return Ok(client.clone());
        }
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&bundle) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("it contains no certificate in PEM".to_owned()));
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new_with_resolver(self.resolver.clone());
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        let client = builder.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new()).build(connector);
        self.client = Some((bundle, client.clone()));
        Ok(client)
    }

    /// Sends a notification. It is confirmed when this returns without an error.
    fn post(&mut self, body: &MasterNotify) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let prepared = self.client().and_then(|client| Ok((client, self.bearer()?)));
        let (url, body) = (self.url.clone(), serde_json::to_vec(body));
        async move {
            let (client, bearer) = prepared?;
            let unreachable = |why: String| Error(format!("POST {url}: {why}"));
            let body = body.map_err(|error| unreachable(error.to_string()))?;
            let request = Request::post(url.clone())
                .header(AUTHORIZATION, bearer)
                .header(CONTENT_TYPE, "application/json")
                .body(Full::from(body))
                .map_err(|error| unreachable(error.to_string()))?;
            let exchange = async {
                let response =
                    client.request(request).await.map_err(|error| unreachable(error_chain(&error)))?;
                let (head, body) = response.into_parts();
                let body = Limited::new(body, RESPONSE_BYTES).collect().await;
                let body = body.map_err(|error| unreachable(error_chain(&*error)))?.to_bytes();
                Ok((head.status, body))
            };
            let (status, body) = timeout(REQUEST, exchange)
                .await
                .map_err(|_| unreachable(format!("no response within {REQUEST:?}")))??;
            if status.is_success() {
                return Ok(());
            }
            let message = match serde_json::from_slice::<Outcome>(&body) {
                Ok(outcome) => outcome.message,
                Err(_) => String::from_utf8_lossy(&body).trim().chars().take(200).collect(),
            };
            Err(Error(format!("POST {url}: {}: {message}", status.as_u16())))
        }
    }
}

type InFlight = Pin<Box<dyn Future<Output = (Attempt, Result<(), Error>)> + Send>>;

/// Notifies the controller for as long as it is polled.
pub async fn run(
    controller: Controller,
    vrrp: watch::Receiver<Vrrp>,
    observed: watch::Receiver<Observed>,
    reporter: Reporter,
) {
    let resolver = controller.resolver.clone();
    let host = controller.url.host().unwrap_or_default().to_owned();
    tokio::select! {
        () = resolver.keep_fresh(&host) => {}
        () = notify(controller, vrrp, observed, reporter) => {}
    }
}

async fn notify(
    mut controller: Controller,
    mut vrrp: watch::Receiver<Vrrp>,
    mut observed: watch::Receiver<Observed>,
    reporter: Reporter,
) {
    let mut notifier = Notifier::default();
    let mut in_flight: Option<InFlight> = None;
    // The state that is not confirmed yet, and when it was seen first.
    let mut open: Option<(Notification, Duration)> = None;
    loop {
        let now = sys::monotonic();
        let next = notifier.next(now, *vrrp.borrow_and_update(), &observed.borrow_and_update());
        let mut wake = None;
        match next {
            Next::Idle => in_flight = None,
            Next::InFlight => {}
            Next::WaitUntil(time) => {
                in_flight = None;
                wake = Some(time.saturating_sub(now));
            }
            Next::Send(attempt, notification) => {
                let body = notification.body(reporter.vrid, &reporter.node);
                let request = controller.post(&body);
                in_flight = Some(Box::pin(async move { (attempt, request.await) }));
                if open.as_ref().is_none_or(|(known, _)| *known != notification) {
                    open = Some((notification, now));
                }
            }
        }
        let response = async {
            match &mut in_flight {
                Some(request) => request.await,
                None => pending().await,
            }
        };
        let retry = async {
            match wake {
                Some(time) => sleep(time).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = vrrp.changed() => if changed.is_err() { return },
            changed = observed.changed() => if changed.is_err() { return },
            () = retry => {}
            (attempt, result) = response => {
                in_flight = None;
                let now = sys::monotonic();
                match (notifier.done(now, attempt, result.is_ok()), result) {
                    (Some(_), Ok(())) => {
                        if let Some((notification, since)) = open.take() {
                            reporter.notified(&notification, now.saturating_sub(since));
                        }
                    }
                    (Some(failures), Err(error)) => {
                        controller.resolver.outdated();
                        reporter.not_notified(failures, &error);
                    }
                    (None, _) => {}
                }
            }
        }
    }
}
