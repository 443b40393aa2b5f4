//! Reconciles VIPs with their records: after each change of a record, a Service or a keeper, and at an interval.
//!
//! A request that is between two writes looks like one that a crash has stopped. So a repair waits until the difference has lasted for a
//! while, and is planned again from what the API server has then. Where a request is still in progress nevertheless, preconditions
//! and checks of the plan keep both correct.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use common::cache::Change;
use common::controller::{Next, Queue, Reconciler};
use common::events::Events;
use common::plan::Reason as _;
use tokio::time::Instant;

use super::bindings::Bindings;
use super::error::Error;
use super::lost::Collector;
use super::masters;
use super::metrics::Metrics;
use super::plan::{self, Cause, repair};
use super::service::Service;
use super::services::EventBudget;
use crate::api::Vip;
use crate::api::service::Carried;
use crate::api::stores::{Host, Owner};
use crate::names::BIND_PREFIX;

/// Writes of one repair: more than any plan has.
const WRITES: u32 = 20;

/// Registrations of several keepers become one poll.
const POLL_DELAY: Duration = Duration::from_millis(500);

/// The writes of one flip become few reconciliations, each of which plans for all Services of the VIP.
const SERVICE_DELAY: Duration = Duration::from_millis(100);

/// Between two polls while two keepers of a VIP are MASTER. If the one with egress fails then, the other one changes no state, and sends no
/// notification.
const SPLIT_INTERVAL: Duration = Duration::from_secs(5);

/// The object of one reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The status servers of all keepers are polled.
    Masters,
    /// One VIP: its record and the Services that carry it.
    Vip(Vip),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Masters => f.write_str("masters"),
            Key::Vip(vip) => vip.fmt(f),
        }
    }
}

/// The state of a key in this process.
#[derive(Debug)]
pub struct Memo {
    /// Reports a problem once.
    events: Events,
    /// Since when a repair is pending.
    since: Option<Instant>,
    /// The reasons of the problems that are counted.
    problems: BTreeSet<&'static str>,
}

/// See the module.
pub struct Resync {
    bindings: Arc<Bindings>,
    metrics: Metrics,
    interval: Duration,
    repair_delay: Duration,
    queue: Arc<OnceLock<Queue<Key>>>,
    lost: Collector,
    invalid: Mutex<Vec<String>>,
}

impl Resync {
    /// Polls at `interval`; repairs what has lasted for `repair_delay`. `queue` is set once there is a controller.
    #[must_use]
    pub fn new(
        bindings: Arc<Bindings>,
        metrics: Metrics,
        (interval, repair_delay): (Duration, Duration),
        queue: Arc<OnceLock<Queue<Key>>>,
        lost: Collector,
    ) -> Resync {
        Resync { bindings, metrics, interval, repair_delay, queue, lost, invalid: Mutex::default() }
    }

    fn enqueue(&self, vips: impl IntoIterator<Item = Vip>) {
        if let Some(queue) = self.queue.get() {
            vips.into_iter().for_each(|vip| queue.add(Key::Vip(vip)));
        }
    }

    /// Polls all keepers once, and elects the master of each bound VIP. Returns the time until the next poll.
    async fn poll(&self) -> Duration {
        let Bindings { stores, poller, .. } = &*self.bindings;
        let hosts = stores.hosts();
        let records = stores.records();
        let vips = || records.binds.keys().copied();
        let before: Vec<_> = vips().map(|vip| (vip, self.bindings.current(vip))).collect();
        // Also those of VIPs that are not bound: their keepers may be lost, too.
        let endpoints: Vec<_> = hosts.hosts.iter().map(Host::status).collect();
        let statuses = poller.poll(&endpoints).await;
        for (vip, before) in before {
            self.bindings.polled(vip, before, &hosts.hosts, &statuses);
        }
        let scope = |is_namespace: bool| {
            let owners = records.binds.values().map(|bind| &bind.owner);
            owners.filter(|owner| matches!(owner, Owner::Namespace { .. }) == is_namespace).count()
        };
        let (namespaces, services) = (scope(true), scope(false));
        let Metrics { bindings, hosts: keepers, .. } = &self.metrics;
        bindings.with_label_values(&["namespace"]).set(gauge(namespaces));
        bindings.with_label_values(&["service"]).set(gauge(services));
        keepers.set(gauge(hosts.hosts.len()));
        let status = &self.bindings.runtime.status;
        status.set("bindings", format!("{namespaces} namespaces, {services} Services"));
        let responding = statuses.values().filter(|status| status.is_ok()).count();
        status.set("keepers", format!("{} registered, {responding} responded", endpoints.len()));
        let invalid: Vec<_> = records.errors.iter().chain(&hosts.errors).map(ToString::to_string).collect();
        self.report_invalid(invalid);
        // Each interval reconciles all VIPs.
        self.enqueue(vips());
        self.lost.collect(&self.bindings, &hosts.hosts, &statuses).await;
        match masters::is_split(vips(), &hosts.hosts, &statuses) {
            true => self.interval.min(SPLIT_INTERVAL),
            false => self.interval,
        }
    }

    /// Entries of the stores that have no effect.
    fn report_invalid(&self, entries: Vec<String>) {
        self.metrics.problems.with_label_values(&["InvalidEntry"]).set(gauge(entries.len()));
        let mut reported = self.invalid.lock().unwrap_or_else(PoisonError::into_inner);
        if *reported == entries {
            return;
        }
        for error in entries.iter().filter(|entry| !reported.contains(entry)) {
            tracing::warn!(error, "an entry of a store is invalid and has no effect");
        }
        let status = &self.bindings.runtime.status;
        match entries.is_empty() {
            true => status.remove("invalid entries"),
            false => status.set("invalid entries", entries.join("; ")),
        }
        *reported = entries;
    }

