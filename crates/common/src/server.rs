//! HTTP(S) servers: one accept loop for all of them.
//!
//! * At most [`Limits::connections`] at a time. A TLS handshake, a request head, a request body and a client that does not read its
//!   response each have a time limit, and head and body a size limit: a server is open to the Pod network, and a slow or silent client
//!   must not lock others out.
//! * The handler gets each request with its whole body.
//! * With the feature `https`: TLS whose files are read again when they change, client certificates
//!   ([`Tls`]), and bearer tokens that the API server reviews ([`TokenAuthentication`]).
//! * A shutdown refuses new connections and finishes the requests in flight.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_TYPE, WWW_AUTHENTICATE},
    request::Parts,
};
use http_body::Body;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use k8s_openapi::api::authentication::v1::UserInfo;
use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

#[cfg(feature = "https")]
mod authentication;
#[cfg(feature = "https")]
mod tls;

#[cfg(feature = "https")]
pub use authentication::TokenAuthentication;
#[cfg(feature = "https")]
pub use tls::{ClientCertificates, Tls, TlsFiles};

/// The smallest buffer that hyper takes.
const LEAST_HEAD_BYTES: usize = 8 * 1024;

/// Before the next `accept` after one that failed: out of file descriptors, or the peer is gone already. Neither is helped by
/// another one at once.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The most that is read of a refused request. A larger body is an attack, or a mistake that no response helps.
const REST_BYTES: usize = 1024 * 1024;

/// Limits of a server for its connections and requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at one time; further ones wait in the kernel's queue.
    pub connections: usize,
    /// For the TLS handshake, and for each request head.
    pub head_time: Duration,
    /// Of a request head; 8 KiB at least.
    pub head_bytes: usize,
    /// For a request body, and for a client that reads nothing of a response.
    pub body_time: Duration,
    /// Of a request body.
    pub body_bytes: usize,
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The peer of the connection.
    pub peer: SocketAddr,
    /// This side of the connection.
    pub local: Option<SocketAddr>,
    /// The certificate of the client, verified against the CA bundle of [`ClientCertificates`].
    pub certificate: Option<CertificateDer<'static>>,
    /// The user of the bearer token, as the API server reports it.
    pub user: Option<UserInfo>,
}

impl Caller {
    /// Whether the caller is on this host: it connects to the loopback interface, or from the address that it connects to.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let peer = self.peer.ip().to_canonical();
        peer.is_loopback() || self.local.is_some_and(|local| local.ip().to_canonical() == peer)
    }
}

/// A bound server. Connections wait until [`Server::serve`] is polled.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// The parts of a server that all its connections use.
struct Shared {
    name: &'static str,
    limits: Limits,
    #[cfg(feature = "https")]
    tls: Option<tls::Followed>,
    #[cfg(feature = "https")]
    authentication: Option<TokenAuthentication>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Describes a server; [`Builder::bind`] takes the address.
#[derive(Debug)]
pub struct Builder {
    shared: Shared,
}

impl Builder {
    /// Plain HTTP without authentication. `name` is used in log lines and metrics.
    #[must_use]
    pub fn new(name: &'static str, limits: Limits) -> Builder {
        Builder {
            shared: Shared {
                name,
                limits,
                #[cfg(feature = "https")]
                tls: None,
                #[cfg(feature = "https")]
                authentication: None,
            },
        }
    }

    /// Serves HTTPS only. The metric `perimeter_server_tls_problem` of this server is 1 while files that changed cannot be
    /// used and the previous ones stay in force.
    ///
    /// # Errors
    /// Two servers of one process have the same name.
    #[cfg(feature = "https")]
    pub fn tls(mut self, tls: Tls, metrics: &crate::metrics::Metrics) -> Result<Builder, prometheus::Error> {
        self.shared.tls = Some(tls::Followed::new(tls, self.shared.name, metrics)?);
        Ok(self)
    }

    /// Requires a bearer token of each request whose connection has no verified client certificate.
    #[cfg(feature = "https")]
    #[must_use]
    pub fn authentication(mut self, authentication: TokenAuthentication) -> Builder {
        self.shared.authentication = Some(authentication);
        self
    }

    /// Takes the address, and logs which one it got: port 0 is any free one. Where the host has no IPv6, any address (`[::]`)
    /// is any address of IPv4.
    ///
    /// # Errors
    /// The address is in use, or not one of this host.
    pub async fn bind(self, address: SocketAddr) -> io::Result<Server> {
        let in_use = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
        };
        let listener = match TcpListener::bind(address).await {
            Err(error) if address.ip().is_unspecified() && address.is_ipv6() && !in_use(&error) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await?
            }
            other => other?,
        };
        tracing::info!(address = %listener.local_addr()?, "{} server listens", self.shared.name);
        Ok(Server { listener, shared: Arc::new(self.shared) })
    }
}

