//! The connections to one API server.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, uri::Scheme};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error, ResponseFuture, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ConfigExt},
};
use tower::Service;

use crate::{config::ConfigError, proxy::Proxy};

/// For a TCP connection; a reachable server accepts one in milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// TCP keepalive: the first probe after this time without data, the next ones in this interval, so many of them. A watch on a
/// broken connection is noticed after 25 s; client-go needs 45 s.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Opened when they are needed. Clones share them.
#[derive(Clone)]
pub(super) struct Connections(Arc<RwLock<Arc<dyn Pool>>>);

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connections").finish()
    }
}

/// How long an idle connection is used again. kube-apiserver closes it after 90 s (`IdleTimeout` of its `http.Server`), hyper's default: a
/// request that is sent at this moment fails.
const IDLE: Duration = Duration::from_secs(60);

/// The connector's type has no name.
trait Pool: Send + Sync {
    fn request(&self, request: Request<Body>) -> ResponseFuture;
}

impl<C> Pool for Client<C, Body>
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    fn request(&self, request: Request<Body>) -> ResponseFuture {
        Client::request(self, request)
    }
}

impl Connections {
    /// With the URL, the CA and the client certificate of the configuration.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub(super) fn new(config: &Config) -> Result<Connections, ConfigError> {
        Ok(Connections(Arc::new(RwLock::new(pool(config)?))))
    }

    /// From now on requests use new connections, with this configuration. Those in progress, and watches, end on the previous ones.
    ///
    /// # Errors
    /// [`ConfigError`]; then the previous ones stay.
    #[cfg(feature = "certificates")]
    pub(super) fn replace(&self, config: &Config) -> Result<(), ConfigError> {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pool(config)?;
        Ok(())
    }
}

fn pool(config: &Config) -> Result<Arc<dyn Pool>, ConfigError> {
    // kube uses the provider of the process. Where another crate brings a second one, there is no default.
    let _already_set = rustls::crypto::ring::default_provider().install_default();
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    // A write is small and its caller waits for it.
    connector.set_nodelay(true);
    // A watch sends nothing and may be silent for minutes: only probes detect that its peer is gone.
    connector.set_keepalive(Some(PROBE_AFTER));
    connector.set_keepalive_interval(Some(PROBE_INTERVAL));
    connector.set_keepalive_retries(Some(PROBES));
    connector.set_tcp_user_timeout(Some(PROBE_AFTER + PROBE_INTERVAL * PROBES));
    let proxy = match &config.proxy_url {
        Some(_) if config.cluster_url.scheme() != Some(&Scheme::HTTPS) => {
            return Err(ConfigError("proxy-url needs a server with an https:// URL".to_owned()));
        }
        Some(url) => Proxy::of_kubeconfig(url),
        None => Proxy::of_environment(),
    }
    .map_err(|error| ConfigError(error.to_string()))?;
    let connector = config
        .rustls_https_connector_with_connector(proxy.connector(connector))
        .map_err(|error| ConfigError(error.to_string()))?;
    Ok(Arc::new(Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).build::<_, Body>(connector)))
}

impl Service<Request<Body>> for Connections {
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        let pool = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        pool.request(request)
    }
}