    async fn reconcile_vip(&self, vip: Vip, memo: &mut Memo) -> Result<Next, Error> {
        let mut snapshot = self.bindings.observe_cached(vip).snapshot;
        // The namespace of a Service exists, and costs no request.
        let is_carried = snapshot.carriers().next().is_some();
        let owner = snapshot.record().filter(|_| !is_carried).map(|record| record.owner.clone());
        if let Some(Owner::Namespace { namespace }) = owner {
            snapshot.has_namespace = self.bindings.has_namespace(&namespace).await?;
        }
        let repair = repair::repair(&snapshot);
        self.report(memo, &repair.problems);
        // A Service that cannot be written must not delay the repair of another one.
        let mut refreshed = Ok(());
        if !repair.refresh.is_empty() {
            let budget = EventBudget::default();
            let updated = self.bindings.services.refresh(&snapshot, &Cause::Polled, &budget).await;
            if let Some(failed) = updated.failed.first() {
                let what = format!("Service {failed}");
                refreshed = Err(Error::Conflicts { what, times: 1 });
            }
        }
        if repair.delayed.is_empty() {
            memo.since = None;
            refreshed?;
            let is_gone = snapshot.record().is_none() && snapshot.services.is_empty();
            if is_gone {
                self.bindings.known.forget(vip);
            }
            return Ok(if is_gone { Next::Gone } else { Next::OnChange });
        }
        let since = *memo.since.get_or_insert_with(Instant::now);
        let remaining = self.repair_delay.saturating_sub(since.elapsed());
        if !remaining.is_zero() {
            return refreshed.map(|()| Next::After(remaining));
        }
        self.repair(vip).await?;
        memo.since = None;
        refreshed.map(|()| Next::OnChange)
    }

    /// Finishes what a request has left.
    async fn repair(&self, vip: Vip) -> Result<(), Error> {
        for _ in 0..WRITES {
            let observed = match self.bindings.observe_repair(vip).await {
                Err(Error::Conflict(_)) => continue,
                other => other?,
            };
            let repair = repair::repair(&observed.snapshot);
            let Some(write) = repair.delayed.first() else { return Ok(()) };
            match self.bindings.write(write, &Cause::Repaired, &observed).await {
                // After a conflict the state is read again.
                Ok(()) | Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Conflicts { what: format!("the binding of VIP {vip}"), times: WRITES })
    }

    fn report(&self, memo: &mut Memo, problems: &[common::plan::Problem<Cause>]) {
        memo.events.found(problems);
        let now: BTreeSet<_> = problems.iter().map(|problem| problem.because.code()).collect();
        let gauges = &self.metrics.problems;
        now.difference(&memo.problems).for_each(|reason| gauges.with_label_values(&[reason]).inc());
        memo.problems.difference(&now).for_each(|reason| gauges.with_label_values(&[reason]).dec());
        memo.problems = now;
    }
}

impl Reconciler for Resync {
    type Key = Key;
    type Memo = Memo;
    type Error = Error;

    fn memo(&self, _: &Key) -> Memo {
        let events = self.bindings.runtime.events.scoped();
        Memo { events, since: None, problems: BTreeSet::new() }
    }

    async fn reconcile(&self, key: &Key, memo: &mut Memo) -> Result<Next, Error> {
        match key {
            Key::Masters => {
                let interval = self.poll().await;
                // The replicas poll at different times.
                Ok(Next::After(interval.mul_f64(0.9 + fastrand::f64() / 5.0)))
            }
            Key::Vip(vip) => self.reconcile_vip(*vip, memo).await,
        }
    }
}

/// The keys that a change of a Service concerns.
pub fn enqueue(bindings: &Bindings, change: &Change<Service>, queue: &Queue<Key>) {
    let key = change.key();
    let names = &bindings.stores.names;
    let (old, new) = match change {
        Change::Added(new) => (None, Some(new)),
        Change::Updated { old, new } => (Some(old), Some(new)),
        Change::Deleted(old) => (Some(old), None),
    };
    if key == names.binds {
        let (old, new) = (annotations(old), annotations(new));
        for (key, text) in old
            .iter()
            .chain(&new)
            .filter(|(key, text)| old.get(*key) != Some(text) || new.get(*key) != Some(text))
        {
            let vip = key.strip_prefix(BIND_PREFIX).and_then(|rest| Vip::of_key(rest).ok());
            if let (Some(vip), false) = (vip, text.is_empty()) {
                queue.add(Key::Vip(vip));
            }
        }
        // The keeper of a VIP that has just been bound has not been polled.
        queue.add_after(Key::Masters, POLL_DELAY);
    } else if key == names.hosts {
        queue.add_after(Key::Masters, POLL_DELAY);
    } else {
        let vips = [old, new].into_iter().flatten().flat_map(|service| {
            let carried = Carried::vip_of(service.annotations()).ok().flatten();
            carried.into_iter().chain(service.shown())
        });
        let records = bindings.stores.records();
        let bound = records.binds.iter().filter(|(_, bind)| plan::named(&bind.owner).as_ref() == Some(&key));
        vips.chain(bound.map(|(vip, _)| *vip)).for_each(|vip| queue.add_after(Key::Vip(vip), SERVICE_DELAY));
    }
}

/// The value of a gauge.
fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn annotations(service: Option<&Arc<Service>>) -> std::collections::BTreeMap<String, String> {
    service.map(|service| service.annotations().clone()).unwrap_or_default()
}