impl Server {
    /// The address that was taken.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is cancelled, then refuses new connections, and returns when the requests in flight have
    /// their responses. The caller limits the time of that.
    pub async fn serve<H, F, B>(self, handler: H, shutdown: CancellationToken)
    where
        H: Fn(Caller, Request<Bytes>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Server { listener, shared } = self;
        let connections = GracefulShutdown::new();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = accept(listener, &shared, &handler, &connections) => {}
            () = shared.follow_files() => {}
        }
        connections.shutdown().await;
    }
}

/// Never ends.
async fn accept<H, F, B>(
    listener: TcpListener,
    shared: &Arc<Shared>,
    handler: &H,
    connections: &GracefulShutdown,
) where
    H: Fn(Caller, Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let permits = Arc::new(Semaphore::new(shared.limits.connections));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(server = shared.name, %error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        let (shared, handler, watcher) = (Arc::clone(shared), handler.clone(), connections.watcher());
        tokio::spawn(async move {
            let name = shared.name;
            if let Err(error) = connection(shared, handler, watcher, stream, peer).await {
                tracing::debug!(server = name, %peer, error, "connection failed");
            }
            drop(permit);
        });
    }
}

async fn connection<H, F, B>(
    shared: Arc<Shared>,
    handler: H,
    watcher: Watcher,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<(), String>
where
    H: Fn(Caller, Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let caller = Caller { peer, local: stream.local_addr().ok(), certificate: None, user: None };
    #[cfg(feature = "https")]
    if let Some(tls) = &shared.tls {
        let handshake = timeout(shared.limits.head_time, tls.acceptor().accept(stream)).await;
        let stream =
            handshake.map_err(|_| "the TLS handshake timed out")?.map_err(|error| error.to_string())?;
        let chain = stream.get_ref().1.peer_certificates();
        let certificate = chain.and_then(<[_]>::first).cloned().map(CertificateDer::into_owned);
        return http(shared, handler, watcher, stream, Caller { certificate, ..caller }).await;
    }
    http(shared, handler, watcher, stream, caller).await
}

async fn http<H, F, B>(
    shared: Arc<Shared>,
    handler: H,
    watcher: Watcher,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    caller: Caller,
) -> Result<(), String>
where
    H: Fn(Caller, Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let limits = shared.limits;
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, handler, caller) = (Arc::clone(&shared), handler.clone(), caller.clone());
        async move {
            let (head, mut body) = request.into_parts();
            Ok::<_, Infallible>(match shared.admit(caller, head, &mut body).await {
                Ok((caller, request)) => handler(caller, request).await.map(Either::Left),
                Err(refusal) => {
                    tokio::spawn(timeout(limits.body_time, read_rest(body)));
                    refusal.response().map(Either::Right)
                }
            })
        }
    });
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(limits.body_time));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_bytes.max(LEAST_HEAD_BYTES))
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    watcher.watch(connection).await.map_err(|error| error.to_string())
}

/// Reads what a client still sends after a refusal. Otherwise the connection is closed while it writes, and a client that writes all before it
/// reads loses the response (RFC 9112, section 9.6).
async fn read_rest(mut body: Incoming) {
    let mut rest = REST_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(less) = rest.checked_sub(length) else { return };
        rest = less;
    }
}

/// Why a request does not reach the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    code: StatusCode,
    message: String,
}

impl Refusal {
    fn new(code: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(format!("{}\n", self.message)));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.code == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl Shared {
    /// Authenticates the caller, and only then reads the body.
    #[cfg_attr(not(feature = "https"), allow(unused_mut))]
    async fn admit(
        &self,
        mut caller: Caller,
        head: Parts,
        body: &mut Incoming,
    ) -> Result<(Caller, Request<Bytes>), Refusal> {
        #[cfg(feature = "https")]
        if let Some(authentication) = self.authentication.as_ref().filter(|_| caller.certificate.is_none()) {
            caller.user = Some(authentication.user(&head).await?);
        }
        let Limits { body_bytes, body_time, .. } = self.limits;
        let too_large = || {
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {body_bytes} bytes"))
        };
        // The length that the head announces: a client that sends too much need not send it.
        if body.size_hint().lower() > body_bytes as u64 {
            return Err(too_large());
        }
        match timeout(body_time, Limited::new(body, body_bytes).collect()).await {
            Ok(Ok(body)) => Ok((caller, Request::from_parts(head, body.to_bytes()))),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "the body ended early")),
            Err(_) => Err(Refusal::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body took more than {body_time:?}"),
            )),
        }
    }

    /// Never ends.
    async fn follow_files(&self) {
        #[cfg(feature = "https")]
        if let Some(tls) = &self.tls {
            tls.follow().await;
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests;
