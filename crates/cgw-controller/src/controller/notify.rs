//! Notifications: a keeper became MASTER, and a client that requests the current master.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures::future::join_all;

use super::bindings::{Bindings, recorded};
use super::error::Error;
use super::plan::{Cause, Master, Reply, Snapshot, master};
use super::services::{EventBudget, Updated};
use crate::api::Vip;
use crate::api::http::MasterNotify;
use crate::api::service::Gateway;
use crate::api::stores::Host;

/// The sender of a notification, as it was authenticated.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The user of the token.
    pub user: String,
    /// The peer of the connection.
    pub address: IpAddr,
    /// The Node of the token's Pod, as the API server vouches for it.
    pub node: Option<String>,
}

impl Sender {
    /// Whether the entry is of this sender: its address, or its Node where a CNI plugin translates the source address of host-network
    /// Pods.
    fn is(&self, host: &Host) -> bool {
        self.address.to_canonical() == host.ip || self.node.as_ref().is_some_and(|node| *node == host.node)
    }
}

impl Bindings {
    /// Handles a notification of a keeper: `keepers` is their user.
    ///
    /// # Errors
    /// The API server cannot be used; the keeper repeats the notification.
    pub async fn notify(
        &self,
        notify: &MasterNotify,
        sender: &Sender,
        keepers: &str,
    ) -> Result<(Reply, Updated), Error> {
        let reply = |code, message: String| Ok((Reply { code, message }, Updated::default()));
        if sender.user != keepers {
            return reply(403, format!("user {} is not the keepers' user {keepers}", sender.user));
        }
        let mut hosts = self.stores.hosts().hosts.clone();
        if !notify.vips.iter().all(|vip| registered(&hosts, sender, notify, *vip)) {
            // A keeper registers and then notifies.
            hosts = self.stores.read_hosts().await?.hosts;
        }
        if !hosts.iter().any(|host| sender.is(host)) {
            let address = sender.address;
            return reply(403, format!("{address} is not the address of a registered keeper"));
        }
        if let Some(vip) = notify.vips.iter().find(|vip| !registered(&hosts, sender, notify, **vip)) {
            let node_ip = notify.node_ip;
            return reply(403, format!("no keeper that is registered on {node_ip} serves VIP {vip}"));
        }
        let notified = self.masters(notify, &hosts).await;
        let budget = EventBudget::default();
        let refreshes = notified.iter().map(async |(vip, notified)| {
            let Notified::Master(master) = notified else { return Updated::default() };
            let snapshot = Snapshot { master: Some(*master), ..self.observe_cached(*vip).snapshot };
            self.services.refresh(&snapshot, &cause(notify, master), &budget).await
        });
        let mut updated = Updated::default();
        join_all(refreshes).await.into_iter().for_each(|one| updated.extend(one));
        let ignored = notified.iter().filter(|(_, one)| match one {
            Notified::Master(master) => master.gateway.node_ip != notify.node_ip,
            Notified::Ignored => true,
            Notified::NoMaster => false,
        });
        let unknown = notified.iter().filter(|(_, one)| *one == Notified::NoMaster);
        let unknown: Vec<String> = unknown.map(|(vip, _)| vip.to_string()).collect();
        Ok((replied(&updated, ignored.count(), &unknown), updated))
    }

    /// The master of each VIP after a notification. A newer one is taken as it is, because a poll would wait for the gateway that failed.
    /// An older one, and one without a time, is confirmed by the status servers, which are polled once for all VIPs.
    async fn masters(&self, notify: &MasterNotify, hosts: &[Host]) -> Vec<(Vip, Notified)> {
        let gateway = Gateway { node_ip: notify.node_ip, tun_mac: notify.tun_mac };
        let epoch = notify.since.and_then(master::epoch);
        let (mut all, mut unconfirmed) = (Vec::new(), Vec::new());
        for vip in notify.vips.iter().copied().collect::<BTreeSet<Vip>>() {
            let snapshot = self.observe_cached(vip).snapshot;
            if snapshot.record().is_none() {
                all.push((vip, Notified::Ignored));
                continue;
            }
            let current = master::newest(recorded(&snapshot), self.known.get(vip));
            let notified = epoch.map(|epoch| Master { gateway, epoch });
            match notified.and_then(|notified| in_force(current, notified)) {
                Some(master) => {
                    self.known.set(vip, master);
                    all.push((vip, Notified::Master(master)));
                }
                None => unconfirmed.push((vip, current)),
            }
        }
        let mut endpoints: Vec<_> = unconfirmed
            .iter()
            .flat_map(|(vip, _)| hosts.iter().filter(|host| host.serves(*vip)).map(Host::status))
            .collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        let statuses = self.poller.poll(&endpoints).await;
        let sender_responds = |vip: Vip| {
            let mut senders = hosts.iter().filter(|host| host.ip == notify.node_ip && host.serves(vip));
            senders.any(|host| statuses.get(&host.status()).is_some_and(Result::is_ok))
        };
        all.extend(unconfirmed.into_iter().map(|(vip, before)| {
            let master = self.polled(vip, before, hosts, &statuses);
            (vip, confirmed(master, epoch.is_some() && sender_responds(vip)))
        }));
        all
    }

