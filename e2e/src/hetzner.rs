//! A stand-in for the Hetzner Cloud API, as strict as the real one, in this process.
//!
//! ```text
//!   client ── serve ── api ── rules ──► Change ──► Action ──(time)──► Project
//!               │       (fields, query,              │
//!             fault      selector: strict)        ActionFailure
//! ```
//!
//! It runs on a thread and a runtime of its own: a test that blocks (a Python client, say) does not stop it, and its
//! times are true. Everything in it is gone when the [`Hetzner`] is dropped.
//!
//! Where the API's own reference leaves a question open, the stand-in is the stricter of the two: unknown fields and
//! unknown query parameters, `per_page` above 50 and prefixes with host bits are refused, never ignored.

mod action;
mod api;
mod bucket;
mod change;
mod fault;
mod fields;
mod handle;
mod model;
mod query;
mod refusal;
mod rules;
mod seed;
mod selector;
mod serve;
mod state;

mod project;

pub use action::{Action, ActionFailure, Effect, Status};
pub use bucket::RateLimit;
pub use change::Change;
pub use fault::{Answer, Injection};
pub use model::{FloatingIp, Network, PrivateNet, Route, Server, Subnet};
pub use project::Project;
pub use refusal::Code;
pub use seed::{NewFloatingIp, NewNetwork, NewServer, Seed};
pub use state::{Request, RouteChange};

use anyhow::Context;
use std::{net::SocketAddr, sync::Arc, thread::JoinHandle, time::Duration};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use state::Shared;

/// How the stand-in behaves; [`Hetzner::configure`] changes it at any time.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// May read and write.
    pub token: String,
    /// May only read.
    pub readonly_token: String,
    /// How long an action runs. The real API was seen to take about a second.
    pub action_duration: Duration,
    /// When readers see what an action changes.
    pub effect: Effect,
    /// A running action shows an `error`, as the documentation's example does.
    pub error_while_running: bool,
    /// Taken at the start and whenever it is changed; changing it fills the bucket.
    pub rate_limit: RateLimit,
}

impl Default for Settings {
    /// As the real API, on a free loopback port. The tokens open nothing but the stand-in; they are as long as real ones.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: "stand-in-read-write-".repeat(4).chars().take(64).collect(),
            readonly_token: "stand-in-read-only--".repeat(4).chars().take(64).collect(),
            action_duration: Duration::from_secs(1),
            effect: Effect::End,
            error_while_running: true,
            rate_limit: RateLimit::default(),
        }
    }
}

/// A running stand-in. Dropped = stopped.
pub struct Hetzner {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Hetzner {
    /// Starts one with the API's own behaviour and an empty project.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(Settings::default()).await
    }

    /// Starts one whose actions take that long: tests have no second to lose.
    pub async fn start_quick(action_duration: Duration) -> anyhow::Result<Self> {
        Self::start_with(Settings { action_duration, ..Settings::default() }).await
    }

    /// Starts one with those settings. Fails if it cannot listen.
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

    /// Where it listens.
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
            // If the send fails, the receiver is gone.
            let _unheard = ready.send(Err(error.into()));
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
                let _unheard = ready.send(Err(error));
            }
        }
    });
}
