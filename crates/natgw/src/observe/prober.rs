//! The health checks: the leader opens a TCP connection to each gateway over the private network, once an interval.
//!
//! A round is the same interval for all targets, so that "one does not respond while the others do" is a statement about one
//! time. A target that responds costs one connection a round. One that does not is asked eight times: with 20 % loss a
//! single connection fails three times in a row within a minute.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, timeout};

use super::health::{Health, Limits, Probes};
use crate::config::HealthCheck;
use crate::metrics::Metrics;

/// Connections that are tried in a round without a response.
const ATTEMPTS: u32 = 8;
/// Rounds after which an attempt is given up: on a slow network, the response to one round's attempt comes in the next.
const ROUNDS_OF_AN_ATTEMPT: u32 = 2;
/// The namespace in which kubelets renew their Leases.
const LEASES: &str = "kube-node-lease";

/// The requests of the health checks.
pub trait Probe: Sync {
    /// Whether a host responds at this address: it accepts or refuses a connection.
    fn responds(&self, address: SocketAddr) -> impl Future<Output = bool> + Send;

    /// The last renewal of the Node's Lease, if it has one. None outside: the API server does not respond.
    fn renewal(&self, node: &str) -> impl Future<Output = Option<Option<Timestamp>>> + Send;
}

/// Makes the rounds, and keeps their results.
pub struct Prober {
    interval: Duration,
    limits: Limits,
    target: Option<SocketAddr>,
    port: u16,
    state: Mutex<State>,
    /// Notified when the results make another decision possible.
    changed: Arc<Notify>,
    metrics: Metrics,
}

#[derive(Default)]
struct State {
    targets: BTreeMap<String, SocketAddr>,
    health: Health,
}

impl Prober {
    /// Without targets.
    #[must_use]
    pub fn new(settings: &HealthCheck, changed: Arc<Notify>, metrics: Metrics) -> Prober {
        Prober {
            interval: settings.interval.into(),
            limits: Limits::new(settings),
            target: settings.target,
            port: settings.port,
            state: Mutex::default(),
            changed,
            metrics,
        }
    }

    /// From now on these Nodes are probed, at these private addresses. The results of those that are probed already are kept.
    pub fn watch(&self, nodes: impl Iterator<Item = (String, std::net::Ipv4Addr)>) {
        let targets: BTreeMap<String, SocketAddr> =
            nodes.map(|(name, ip)| (name, SocketAddr::from((ip, self.port)))).collect();
        let state = &mut *self.state();
        state.health.nodes.retain(|name, _| targets.get(name) == state.targets.get(name));
        state.targets = targets;
    }

    /// Drops all targets and results, because this process does not lead any more.
    pub fn clear(&self) {
        *self.state() = State::default();
    }

    /// The results so far.
    #[must_use]
    pub fn health(&self) -> Health {
        self.state().health.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes rounds for ever.
    pub async fn run(&self, probe: &impl Probe) -> Infallible {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lines = BTreeMap::new();
        let mut reference = self.target.map(Line::new);
        loop {
            ticks.tick().await;
            self.round(probe, &mut lines, &mut reference).await;
        }
    }

    async fn round<'p, P: Probe>(
        &self,
        probe: &'p P,
        lines: &mut BTreeMap<String, Line<'p>>,
        reference: &mut Option<Line<'p>>,
    ) {
        let targets = self.state().targets.clone();
        lines.retain(|name, line| targets.get(name) == Some(&line.address));
        for (name, address) in &targets {
            lines.entry(name.clone()).or_insert_with(|| Line::new(*address));
        }
        if lines.is_empty() {
            return;
        }
        let nodes = lines
            .iter_mut()
            .map(|(name, line)| async { (name.as_str(), line.responds(probe, self.interval).await) });
        let reference = async {
            match reference {
                Some(line) => Some(line.responds(probe, self.interval).await),
                None => None,
            }
        };
        let (nodes, reference) = tokio::join!(join_all(nodes), reference);
        let silent = nodes.iter().filter(|(_, responds)| !responds).map(|(name, _)| *name);
        let renewals = join_all(silent.map(|name| async move {
            (name, timeout(self.interval, probe.renewal(name)).await.ok().flatten())
        }))
        .await;
        let api_server =
            (!renewals.is_empty()).then(|| renewals.iter().all(|(_, renewal)| renewal.is_some()));
        let renewals: BTreeMap<&str, Option<Timestamp>> =
            renewals.into_iter().map(|(name, renewal)| (name, renewal.flatten())).collect();
        self.count(&targets, &nodes, &renewals, reference.or(api_server));
    }

    fn count(
        &self,
        probed: &BTreeMap<String, SocketAddr>,
        nodes: &[(&str, bool)],
        renewals: &BTreeMap<&str, Option<Timestamp>>,
        reference: Option<bool>,
    ) {
        let state = &mut *self.state();
        let before = state.health.classes(self.limits);
        let count = |probes: &mut Probes, responds, renewed| match responds {
            true => probes.responded(self.limits),
            false => probes.failed(renewed, self.limits),
        };
        for (name, responds) in nodes {
            self.metrics.probed("gateway", *responds);
            // The targets may have changed during the round.
            if state.targets.get(*name) == probed.get(*name) {
                let probes = state.health.nodes.entry((*name).to_owned()).or_default();
                count(probes, *responds, renewals.get(name).copied().flatten());
            }
        }
        if let Some(responds) = reference {
            self.metrics.probed("reference", responds);
            count(&mut state.health.reference, responds, None);
        }
        if state.health.classes(self.limits) != before {
            self.changed.notify_one();
        }
    }
}

/// The attempts to reach one target that are under way.
struct Line<'p> {
    address: SocketAddr,
    attempts: FuturesUnordered<BoxFuture<'p, bool>>,
}

impl<'p> Line<'p> {
    fn new(address: SocketAddr) -> Line<'p> {
        Line { address, attempts: FuturesUnordered::new() }
    }

    /// Tries until there is a response or the interval is over.
    async fn responds<P: Probe>(&mut self, probe: &'p P, interval: Duration) -> bool {
        let Line { address, attempts } = self;
        let address = *address;
        let mut pace = tokio::time::interval(interval / ATTEMPTS);
        let response = async {
            loop {
                tokio::select! {
                    biased;
                    Some(true) = attempts.next() => return,
                    _ = pace.tick() => attempts.push(Box::pin(async move {
                        let limit = interval.saturating_mul(ROUNDS_OF_AN_ATTEMPT);
                        timeout(limit, probe.responds(address)).await.unwrap_or(false)
                    })),
                }
            }
        };
        let responds = timeout(interval, response).await.is_ok();
        if responds {
            attempts.clear();
        }
        responds
    }
}

/// The network and the API server.
pub struct Network {
    /// Kubernetes.
    pub client: kube::Client,
}

impl Probe for Network {
    async fn responds(&self, address: SocketAddr) -> bool {
        match TcpStream::connect(address).await {
            Ok(_) => true,
            Err(error) => matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset),
        }
    }

    async fn renewal(&self, node: &str) -> Option<Option<Timestamp>> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), LEASES);
        match leases.get_opt(node).await {
            Ok(lease) => Some(lease.and_then(|lease| Some(lease.spec?.renew_time?.0))),
            // A refusal is a response too.
            Err(kube::Error::Api(_)) => Some(None),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
