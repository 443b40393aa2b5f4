//! The gateway that carries a VIP: the newest MASTER by VRRP state. Addresses on a NIC do not count, because a keepalived that was
//! killed leaves its addresses there.

use std::net::IpAddr;

use crate::api::Epoch;
use crate::api::http::{KeeperStatus, VrrpState};
use crate::api::service::Gateway;

/// A gateway that is MASTER, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Master {
    /// Its node.
    pub gateway: Gateway,
    /// When it became MASTER. It is raised where the clocks of two gateways differ: see [`elect`].
    pub epoch: Epoch,
}

impl Master {
    /// The master that a status server reports. None: it is not MASTER, or its tunnel interface does not exist.
    #[must_use]
    pub fn of(status: &KeeperStatus) -> Option<Master> {
        let tun_mac = status.tun_mac.filter(|_| status.state == VrrpState::Master)?;
        Some(Master { gateway: Gateway { node_ip: status.node_ip, tun_mac }, epoch: epoch(status.since)? })
    }

    fn order(&self) -> (Epoch, IpAddr) {
        (self.epoch, self.gateway.node_ip)
    }
}

/// Seconds since 1970 as an epoch. None: negative, or no number.
#[must_use]
pub fn epoch(since: f64) -> Option<Epoch> {
    let millis = (since * 1000.0).floor();
    // Exact: a number of milliseconds below 2^53 is a whole number in f64. A larger one saturates, and is no epoch.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (millis >= 0.0).then_some(millis as u64).and_then(Epoch::new)
}

/// The newer one of two.
#[must_use]
pub fn newest(one: Option<Master>, two: Option<Master>) -> Option<Master> {
    one.into_iter().chain(two).max_by_key(Master::order)
}

/// The gateway in force of two: `master`, unless the current one became MASTER later. The epoch never decreases.
#[must_use]
pub fn newer(current: Option<Gateway>, epoch: Epoch, master: Option<&Master>) -> (Option<Gateway>, Epoch) {
    match (current, master) {
        (current, None) => (current, epoch),
        (None, Some(master)) => (Some(master.gateway), epoch.max(master.epoch)),
        (Some(gateway), Some(master)) => {
            if master.order() >= (epoch, gateway.node_ip) {
                (Some(master.gateway), master.epoch)
            } else {
                (Some(gateway), epoch)
            }
        }
    }
}

/// The master among the statuses of all keepers of a VIP that responded; `recorded` is the one in force.
///
/// The newest one wins, by the clocks of the gateways. A clock may be late, so that the new master's time is before the recorded one's:
/// if the recorded gateway is not MASTER any more, the new one wins nevertheless, with an epoch above the recorded one.
#[must_use]
pub fn elect(statuses: &[KeeperStatus], recorded: Option<Master>) -> Option<Master> {
    let masters: Vec<Master> = statuses.iter().filter_map(Master::of).collect();
    let newest = *masters.iter().max_by_key(|master| master.order())?;
    let Some(recorded) = recorded else { return Some(newest) };
    let same = masters.iter().find(|master| master.gateway.node_ip == recorded.gateway.node_ip);
    if newest.order() >= recorded.order() {
        return Some(newest);
    }
    Some(match same {
        // The MAC address may be another one.
        Some(same) => Master { gateway: same.gateway, epoch: recorded.epoch },
        None => {
            let next = Epoch::new(recorded.epoch.0.saturating_add(1));
            Master { gateway: newest.gateway, epoch: next.unwrap_or(recorded.epoch) }
        }
    })
}
