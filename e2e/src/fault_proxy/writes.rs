//! Counting writes, and acting at the Nth.
//!
//! Writes enter one after another. Writes without an action are forwarded concurrently. A write with an action waits for the
//! responses to all writes before it, and all writes after it wait until the action is done. So exactly the writes up to it
//! have reached the servers while the action runs.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::BoxFuture;
use http::Method;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot};
use tokio_util::sync::CancellationToken;

use super::call::Call;
use super::held;
use super::server::Shared;

/// The moment of a write at which an action runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// The server does not know of the write yet.
    BeforeForward,
    /// The server has responded in full (or could not be reached); the controller has received nothing yet.
    AfterServerActed,
    /// The controller's socket has the whole response (or was closed meanwhile).
    AfterResponse,
}

/// The effect of an action on its write and on the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    /// The write continues.
    GoOn,
    /// As after the death of the client: all connections to all proxies of the counter are reset, and requests that were not
    /// forwarded yet never are.
    Cut,
}

/// A counted write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Its place among all writes of the counter, from 1.
    pub number: u64,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
}

/// A registered action. It stays registered when this is dropped.
#[derive(Debug)]
pub struct Fired(oneshot::Receiver<Write>);

impl Fired {
    /// Waits until the action is done and, after [`Then::Cut`], the connections are gone.
    ///
    /// # Errors
    /// The write did not come within `timeout`, or this action can no longer happen: it panicked, or another action
    /// cut the same write before.
    pub async fn wait(self, timeout: Duration) -> anyhow::Result<Write> {
        let outcome = tokio::time::timeout(timeout, self.0).await;
        outcome
            .with_context(|| format!("no such write within {timeout:?}"))?
            .context("the action did not finish")
    }
}

type Action = Box<dyn FnOnce() -> BoxFuture<'static, Then> + Send>;

struct Trigger {
    when: When,
    action: Action,
    fired: oneshot::Sender<Write>,
}

#[derive(Default)]
struct State {
    count: u64,
    triggers: BTreeMap<u64, Vec<Trigger>>,
    proxies: Vec<Weak<Shared>>,
}

/// Counts the writes that are forwarded, over one proxy or several; clones are handles of the same one.
#[derive(Clone, Default)]
pub struct WriteCounter {
    state: Arc<Mutex<State>>,
    /// Held while a write waits for its permit, so that permits are given in the order of arrival.
    entry: Arc<tokio::sync::Mutex<()>>,
    gate: Arc<RwLock<()>>,
}

impl WriteCounter {
    /// A counter that has counted nothing.
    pub fn new() -> WriteCounter {
        WriteCounter::default()
    }

    /// How many writes were counted.
    pub fn count(&self) -> u64 {
        held(&self.state).count
    }

    /// Runs `action` at the `n`th counted write from now: 1 is the next. Several actions may share a write.
    ///
    /// While it runs, no later write is forwarded, so it must not wait for one.
    ///
    /// # Errors
    /// `n` is 0.
    pub fn on_write<F, Fut>(&self, n: u64, when: When, action: F) -> anyhow::Result<Fired>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Then> + Send + 'static,
    {
        ensure!(n > 0, "writes are counted from 1");
        let (fired, receiver) = oneshot::channel();
        let action: Action = Box::new(move || Box::pin(action()));
        let mut state = held(&self.state);
        let number = state.count + n;
        state.triggers.entry(number).or_default().push(Trigger { when, action, fired });
        Ok(Fired(receiver))
    }

    /// Forgets the actions that have not begun; their [`Fired`] ends with an error.
    pub fn forget_actions(&self) {
        held(&self.state).triggers.clear();
    }

    pub(super) fn attach(&self, proxy: &Arc<Shared>) {
        let mut state = held(&self.state);
        state.proxies.retain(|proxy| proxy.strong_count() > 0);
        state.proxies.push(Arc::downgrade(proxy));
    }

    /// Waits for the write's permit, and counts the write. It is not counted if this is dropped while it waits, or returns None
    /// because the connection was severed.
    pub(super) async fn enter(&self, call: &Call, severed: &CancellationToken) -> Option<Permit> {
        let _entry = self.entry.lock().await;
        loop {
            let exclusive = {
                let state = held(&self.state);
                state.triggers.contains_key(&(state.count + 1))
            };
            let permit = if exclusive {
                Guard::Exclusive { _guard: self.gate.clone().write_owned().await }
            } else {
                Guard::Shared { _guard: self.gate.clone().read_owned().await }
            };
            // The connection may have been severed while the permit was waited for.
            if severed.is_cancelled() {
                return None;
            }
            let mut state = held(&self.state);
            let number = state.count + 1;
            if !exclusive && state.triggers.contains_key(&number) {
                // The action was added while the permit was waited for.
                continue;
            }
            state.count = number;
            let triggers = state.triggers.remove(&number).unwrap_or_default();
            let write = Write { number, method: call.method.clone(), target: call.target() };
            return Some(Permit { write, triggers, counter: self.clone(), _permit: permit });
        }
    }

    async fn sever(&self) {
        let proxies = held(&self.state).proxies.clone();
        for proxy in proxies.iter().filter_map(Weak::upgrade) {
            proxy.sever().await;
        }
    }
}

enum Guard {
    Exclusive { _guard: OwnedRwLockWriteGuard<()> },
    Shared { _guard: OwnedRwLockReadGuard<()> },
}

/// The permit of a write. Writes that must wait for it wait until it is dropped.
pub(super) struct Permit {
    pub(super) write: Write,
    triggers: Vec<Trigger>,
    counter: WriteCounter,
    _permit: Guard,
}

impl Permit {
    pub(super) fn awaits(&self, when: When) -> bool {
        self.triggers.iter().any(|trigger| trigger.when == when)
    }

    /// Runs the actions of this moment. Cut if one of them returns it; all connections are gone then.
    pub(super) async fn reached(&mut self, when: When) -> Then {
        let (due, later) =
            std::mem::take(&mut self.triggers).into_iter().partition(|trigger| trigger.when == when);
        self.triggers = later;
        let due: Vec<Trigger> = due;
        let mut then = Then::GoOn;
        let mut fired = Vec::new();
        for trigger in due {
            if (trigger.action)().await == Then::Cut {
                then = Then::Cut;
            }
            fired.push(trigger.fired);
        }
        if then == Then::Cut {
            self.counter.sever().await;
        }
        for fired in fired {
            // It fails if the receiver was dropped.
            let _ = fired.send(self.write.clone());
        }
        then
    }
}
