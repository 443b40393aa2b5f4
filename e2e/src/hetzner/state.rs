//! The state that the server and the test share, behind one lock. Each change is checked before the lock is released.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::watch};

use super::{
    Settings,
    action::{Action, ActionFailure, Change},
    bucket::Bucket,
    model::Network,
    project::Project,
};

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// When its body had arrived.
    pub at: Instant,
    /// `GET`, …
    pub method: String,
    /// Below `/v1`, without the query.
    pub path: String,
    /// Without the `?`.
    pub query: Option<String>,
    /// If it was JSON.
    pub body: Option<Value>,
    /// The client's `User-Agent`.
    pub user_agent: Option<String>,
    /// None until the response.
    pub status: Option<u16>,
    /// The error's code.
    pub code: Option<String>,
    pub(super) number: u64,
}

/// The default route of a network, from that moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// When it was made.
    pub at: Instant,
    /// None: there is no default route.
    pub gateway: Option<Ipv4Addr>,
}

/// A forbidden state, and whether it held at the last check.
pub(super) struct Forbidden {
    pub name: String,
    pub is_so: Box<dyn Fn(&Project) -> bool + Send>,
    pub was_so: bool,
}

pub(super) struct State {
    pub project: Project,
    pub settings: Settings,
    pub bucket: Bucket,
    pub failures: Vec<ActionFailure>,
    pub requests: Vec<Request>,
    pub next_request: u64,
    pub routes: BTreeMap<u64, Vec<RouteChange>>,
    pub forbidden: Vec<Forbidden>,
    pub violations: Vec<(Instant, String)>,
    /// Accepted since the lock was taken: their timers are not started yet.
    accepted: Vec<(u64, Duration)>,
}

impl State {
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            project: Project::default(),
            bucket: Bucket::new(settings.rate_limit, now),
            settings,
            failures: Vec::new(),
            requests: Vec::new(),
            next_request: 0,
            routes: BTreeMap::new(),
            forbidden: Vec::new(),
            violations: Vec::new(),
            accepted: Vec::new(),
        }
    }

    /// Accepts a change; its action ends by itself.
    pub fn begin(&mut self, change: Change, now: Instant) -> Action {
        let failure = self.failures.iter().position(|failure| failure.command == change.command());
        let failure = failure.map(|index| self.failures.remove(index));
        let action_duration = self.settings.action_duration;
        let action = self.project.begin(change, now, action_duration, failure);
        self.accepted.push((action.id, action_duration));
        action
    }

    fn observe(&mut self, now: Instant) {
        let networks = &self.project.networks;
        let known: BTreeSet<u64> = self.routes.keys().chain(networks.keys()).copied().collect();
        for id in known {
            let gateway = networks.get(&id).and_then(Network::default_gateway);
            let history = self.routes.entry(id).or_default();
            if history.last().is_none_or(|last| last.gateway != gateway) {
                history.push(RouteChange { at: now, gateway });
            }
        }
        for forbidden in &mut self.forbidden {
            let is_so = (forbidden.is_so)(&self.project);
            if is_so && !forbidden.was_so {
                self.violations.push((now, forbidden.name.clone()));
            }
            forbidden.was_so = is_so;
        }
    }
}

pub(super) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    runtime: Handle,
}

impl Shared {
    pub fn new(settings: Settings, runtime: Handle) -> Self {
        let state = Mutex::new(State::new(settings, Instant::now()));
        Self { state, changed: watch::Sender::new(0), runtime }
    }

    /// A test's closure may have panicked: its panic is reported, not the poisoned lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.lock())
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub fn write<R>(self: &Arc<Self>, act: impl FnOnce(&mut State) -> R) -> R {
        let (result, accepted) = self.commit(act);
        for (id, duration) in accepted {
            let shared = self.clone();
            self.runtime.spawn(async move {
                tokio::time::sleep(duration).await;
                shared.commit(|state| state.project.finish(id));
            });
        }
        result
    }

    fn commit<R>(&self, act: impl FnOnce(&mut State) -> R) -> (R, Vec<(u64, Duration)>) {
        let done = {
            let mut state = self.lock();
            let result = act(&mut state);
            state.observe(Instant::now());
            (result, std::mem::take(&mut state.accepted))
        };
        self.changed.send_modify(|version| *version += 1);
        done
    }
}