    /// Handles `notify_only`: the current master is polled and written to the Services that carry the VIP.
    ///
    /// # Errors
    /// The API server cannot be used.
    pub async fn notify_only(&self, vip: Vip, user: &str) -> Result<(Reply, Updated), Error> {
        let reply = |code, message: String| Ok((Reply { code, message }, Updated::default()));
        let records = self.stores.read_records(vip).await?;
        let Some(record) = records.binds.get(&vip) else {
            return reply(404, format!("VIP {vip} is not bound"));
        };
        let owner = record.owner.clone();
        let snapshot = Snapshot { binds: records.binds, ..self.observe_cached(vip).snapshot };
        let Some(master) = self.master(vip, recorded(&snapshot)).await? else {
            return reply(
                503,
                format!("no gateway of VIP {vip} is MASTER at present; the last annotations stay"),
            );
        };
        let snapshot = Snapshot { master: Some(master), ..snapshot };
        let cause = Cause::Requested { user: user.to_owned() };
        let updated = self.services.refresh(&snapshot, &cause, &EventBudget::default()).await;
        let node = master.gateway.node_ip;
        let message = format!(
            "the gateway of VIP {vip} ({owner}) is {node}; {} Services updated",
            updated.updated.len()
        );
        let code = if updated.failed.is_empty() { 200 } else { 503 };
        Ok((Reply { code, message }, updated))
    }
}

/// The result of a notification for one VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notified {
    /// The master in force, which may be another one.
    Master(Master),
    /// The VIP is not bound, or the notification is late.
    Ignored,
    /// The status servers report no MASTER.
    NoMaster,
}

/// The notified master, if it is not older than the current one.
fn in_force(current: Option<Master>, notified: Master) -> Option<Master> {
    let Some(current) = current else { return Some(notified) };
    let (gateway, epoch) = master::newer(Some(current.gateway), current.epoch, Some(&notified));
    gateway.filter(|gateway| *gateway == notified.gateway).map(|gateway| Master { gateway, epoch })
}

/// The result for a VIP whose status servers were polled. `is_refuted`: the sender reported that it is MASTER, and its status server
/// responded.
fn confirmed(master: Option<Master>, is_refuted: bool) -> Notified {
    match master {
        Some(master) => Notified::Master(master),
        // Late: the sender is not MASTER any more.
        None if is_refuted => Notified::Ignored,
        // Also a sender that is MASTER and whose status server was too slow: it repeats the notification.
        None => Notified::NoMaster,
    }
}

/// Why the master is written: the sender reported it, or the status servers did. A keeper that is not MASTER any more notifies too.
fn cause(notify: &MasterNotify, master: &Master) -> Cause {
    if notify.since.is_some() && master.gateway.node_ip == notify.node_ip {
        Cause::Notified { node: notify.node_ip.to_string() }
    } else {
        Cause::Polled
    }
}

/// Whether the sender, on the node that it reports, is registered for the VIP.
fn registered(hosts: &[Host], sender: &Sender, notify: &MasterNotify, vip: Vip) -> bool {
    hosts.iter().any(|host| sender.is(host) && host.ip == notify.node_ip && host.serves(vip))
}

