//! A stand-in for the Hetzner Cloud API, in this process: the calls of natgw, with the checks of the real API.
//!
//! ```text
//!   client ── serve ── api ── rules ──► Change ──► Action ──(time)──► Project
//!                       (fields, query,              │
//!                        selector: strict)      ActionFailure
//! ```
//!
//! It runs on a thread and a runtime of its own, so that a test that blocks does not stop it. Where the API's reference is not
//! precise, the stand-in is strict: unknown fields and unknown query parameters, `per_page` above 50 and prefixes with host bits
//! are refused. Other faults are made by the fault proxy in front of it.

mod action;
mod api;
mod bucket;
mod fields;
mod handle;
mod model;
mod project;
mod query;
mod refusal;
mod rules;
mod seed;
mod selector;
mod serve;
mod state;

pub use action::{Action, ActionFailure, Change, Status};
pub use bucket::RateLimit;
pub use model::{FloatingIp, Network, Route, Server, Subnet};
pub use project::Project;
pub use seed::{NewFloatingIp, NewNetwork, NewServer, Seed};
pub use state::{Request, RouteChange};

use anyhow::Context;
use std::{net::SocketAddr, sync::Arc, thread::JoinHandle, time::Duration};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use state::Shared;

/// How the stand-in starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address that it listens on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// May read and write.
    pub token: String,
    /// May only read.
    pub readonly_token: String,
    /// How long an action runs. The real API takes about a second.
    pub action_duration: Duration,
    /// For the whole project.
    pub rate_limit: RateLimit,
}

impl Default for Settings {
    /// As the real API, on a free loopback port. The tokens are valid for the stand-in only; they are as long as real ones.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: "stand-in-read-write-".repeat(4).chars().take(64).collect(),
            readonly_token: "stand-in-read-only--".repeat(4).chars().take(64).collect(),
            action_duration: Duration::from_secs(1),
            rate_limit: RateLimit::default(),
        }
    }
}

/// A running stand-in. It stops when this is dropped.
pub struct Hetzner {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Hetzner {
    /// Starts one with the behaviour of the API and an empty project.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(Settings::default()).await
    }

    /// Starts one with another duration of actions.
    pub async fn start_quick(action_duration: Duration) -> anyhow::Result<Self> {
        Self::start_with(Settings { action_duration, ..Settings::default() }).await
    }

    /// Starts one with these settings. Fails if it cannot listen.
    pub async fn start_with(settings: Settings) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let (ready, started) = oneshot::channel();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("hetzner".to_owned())
            .spawn(move || run(settings, &stopped, ready))
            .context("starting the thread of the Hetzner stand-in")?;
        let (shared, address) = started.await.context("the Hetzner stand-in ended at once")??;
        Ok(Self { shared, address, stop, thread: Some(thread) })
    }

    /// The base of all paths, for example `http://127.0.0.1:4711/v1`.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, serve::BASE)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A token that may read and write.
    pub fn token(&self) -> String {
        self.shared.read(|state| state.settings.token.clone())
    }

    /// A token that may only read.
    pub fn readonly_token(&self) -> String {
        self.shared.read(|state| state.settings.readonly_token.clone())
    }
}

impl Drop for Hetzner {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the Hetzner stand-in panicked");
        }
    }
}

type Started = anyhow::Result<(Arc<Shared>, SocketAddr)>;

fn run(settings: Settings, stop: &CancellationToken, ready: oneshot::Sender<Started>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // It fails if the caller is gone.
            let _ = ready.send(Err(error.into()));
            return;
        }
    };
    runtime.block_on(async {
        let bound = async {
            let listen = settings.listen;
            let listener = tokio::net::TcpListener::bind(listen)
                .await
                .with_context(|| format!("the Hetzner stand-in cannot listen on {listen}"))?;
            let address = listener.local_addr()?;
            anyhow::Ok((listener, address))
        };
        match bound.await {
            Ok((listener, address)) => {
                let shared = Arc::new(Shared::new(settings, tokio::runtime::Handle::current()));
                if ready.send(Ok((shared.clone(), address))).is_ok() {
                    let _stopped = stop.run_until_cancelled(serve::serve(listener, shared)).await;
                }
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    });
}
