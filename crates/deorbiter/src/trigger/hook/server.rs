//! The HTTPS server of the hook. It is open to the cluster's network, so it is limited: few connections, short timeouts, small bodies.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::certificate::Certificates;
use super::handler::Handler;
use super::protocol::{DELETE_PATH, DISCOVERY_PATH, discovery};

/// Cluster API keeps one or two.
const CONNECTIONS: usize = 32;
/// A handshake takes three packets.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// For a request's head, and then for its body.
const SLOWEST: Duration = Duration::from_secs(5);
/// An object of Kubernetes has at most 1.5 MiB in etcd; as JSON with the request's frame a little more.
const LARGEST: usize = 3 << 20;

type Response = http::Response<Full<hyper::body::Bytes>>;

/// A bound server. Nothing is served until [`Server::serve`] is polled.
pub struct Server {
    listener: TcpListener,
    tls: TlsAcceptor,
    certificates: Arc<Certificates>,
    handler: Arc<Handler>,
}

impl Server {
    /// Binds the address, and logs it.
    ///
    /// # Errors
    /// The address is in use, or TLS cannot be set up.
    pub async fn bind(
        address: SocketAddr,
        certificates: Arc<Certificates>,
        handler: Handler,
    ) -> anyhow::Result<Server> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let resolver: Arc<Certificates> = Arc::clone(&certificates);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = common::admin::listen(address).await;
        let listener = listener.map_err(|error| anyhow::anyhow!("hook on {address}: {error}"))?;
        tracing::info!(address = %listener.local_addr()?, "Cluster API's hook is served");
        Ok(Server {
            listener,
            tls: TlsAcceptor::from(Arc::new(config)),
            certificates,
            handler: Arc::new(handler),
        })
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is dropped.
    pub async fn serve(self) {
        let follow = Arc::clone(&self.certificates).follow();
        tokio::select! {
            () = follow => {}
            () = self.accept() => {}
        }
    }

    async fn accept(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // Beyond the limit connections wait in the kernel's queue.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, or the peer is gone already: trying again at once does not help.
                    tracing::debug!(%error, "hook: accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (tls, handler) = (self.tls.clone(), Arc::clone(&self.handler));
            tokio::spawn(async move {
                match timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, &handler).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "hook: handshake"),
                    Err(_) => tracing::debug!(%peer, "hook: no handshake in time"),
                }
                drop(place);
            });
        }
    }
}

async fn connection(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    handler: &Arc<Handler>,
) {
    let service = service_fn(|request| {
        let handler = Arc::clone(handler);
        async move { Ok::<_, Infallible>(respond(&handler, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SLOWEST)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "hook: connection");
    }
}

async fn respond(handler: &Handler, request: http::Request<Incoming>) -> Response {
    let path = request.uri().path().to_owned();
    if path != DISCOVERY_PATH && path != DELETE_PATH {
        return plain(StatusCode::NOT_FOUND, "no such hook");
    }
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "hooks are called by POST");
    }
    let body = match timeout(SLOWEST, Limited::new(request.into_body(), LARGEST).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or ended early"),
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the body did not come"),
    };
    if path == DISCOVERY_PATH {
        return json(discovery().to_string());
    }
    let response = handler.before_cluster_delete(&body).await;
    json(serde_json::to_string(&response).unwrap_or_default())
}

fn json(body: String) -> Response {
    let mut response = http::Response::new(Full::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = http::Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