fn replied(updated: &Updated, ignored: usize, unknown: &[String]) -> Reply {
    let (done, failed) = (updated.updated.len(), updated.failed.len());
    let code = if failed == 0 && unknown.is_empty() { 200 } else { 503 };
    let mut message = format!("{done} Services updated");
    if failed > 0 {
        message.push_str(&format!(", {failed} failed; try again"));
    }
    if !unknown.is_empty() {
        message.push_str(&format!(", no gateway is MASTER of VIP {}; try again", unknown.join(", ")));
    }
    if ignored > 0 {
        message.push_str(&format!(", {ignored} VIPs ignored: not bound, or a newer master is in force"));
    }
    Reply { code, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Epoch, TunMac};

    fn host(ip: &str, node: &str) -> Host {
        let vips = vec!["10.9.0.1-10.9.0.9".parse().unwrap()];
        let (ip, node, boot) = (ip.parse().unwrap(), node.to_owned(), String::new());
        Host { v: 1, ip, port: 63051, node, vrid: 51, vips, boot }
    }

    fn sender(address: &str, node: Option<&str>) -> Sender {
        let node = node.map(str::to_owned);
        Sender { user: String::new(), address: address.parse().unwrap(), node }
    }

    fn notify(node_ip: &str) -> MasterNotify {
        let (node_ip, tun_mac) = (node_ip.parse().unwrap(), TunMac::new([2, 0, 0, 0, 0, 1]).unwrap());
        MasterNotify { vips: Vec::new(), node_ip, tun_mac, vrid: None, node: None, since: None }
    }

    #[test]
    fn a_sender_is_registered_by_its_address_or_by_the_node_of_its_token() {
        let hosts = [host("10.0.0.21", "g1"), host("10.0.0.22", "g2")];
        let vip = "10.9.0.5".parse().unwrap();
        for (sender, node_ip, expected) in [
            (sender("10.0.0.21", None), "10.0.0.21", true),
            (sender("::ffff:10.0.0.21", None), "10.0.0.21", true),
            (sender("10.244.0.0", Some("g1")), "10.0.0.21", true),
            // For the other keeper.
            (sender("10.0.0.21", None), "10.0.0.22", false),
            (sender("10.244.0.0", Some("g1")), "10.0.0.22", false),
            (sender("10.244.0.0", None), "10.0.0.21", false),
            (sender("10.244.0.0", Some("other")), "10.0.0.21", false),
        ] {
            assert_eq!(registered(&hosts, &sender, &notify(node_ip), vip), expected, "{sender:?} {node_ip}");
        }
        let sender = sender("10.0.0.21", None);
        assert!(!registered(&hosts, &sender, &notify("10.0.0.21"), "10.9.0.10".parse().unwrap()));
    }

    #[test]
    fn a_notification_is_late_only_if_the_status_server_of_its_sender_responded() {
        let MasterNotify { node_ip, tun_mac, .. } = notify("10.0.0.22");
        let master = Master { gateway: Gateway { node_ip, tun_mac }, epoch: Epoch(5) };
        assert_eq!(confirmed(Some(master), true), Notified::Master(master));
        assert_eq!(confirmed(None, true), Notified::Ignored);
        assert_eq!(confirmed(None, false), Notified::NoMaster);
    }

    #[test]
    fn only_the_sender_that_is_master_is_named_as_the_source() {
        let of = |node_ip: &str, since| MasterNotify { since, ..notify(node_ip) };
        let MasterNotify { node_ip, tun_mac, .. } = notify("10.0.0.22");
        let master = Master { gateway: Gateway { node_ip, tun_mac }, epoch: Epoch(5) };
        let notified = Cause::Notified { node: "10.0.0.22".to_owned() };
        assert_eq!(cause(&of("10.0.0.22", Some(0.005)), &master), notified);
        // It is BACKUP now, and the status servers reported the remaining MASTER.
        assert_eq!(cause(&of("10.0.0.21", None), &master), Cause::Polled);
        // Its notification is late.
        assert_eq!(cause(&of("10.0.0.21", Some(0.004)), &master), Cause::Polled);
    }

    #[test]
    fn a_newer_master_is_in_force_without_a_poll() {
        let of = |last: u8, epoch| {
            let notify = notify(&format!("10.0.0.{last}"));
            Master {
                gateway: Gateway { node_ip: notify.node_ip, tun_mac: notify.tun_mac },
                epoch: Epoch(epoch),
            }
        };
        assert_eq!(in_force(None, of(1, 5)), Some(of(1, 5)));
        assert_eq!(in_force(Some(of(2, 4)), of(1, 5)), Some(of(1, 5)));
        assert_eq!(in_force(Some(of(2, 6)), of(1, 5)), None);
        // The epoch of the same gateway may have been raised.
        assert_eq!(in_force(Some(of(1, 6)), of(1, 5)), Some(of(1, 6)));
    }
}
