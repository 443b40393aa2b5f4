//! The notifications of the controller: which one is sent, and when. Pure.
//!
//! * A notification is due while this node is MASTER and the controller has not confirmed exactly the current state: after a
//!   promotion, after a start of the keeper, and when the VIPs, the node's address or the tunnel's MAC address have changed.
//! * One more is due when a node that was MASTER is BACKUP. If two nodes were MASTER, the controller has recorded the newer one, and the
//!   one that remains may be the older one: nothing changes there, and it notifies nothing.
//! * At most one request is in flight. A newer state aborts it: the newest state is the only one that is ever retried.
//! * Each request makes the earlier confirmation void, since an aborted or failed request may still take effect. Unless a request has
//!   a newer MASTER, the controller polls the status servers, so a late request has the effect of a current one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use common::backoff::Backoff;

use super::node::Observed;
use super::vrrp::Vrrp;
use crate::api::address::{TunMac, Vip};
use crate::api::http::{MasterNotify, VrrpState};

#[cfg(test)]
mod tests;

/// Delays after failures. The first is short, because packets are lost until the controller has confirmed. The last one is below
/// the usual time in which a controller restarts.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(5) };

/// The content of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// VIPs on the node. All configured ones, if it is BACKUP.
    pub vips: BTreeSet<Vip>,
    /// Main address of the node.
    pub node_ip: IpAddr,
    /// MAC address of the tunnel interface.
    pub tun_mac: TunMac,
    /// When the node became MASTER, in milliseconds since 1970. None: it is BACKUP now, and the controller polls the status servers.
    pub since: Option<u64>,
}

impl Notification {
    /// The notification of a MASTER. None: this node has nothing to report; the new MASTER does.
    fn of_master(vrrp: Vrrp, node: &Observed) -> Option<Notification> {
        let tun_mac = node.tun_mac.filter(|_| vrrp.state == VrrpState::Master && !node.vips.is_empty())?;
        Some(Notification {
            vips: node.vips.clone(),
            node_ip: node.node_ip,
            tun_mac,
            since: Some(vrrp.since),
        })
    }

    /// The body of the request.
    #[must_use]
    pub fn body(&self, vrid: u8, node: &str) -> MasterNotify {
        MasterNotify {
            vips: self.vips.iter().copied().collect(),
            node_ip: self.node_ip,
            tun_mac: self.tun_mac,
            vrid: Some(vrid),
            node: Some(node.to_owned()),
            since: self.since.map(seconds),
        }
    }
}

/// Milliseconds as seconds. Exact to the millisecond for all times of this age.
#[must_use]
pub fn seconds(milliseconds: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let milliseconds = milliseconds as f64;
    milliseconds / 1000.0
}

/// Identifies one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u64);

/// The next act of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing is due, and no request may be in flight.
    Idle,
    /// The request in flight is the right one.
    InFlight,
    /// Any request in flight is aborted, and this one is sent.
    Send(Attempt, Notification),
    /// Nothing before this time.
    WaitUntil(Duration),
}

/// Decides about requests. Times are those of one monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notifier {
    confirmed: Option<Notification>,
    in_flight: Option<(Attempt, Notification)>,
    failed: Option<Failed>,
    last: Attempt,
    /// This node has notified as MASTER, and the controller has not confirmed since then that it is BACKUP.
    was_master: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Failed {
    notification: Notification,
    failures: u32,
    retry_at: Duration,
}

impl Notifier {
    /// The next act, when the VRRP instance and the node have this state.
    pub fn next(&mut self, now: Duration, vrrp: Vrrp, node: &Observed) -> Next {
        let Some(desired) = self.desired(vrrp, node) else {
            *self = Notifier { last: self.last, was_master: self.was_master, ..Notifier::default() };
            return Next::Idle;
        };
        if self.in_flight.as_ref().is_some_and(|(_, sent)| *sent == desired) {
            return Next::InFlight;
        }
        if self.in_flight.is_none() && self.confirmed.as_ref() == Some(&desired) {
            return Next::Idle;
        }
        // Only the same content waits: another one is newer, and its receiver may be reachable.
        self.failed = self.failed.take().filter(|failed| failed.notification == desired);
        if let Some(failed) = self.failed.as_ref().filter(|failed| now < failed.retry_at) {
            return Next::WaitUntil(failed.retry_at);
        }
        self.last = Attempt(self.last.0.wrapping_add(1));
        self.confirmed = None;
        self.in_flight = Some((self.last, desired.clone()));
        Next::Send(self.last, desired)
    }

    /// The notification that the controller has to confirm.
    fn desired(&mut self, vrrp: Vrrp, node: &Observed) -> Option<Notification> {
        if let Some(notification) = Notification::of_master(vrrp, node) {
            self.was_master = true;
            return Some(notification);
        }
        let tun_mac = node
            .tun_mac
            .filter(|_| self.was_master && matches!(vrrp.state, VrrpState::Backup | VrrpState::Fault))?;
        // keepalived removes the VIPs one by one, and may have begun before the node was observed last.
        let vips = node.configured.iter().flat_map(|range| range.iter()).collect();
        Some(Notification { vips, node_ip: node.node_ip, tun_mac, since: None })
    }

    /// The controller has confirmed the request, or it failed. Returns the number of failures in a row; None for a request that was
    /// aborted before.
    pub fn done(&mut self, now: Duration, attempt: Attempt, confirmed: bool) -> Option<u32> {
        let (_, notification) = self.in_flight.take_if(|(sent, _)| *sent == attempt)?;
        if confirmed {
            self.was_master &= notification.since.is_some();
            (self.confirmed, self.failed) = (Some(notification), None);
            return Some(0);
        }
        let failures = self.failed.as_ref().map_or(0, |failed| failed.failures).saturating_add(1);
        let retry_at = now.saturating_add(BACKOFF.delay(failures));
        self.failed = Some(Failed { notification, failures, retry_at });
        Some(failures)
    }
}
