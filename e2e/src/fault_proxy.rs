//! A reverse proxy between a controller and one of its servers, which makes the faults that a test asks for.
//!
//! ```text
//!   controller ── http ──▶ line ─▶ server ─▶ exchange ─▶ upstream ── http or TLS ──▶ kube-apiserver, Hetzner stand-in
//!                                               │
//!                     rules (which fault) ── writes (stop at the Nth) ── events (watches) ── record (what was asked)
//! ```
//!
//! It speaks plain http/1.1 on loopback, so a kubeconfig's `server:` is [`FaultProxy::url`]. The caller's
//! `Authorization` goes on to the server unless the [`Upstream`] replaces it. Answers to reads stream through as they
//! come, a watch event by event. A write is taken in whole before it goes on, and so is its answer: a write is either
//! wholly forwarded or not at all, which is what makes "after its Nth write" exact. Upgrades (exec, port-forward) are
//! not carried.

mod body;
mod call;
mod events;
mod exchange;
mod fault;
mod kube_request;
mod line;
mod matcher;
mod process;
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
pub use fault::{Answer, EventFilter, Fate, Fault};
pub use kube_request::KubeRequest;
pub use matcher::Matcher;
pub use process::kill_process;
pub use record::Recorded;
pub use rules::RuleId;
pub use upstream::{Flavour, Upstream};
pub use writes::{Fired, Then, When, Write, WriteCounter};

use server::Shared;

/// A running proxy; clones are handles of the same one. It ends, and closes its connections, with the last handle.
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

    /// Where the controller has to be pointed: `http://127.0.0.1:<port>`. A path of the upstream's URL is prepended to
    /// each request's.
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// Makes `fault` happen to what `matcher` matches. All rules that match apply, in the order in which they were
    /// added, up to the first that answers or cuts the request by itself.
    pub fn rule(&self, matcher: Matcher, fault: Fault) -> RuleId {
        self.shared.rules.add(matcher, fault)
    }

    /// Takes a rule away; what it held goes on. False if it was gone already.
    pub fn remove(&self, rule: RuleId) -> bool {
        self.shared.rules.remove(rule)
    }

    /// Takes all rules away; what they held goes on.
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

    /// With true, the server seems to be down: open connections are reset now, and each new one as it comes.
    pub fn refuse_all(&self, refuse: bool) {
        self.shared.refuse_all(refuse);
    }

    /// Resets all connections that were made before this call, those that wait in the listener's queue included. New
    /// ones are served.
    pub async fn sever(&self) {
        self.shared.sever().await;
    }

    /// Ends the open watches that match, cleanly (the server's timeout). Returns how many; the matcher's counts are
    /// not used.
    pub fn end_watches(&self, matcher: &Matcher) -> usize {
        self.shared.streams.order(matcher, Fate::End)
    }

    /// Sends the ERROR event of an expired resource version (410) to the open watches that match, and ends them.
    /// Returns how many; the matcher's counts are not used.
    pub fn expire_watches(&self, matcher: &Matcher) -> usize {
        self.shared.streams.order(matcher, Fate::Expire)
    }

    /// How many open watches match.
    pub fn open_watches(&self, matcher: &Matcher) -> usize {
        self.shared.streams.open(matcher)
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

    /// Which of the calls with a writing method count as writes. Without it: all but those of Leases, Events and
    /// reviews (`TokenReview`, `SelfSubjectAccessReview`, …), which are not part of a controller's scenario.
    pub fn count_writes<F>(&self, counts: F)
    where
        F: Fn(&Call) -> bool + Send + Sync + 'static,
    {
        *held(&self.shared.counted) = Arc::new(counts);
    }

    /// Adds this to the query of each GET of exactly this path, behind the rules and the records: a part of a server that
    /// many share looks like a whole one. Nothing is asked of others for a controller that lists everything.
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

    /// Forgets the requests so far. Those in flight stay forgotten.
    pub fn clear_requests(&self) {
        self.shared.recorder.clear();
    }

    /// Waits until `done` says yes to the requests so far, and returns them.
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
