//! The admin server: plain HTTP for kubelets, Prometheus and people.
//!
//! | path | |
//! |---|---|
//! | `/livez` | 200 while this process makes progress: while it leads, the last heartbeat of each of its controllers is at most ten minutes old; `?verbose` names each |
//! | `/readyz`, `/healthz` | 200 once every check of [`Readiness`] has succeeded once, else 503; `?verbose` names each |
//! | `/metrics` | Prometheus text |
//! | `/statusz`, `/flagz` | for people; JSON for `Accept: application/json` (KEP-4827, KEP-4828) |
//! | `/loglevel` | GET, PUT of a log filter; from this host only |
//!
//! It is open to the Pod's network, so it is thrifty: 64 connections, 2 s for 8 KiB of request head, small bodies.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{args::Program, leader::Leadership, metrics::Metrics, readiness::Readiness, telemetry::LogLevel};

mod pages;
mod status;

pub use status::Status;

/// Probes, a scraper or two and a person come to less than ten.
const CONNECTIONS: usize = 64;

/// A request head takes one packet; port scanners keep connections open and say nothing.
const HEAD_TIME: Duration = Duration::from_secs(2);

/// The smallest that hyper takes; our heads are below 1 KiB.
const HEAD_BYTES: usize = 8 * 1024;

/// What the server tells of.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Who this is.
    pub program: Program,
    /// For `/flagz`, secrets already redacted.
    pub flags: BTreeMap<String, String>,
    /// For `/readyz`.
    pub readiness: Readiness,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For `/statusz` and `/livez`.
    pub status: Status,
    /// For `/statusz` and `/livez`.
    pub leadership: Leadership,
    /// For `/loglevel`.
    pub log_level: LogLevel,
}

/// A bound server. Nothing is served until [`Server::serve`] is polled.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    site: Arc<pages::Site>,
}

impl Admin {
    /// Takes the address, and logs which one it got.
    ///
    /// # Errors
    /// When the address is taken or not ours.
    pub async fn bind(self, address: SocketAddr) -> io::Result<Server> {
        let listener = listen(address).await?;
        tracing::info!(address = %listener.local_addr()?, "admin server listens");
        let site = pages::Site { admin: self, started: Timestamp::now(), start: Instant::now() };
        Ok(Server { listener, site: Arc::new(site) })
    }
}

/// Takes the address. Where the host has no IPv6, any address (`[::]`) is any of IPv4.
///
/// # Errors
/// When the address is taken or not ours.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip().is_unspecified() && address.is_ipv6() && !in_use(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        other => other,
    }
}

/// Whether who asks is on this host: it speaks to the loopback, or from the very address that it speaks to.
fn is_here(peer: IpAddr, local: Option<SocketAddr>) -> bool {
    let peer = peer.to_canonical();
    peer.is_loopback() || local.is_some_and(|local| local.ip().to_canonical() == peer)
}

fn in_use(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

impl Server {
    /// The address that was taken.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is dropped.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // Beyond the limit connections wait in the kernel's queue.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, or a peer that was gone already: neither is helped by trying at once.
                    tracing::debug!(%error, "admin server: accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let site = Arc::clone(&self.site);
            let here = is_here(peer.ip(), stream.local_addr().ok());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let site = Arc::clone(&site);
                    async move { Ok::<_, std::convert::Infallible>(site.respond(here, request).await) }
                });
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIME)
                    .max_buf_size(HEAD_BYTES)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                if let Err(error) = served {
                    tracing::debug!(%peer, %error, "admin server: connection");
                }
                drop(place);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_speaks_from_the_address_that_it_speaks_to_is_here() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let at = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        for (peer, local, here) in [
            ("127.0.0.1", at("127.0.0.1:9470"), true),
            ("::ffff:127.0.0.1", at("[::ffff:127.0.0.1]:8080"), true),
            ("10.0.0.5", at("10.0.0.5:9470"), true),
            ("::ffff:10.0.0.5", at("10.0.0.5:9470"), true),
            ("10.0.0.6", at("10.0.0.5:9470"), false),
            ("10.0.0.6", None, false),
        ] {
            assert_eq!(is_here(ip(peer), local), here, "{peer} {local:?}");
        }
    }
}
