//! The controller's address, known before it is needed.
//!
//! The node that fails may be the one with the cluster's DNS servers, and a fail-over must not wait for their replacement. So the name
//! is looked up in advance, and the last response counts until there is a newer one: the address of a Service stays as long as the Service.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec::IntoIter;

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Notify;
use tower::Service;

/// How old a response becomes.
const REFRESH: Duration = Duration::from_secs(10);

/// A resolver of one name, for a connector. Clones share the response.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    known: Arc<Mutex<Option<Vec<SocketAddr>>>>,
    outdated: Arc<Notify>,
}

impl Resolver {
    /// Looks the host up at an interval, for as long as it is polled.
    pub async fn keep_fresh(&self, host: &str) {
        loop {
            if let Err(error) = self.look_up(host).await {
                tracing::debug!(host, "DNS lookup failed: {error}");
            }
            // Either ends the wait.
            let _elapsed = tokio::time::timeout(REFRESH, self.outdated.notified()).await;
        }
    }

    /// The address did not respond: it is looked up again now.
    pub fn outdated(&self) {
        self.outdated.notify_one();
    }

    async fn look_up(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        // The connector has the port.
        let addresses: Vec<_> = tokio::net::lookup_host((host, 0)).await?.collect();
        if addresses.is_empty() {
            return Err(io::Error::other("it has no address"));
        }
        *self.lock() = Some(addresses.clone());
        Ok(addresses)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<SocketAddr>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service<Name> for Resolver {
    type Response = IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<IntoIter<SocketAddr>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move {
            let known = resolver.lock().clone();
            let addresses = match known {
                Some(addresses) => addresses,
                None => resolver.look_up(name.as_str()).await?,
            };
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_response_counts_while_dns_is_away() {
        let name = |host: &str| host.parse::<Name>().unwrap();
        let mut resolver = Resolver::default();
        // RFC 6761: it has no address.
        assert!(resolver.call(name("controller.invalid")).await.is_err());
        resolver.look_up("localhost").await.unwrap();
        let known: Vec<SocketAddr> = resolver.call(name("localhost")).await.unwrap().collect();
        assert!(known.iter().all(|address| address.ip().is_loopback()), "{known:?}");
        assert!(resolver.look_up("controller.invalid").await.is_err());
        assert_eq!(resolver.call(name("localhost")).await.unwrap().collect::<Vec<_>>(), known);
    }
}
