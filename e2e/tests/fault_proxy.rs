//! Each fault of the fault proxy, against a server that records its requests: a refused request is not forwarded, the server acts on
//! a swallowed one, a watch is forwarded event by event, and a process that is stopped at its Nth write has made exactly N.

mod client;
mod requests;
mod server;
mod stopped;
mod tls;
mod watches;
mod writes;

use e2e::fault_proxy::{FaultProxy, Upstream};
use e2e::wait::TIMEOUT;

use server::Server;

/// A server and a proxy of the Kubernetes flavour before it.
async fn env() -> (Server, FaultProxy) {
    let server = Server::start().await;
    let proxy = FaultProxy::start(Upstream::kubernetes(server.url())).await.unwrap();
    (server, proxy)
}

/// Waits with a timeout.
async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(TIMEOUT, what).await.expect("this takes no time unless something is broken")
}
