//! A reverse proxy between a controller and one of its servers, which makes faults for a test.
//!
//! ```text
//!   controller ── http ──▶ line ─▶ server ─▶ exchange ─▶ upstream ── http or TLS ──▶ kube-apiserver, Hetzner stand-in
//!                                               │
//!                     rules (which fault) ── writes (stop at the Nth) ── events (watches) ── record (requests)
//! ```
//!
//! It speaks plain HTTP/1.1 on loopback, so the `server:` of a kubeconfig is [`FaultProxy::url`]. It forwards the caller's
//! `Authorization`. Responses to reads are streamed, a watch event by event. A write is read as a whole before it is forwarded, and
//! so is its response: a write is either forwarded as a whole or not at all, so that "after its Nth write" is exact. Upgrades (exec,
//! port-forward) are not supported.

mod body;
mod call;
mod events;
mod exchange;
mod fault;
mod kube_request;
mod line;
mod matcher;
mod record;
mod rules;
mod server;
mod upstream;
mod writes;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::DropGuard;

pub use call::Call;
pub use fault::{EventFilter, Fate, Fault, Reply};
pub use kube_request::KubeRequest;
pub use matcher::Matcher;
pub use record::Recorded;
pub use rules::RuleId;
pub use upstream::{Flavour, Upstream};
pub use writes::{Fired, Then, When, Write, WriteCounter};

use server::Shared;

/// A running proxy; clones are handles of the same one. It ends with the last handle, and closes its connections.
#[derive(Clone)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    _running: Arc<DropGuard>,
}

impl FaultProxy {
    /// Listens on a free loopback port and forwards to `upstream`. Its writes are counted by a counter of its own.
    ///
    /// # Errors
    /// The upstream's address or certificates cannot be used, or no port can be bound.
    pub async fn start(upstream: Upstream) -> anyhow::Result<FaultProxy> {
        FaultProxy::start_counted(upstream, &WriteCounter::new()).await
    }

    /// As [`FaultProxy::start`], with a counter that several proxies share: one order over the writes to all of them.
    ///
    /// # Errors
    /// As [`FaultProxy::start`].
    pub async fn start_counted(upstream: Upstream, counter: &WriteCounter) -> anyhow::Result<FaultProxy> {
        let (shared, running) = server::start(upstream, counter.clone()).await?;
        Ok(FaultProxy { shared, _running: Arc::new(running) })
    }

    /// The URL for the controller: `http://127.0.0.1:<port>`. A path of the upstream's URL is prepended to
    /// each request's.
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// Makes `fault` happen to what `matcher` matches. All rules that match apply, in the order in which they were
    /// added, up to the first that responds to the request or cuts it.
    pub fn rule(&self, matcher: Matcher, fault: Fault) -> RuleId {
        self.shared.rules.add(matcher, fault)
    }

    /// Removes a rule and releases what it held. False if it was removed before.
    pub fn remove(&self, rule: RuleId) -> bool {
        self.shared.rules.remove(rule)
    }

    /// Removes all rules and releases what they held.
    pub fn clear(&self) {
        self.shared.rules.clear();
    }

    /// How often the rule was applied so far; 0 after it was removed.
    pub fn applied(&self, rule: RuleId) -> u64 {
        self.shared.rules.applied(rule)
    }

    /// Waits until the rule was applied `times` times, as a test does before it goes on with its scenario.
    ///
    /// # Errors
    /// It was not, within `timeout`.
    pub async fn wait_applied(&self, rule: RuleId, times: u64, timeout: Duration) -> anyhow::Result<()> {
        self.shared.rules.wait_applied(rule, times, timeout).await
    }

    /// With true, the server seems to be down: open connections and new ones are reset.
    pub fn refuse_all(&self, refuse: bool) {
        self.shared.refuse_all(refuse);
    }

    /// Resets all connections that were made before this call, those in the listener's queue included. New ones are served.
    pub async fn sever(&self) {
        self.shared.sever().await;
    }

    /// Sends the ERROR event of an expired resource version (410) to the open watches that match, and ends them.
    /// Returns how many; the matcher's counts are not used.
    pub fn expire_watches(&self, matcher: &Matcher) -> usize {
        self.shared.streams.order(matcher, Fate::Expire)
    }

    /// Runs `action` at the `n`th counted write from now, over all proxies of this one's [`WriteCounter`].
    ///
    /// # Errors
    /// `n` is 0.
    pub fn on_write<F, Fut>(&self, n: u64, when: When, action: F) -> anyhow::Result<Fired>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Then> + Send + 'static,
    {
        self.shared.counter.on_write(n, when, action)
    }

    /// The counter of this proxy's writes.
    pub fn counter(&self) -> &WriteCounter {
        &self.shared.counter
    }

    /// Adds this to the query of each GET of exactly this path, after the rules and the records: the controller sees a part of a
    /// shared server as a whole one.
    pub fn narrow(&self, path: &str, query: &str) {
        *held(&self.shared.narrowed) = Some((path.to_owned(), query.to_owned()));
    }

    /// All requests so far, in the order in which they came in.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.recorder.all()
    }

    /// The requests that were counted as writes, in the order in which they were forwarded.
    pub fn writes(&self) -> Vec<Recorded> {
        self.shared.recorder.writes()
    }

    /// Clears the records.
    pub fn clear_requests(&self) {
        self.shared.recorder.clear();
    }

    /// Waits until `done` is true for the requests so far, and returns them.
    ///
    /// # Errors
    /// It did not, within `timeout`; the message lists the requests.
    pub async fn wait_for<P>(&self, done: P, timeout: Duration) -> anyhow::Result<Vec<Recorded>>
    where
        P: Fn(&[Recorded]) -> bool,
    {
        self.shared.recorder.wait_for(done, timeout).await
    }
}

/// A lock whose holder panicked holds plain data all the same.
fn held<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
