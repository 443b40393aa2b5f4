//! Connections whose translation changed. Conntrack would keep the one that they have, and the table's guard would drop their packets until
//! they end. An entry of a gateway that did not see the last packets is as wrong: conntrack takes the next ones as invalid, since they
//! acknowledge what it has not seen. Without their entries, the next packet is translated as the first of a new connection is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use common::netlink::Error;
use common::netlink::conntrack::{self, Entry};
use common::netlink::socket::Socket;

use super::plan::bound_pods;
use crate::agent::datapath::{Datapath, VipRoute};

/// Pods of this node whose connections have another translation than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// Pods that now leave with another address, or from another node.
    pub pods: BTreeSet<Ipv4Addr>,
    /// VIPs that this node has become the gateway of, or no longer is.
    pub vips: BTreeSet<Ipv4Addr>,
}

impl Stale {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.vips.is_empty()
    }
}

/// The connections that the change from `old` to `new` makes stale.
#[must_use]
pub fn stale(old: &Datapath, new: &Datapath) -> Stale {
    let (before, after) = (translations(old), translations(new));
    let mut stale = Stale::default();
    for pod in before.keys().chain(after.keys()) {
        let known = before.contains_key(pod) || old.unbound_pods.contains(pod);
        if known && before.get(pod) != after.get(pod) {
            stale.pods.insert(*pod);
        }
    }
    let is_here = |datapath: &Datapath, vip: &Ipv4Addr| {
        datapath.vips.get(vip).is_some_and(|path| path.route == VipRoute::Local)
    };
    stale
        .vips
        .extend(old.vips.keys().chain(new.vips.keys()).filter(|vip| is_here(old, vip) != is_here(new, vip)));
    stale
}

/// The VIP of each bound pod of the node, and whether the node translates to it. Between other gateways there is no difference: the
/// packet leaves this node with the pod's address.
fn translations(datapath: &Datapath) -> BTreeMap<Ipv4Addr, (Ipv4Addr, bool)> {
    let local = bound_pods(datapath).into_iter().filter(|(_, bound)| bound.node == datapath.node.ip);
    local.map(|(pod, bound)| (pod, (bound.vip, bound.path.route == VipRoute::Local))).collect()
}

/// Deletes the entries. Returns their number. `arrived` is the mark of connections that arrived from the tunnel.
///
/// # Errors
/// Netlink's; entries before may have been deleted.
pub fn delete(socket: &mut Socket, stale: &Stale, arrived: u32) -> Result<usize, Error> {
    if stale.is_empty() {
        return Ok(0);
    }
    let mut deleted = 0_usize;
    for entry in conntrack::entries(socket, None)? {
        if !is_stale(&entry, stale, arrived) {
            continue;
        }
        match socket.request(&entry.delete()) {
            Ok(()) => deleted = deleted.saturating_add(1),
            Err(error) if error.is(&[libc::ENOENT]) => {}
            Err(error) => return Err(error.during(format_args!("deleting the conntrack entry {entry}"))),
        }
    }
    Ok(deleted)
}

fn is_stale(entry: &Entry, stale: &Stale, arrived: u32) -> bool {
    let ((source, destination), (backend, translated)) = (entry.original, entry.reply);
    let through_tunnel = entry.mark & arrived != 0;
    stale.pods.contains(&source)
        || through_tunnel && stale.pods.contains(&backend)
        || stale.vips.contains(&destination)
        || stale.vips.contains(&translated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::vxlan::sample;

    #[test]
    fn only_changed_translations_of_own_pods_are_stale() {
        let old = sample::worker();
        assert!(stale(&old, &old).is_empty());
        // Another gateway: no translation here changes.
        let mut new = old.clone();
        new.vips.get_mut(&sample::A).unwrap().route = sample::via(sample::G2);
        assert!(stale(&old, &new).is_empty());
        // A pod is no longer bound.
        new.vips.get_mut(&sample::A).unwrap().pods.remove(&sample::A1);
        assert_eq!(stale(&old, &new).pods, BTreeSet::from([sample::A1]));
        // A pod of another node.
        let mut new = old.clone();
        new.vips.get_mut(&sample::A).unwrap().pods.remove(&sample::A3);
        assert!(stale(&old, &new).is_empty());
    }

    #[test]
    fn a_moved_vip_makes_its_connections_on_the_old_gateway_stale() {
        let old = sample::gateway();
        let mut new = old.clone();
        new.vips.get_mut(&sample::A).unwrap().route = sample::via(sample::G2);
        let stale = stale(&old, &new);
        assert_eq!(
            (stale.pods.clone(), stale.vips.clone()),
            (BTreeSet::from([sample::A3]), BTreeSet::from([sample::A]))
        );
    }
}
