//! Events of the Node, metrics and `/statusz` of the keeper.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::admin::Status;
use common::events::Events;
use common::readiness::Check;

use super::act::{Because, Kind, step};
use super::metrics::KeeperMetrics;
use super::node::Observed;
use super::plan::Notification;
use super::vrrp::Vrrp;
use crate::api::http::VrrpState;

/// Failures in a row before an Event: a controller that is replaced fails once or twice.
const EVENT_AFTER: u32 = 3;

/// Reports acts.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// Name of the Node.
    pub node: String,
    /// Virtual router ID.
    pub vrid: u8,
    /// Queue of Events.
    pub events: Events,
    /// Metrics.
    pub metrics: KeeperMetrics,
    /// `/statusz`.
    pub status: Status,
    /// `/readyz` shows why the changed configuration is not used.
    pub configuration: Check,
    /// The reasons.
    pub outdated: Arc<Mutex<Outdated>>,
}

/// Why the changed configuration is not used. One problem can end while the other one remains.
#[derive(Debug, Default)]
pub struct Outdated {
    /// The file cannot be used.
    file: Option<String>,
    /// keepalived refuses the last configuration that could be read, or was not reloaded with it.
    keepalived: Option<String>,
}

impl Reporter {
    fn done(&self, kind: Kind, because: Because) {
        self.events.done(&step(&self.node, self.vrid, kind, because));
    }

    /// The VRRP instance has changed its state.
    pub fn entered(&self, before: VrrpState, now: Vrrp) {
        self.metrics.master.set(i64::from(now.state == VrrpState::Master));
        self.metrics.transitions.with_label_values(&[now.state.to_string()]).inc();
        self.status.set("vrrp", format!("{} since {} ms", now.state, now.since));
        match (before, now.state) {
            (_, VrrpState::Master) => self.done(Kind::ChangeState(now.state), Because::Promoted),
            (VrrpState::Master, state) => self.done(Kind::ChangeState(state), Because::Demoted),
            (before, state) => {
                let before = before.to_string();
                tracing::info!(vrid = self.vrid, before, "the VRRP instance is {state}");
            }
        }
    }

    /// The node's state has changed. While keepalived adds VIPs, it changes many times.
    pub fn observed(&self, before: Option<&Observed>, observed: &Observed) {
        let Observed { vips, node_ip, tun_mac, .. } = observed;
        self.metrics.vips.set(i64::try_from(vips.len()).unwrap_or(i64::MAX));
        let tun_mac = tun_mac.map_or_else(|| "none".to_owned(), |mac| mac.to_string());
        let identity = |observed: &Observed| (observed.node_ip, observed.tun_mac);
        if before.is_none_or(|before| identity(before) != identity(observed)) {
            tracing::info!(vips = vips.len(), %node_ip, tun_mac, "the node has changed");
        } else {
            tracing::debug!(vips = vips.len(), "the VIPs on the node have changed");
        }
        self.status.set("node", format!("{node_ip}, tunnel MAC {tun_mac}, {} VIPs", vips.len()));
    }

    /// Addresses were removed.
    pub fn stripped(&self, count: usize, because: Because) {
        self.metrics.stripped.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        self.done(Kind::StripVips(count), because);
    }

    /// keepalived is restarted; `reason` is one of a closed set.
    pub fn restarted(&self, because: Because, reason: &'static str) {
        self.metrics.restarts.with_label_values(&[reason]).inc();
        self.done(Kind::RestartKeepalived, because);
    }

    /// The controller has confirmed a state, so long after its change.
    pub fn notified(&self, notification: &Notification, after: Duration) {
        self.metrics.notification_seconds.observe(after.as_secs_f64());
        self.status.set("notification", format!("confirmed after {after:?}"));
        let because = notification.since.map_or(Because::Demoted, |_| Because::GatewayConfirmed);
        self.done(Kind::NotifyController, because);
    }

    /// A notification failed, the `failures`-th time in a row.
    pub fn not_notified(&self, failures: u32, error: &super::notify::Error) {
        self.metrics.notification_failures.inc();
        self.status.set("notification", format!("failed {failures} times: {error}"));
        if failures == EVENT_AFTER {
            let step = step(&self.node, self.vrid, Kind::NotifyController, Because::GatewayUnconfirmed);
            self.events.failed(&step, error);
        } else {
            tracing::warn!(failures, "notifying the controller failed: {error}");
        }
    }

    /// The file of the configuration was read. The same problem is logged once.
    pub fn read_configuration(&self, problem: Option<String>) {
        self.update_outdated(|outdated| {
            if let Some(problem) = problem.as_ref().filter(|problem| outdated.file.as_ref() != Some(*problem))
            {
                tracing::error!("the changed configuration is not used: {problem}");
            }
            outdated.file = problem;
        });
    }

    /// keepalived has the configuration that was read last, or does not have it for this reason.
    pub fn applied_configuration(&self, problem: Option<String>) {
        self.update_outdated(|outdated| {
            if let Some(problem) = &problem {
                tracing::error!("the changed configuration is not used: {problem}");
            }
            outdated.keepalived = problem;
        });
    }

    fn update_outdated(&self, update: impl FnOnce(&mut Outdated)) {
        let mut outdated = self.outdated.lock().unwrap_or_else(PoisonError::into_inner);
        update(&mut outdated);
        let problem = outdated.file.as_ref().or(outdated.keepalived.as_ref());
        self.metrics.configuration_outdated.set(i64::from(problem.is_some()));
        match problem {
            Some(problem) => self.configuration.failing(problem),
            None => self.configuration.ready(),
        }
    }

    /// Whether the entry of the store hosts is there.
    pub fn registered(&self, registered: bool) {
        self.metrics.registered.set(i64::from(registered));
        self.status.set("registered", registered.to_string());
    }
}
