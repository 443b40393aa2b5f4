//! Proves that each fault of the fault proxy is the fault that it says, against a server that tells what reached it:
//! what is refused was never forwarded, what is swallowed was acted on, a watch flows event by event, and a process
//! that is stopped at its Nth write has made exactly N.

mod client;
mod requests;
mod server;
mod stopped;
mod tls;
mod watches;
mod writes;

use std::time::Duration;

use e2e::fault_proxy::{FaultProxy, Upstream};

use server::Server;

/// Nothing here takes a second; a machine with two busy cores gets this long before a test calls it lost.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server and a proxy of the Kubernetes flavour before it.
async fn env() -> (Server, FaultProxy) {
    let server = Server::start().await;
    let proxy = FaultProxy::start(Upstream::kubernetes(server.url())).await.unwrap();
    (server, proxy)
}

/// Waits for what has to come.
async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(TIMEOUT, what).await.expect("this takes no time unless something is broken")
}
