//! Connections whose translation changed. Conntrack would keep the one that they have, and the table's guard would drop their packets until
//! they end. An entry of a gateway that did not see the last packets is as wrong: conntrack takes the next ones as invalid, since they
//! acknowledge what it has not seen. Without their entries, the next packet is translated as the first of a new connection is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use common::netlink::Error;
use common::netlink::conntrack::{self, Entry};
use common::netlink::socket::Socket;

use super::plan::ARRIVED;
use crate::agent::datapath::{Datapath, VipRoute};

/// Pods of this node whose connections have another translation than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// Pods that now leave with another address, or from another node.
    pub pods: BTreeSet<Ipv4Addr>,
    /// Pods of a VIP that has become an address of this node: clients no longer reach them through the tunnel.
    pub backends: BTreeSet<Ipv4Addr>,
    /// VIPs that this node has become the gateway of, or no longer is; VIPs that it got or lost as an address.
    pub vips: BTreeSet<Ipv4Addr>,
}

impl Stale {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.backends.is_empty() && self.vips.is_empty()
    }
}

/// The connections that the change from `old` to `new` makes stale: each is a datapath, and those of its VIPs that the node has as addresses.
/// If the old state is unknown, only those are stale that came through the tunnel to a pod of a VIP that is an address of this node.
#[must_use]
pub fn stale(
    old: Option<(&Datapath, &BTreeSet<Ipv4Addr>)>,
    (new, held): (&Datapath, &BTreeSet<Ipv4Addr>),
) -> Stale {
    let got = |vip: &Ipv4Addr| held.contains(vip) && !old.is_some_and(|(_, had)| had.contains(vip));
    let after = translations(new);
    let backends = after.iter().filter(|(_, (vip, _))| got(vip)).map(|(pod, _)| *pod);
    let mut stale = Stale { backends: backends.collect(), ..Stale::default() };
    let Some((old, had)) = old else { return stale };
    let before = translations(old);
    for pod in before.keys().chain(after.keys()) {
        let known = before.contains_key(pod) || old.unbound_pods.contains(pod);
        if known && before.get(pod) != after.get(pod) {
            stale.pods.insert(*pod);
        }
    }
    let is_here = |datapath: &Datapath, vip: &Ipv4Addr| {
        datapath.vips.get(vip).is_some_and(|path| path.route == VipRoute::Local)
    };
    let vips = old.vips.keys().chain(new.vips.keys());
    stale.vips.extend(vips.filter(|vip| is_here(old, vip) != is_here(new, vip)));
    stale.vips.extend(had.symmetric_difference(held));
    stale
}

/// The VIP of each bound pod of the node, and whether the node translates to it. Between other gateways there is no difference: the
/// packet leaves this node with the pod's address.
fn translations(datapath: &Datapath) -> BTreeMap<Ipv4Addr, (Ipv4Addr, bool)> {
    let own = datapath.own_pods().into_iter();
    own.map(|(pod, bound)| (pod, (bound.vip, bound.path.route == VipRoute::Local))).collect()
}

/// Deletes the entries. Returns their number.
///
/// # Errors
/// Netlink's; entries before may have been deleted.
pub fn delete(socket: &mut Socket, stale: &Stale) -> Result<usize, Error> {
    if stale.is_empty() {
        return Ok(0);
    }
    conntrack::delete(socket, |entry| is_stale(entry, stale))
}

fn is_stale(entry: &Entry, stale: &Stale) -> bool {
    let ((source, destination), (backend, translated)) = (entry.original, entry.reply);
    let through_tunnel = entry.mark & ARRIVED != 0;
    stale.pods.contains(&source)
        || through_tunnel && (stale.pods.contains(&backend) || stale.backends.contains(&backend))
        || stale.vips.contains(&destination)
        || stale.vips.contains(&translated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::vxlan::sample;

    const NONE: &BTreeSet<Ipv4Addr> = &BTreeSet::new();

    fn without_addresses(old: &Datapath, new: &Datapath) -> Stale {
        stale(Some((old, NONE)), (new, NONE))
    }

    #[test]
    fn only_changed_translations_of_own_pods_are_stale() {
        let old = sample::worker();
        assert!(without_addresses(&old, &old).is_empty());
        // Another gateway: no translation here changes.
        let mut new = old.clone();
        new.vips.get_mut(&sample::A).unwrap().route = sample::via(sample::G2);
        assert!(without_addresses(&old, &new).is_empty());
        // A pod is no longer bound.
        new.vips.get_mut(&sample::A).unwrap().pods.remove(&sample::A1);
        assert_eq!(without_addresses(&old, &new).pods, BTreeSet::from([sample::A1]));
        // A pod of another node.
        let mut new = old.clone();
        new.vips.get_mut(&sample::A).unwrap().pods.remove(&sample::A3);
        assert!(without_addresses(&old, &new).is_empty());
    }

    #[test]
    fn a_moved_vip_makes_its_connections_on_the_old_gateway_stale() {
        let old = sample::gateway();
        let mut new = old.clone();
        new.vips.get_mut(&sample::A).unwrap().route = sample::via(sample::G2);
        let stale = without_addresses(&old, &new);
        let (pods, vips) = (BTreeSet::from([sample::A3]), BTreeSet::from([sample::A]));
        assert_eq!(stale, Stale { pods, vips, backends: BTreeSet::new() });
    }

    #[test]
    fn a_vip_that_becomes_an_address_of_the_node_makes_connections_through_the_tunnel_stale() {
        let datapath = sample::gateway();
        let vips = BTreeSet::from([sample::A]);
        let backends = BTreeSet::from([sample::A3]);
        let got = stale(Some((&datapath, NONE)), (&datapath, &vips));
        assert_eq!(got, Stale { backends: backends.clone(), vips: vips.clone(), pods: BTreeSet::new() });
        let lost = stale(Some((&datapath, &vips)), (&datapath, NONE));
        assert_eq!(lost, Stale { vips: vips.clone(), ..Stale::default() });
        assert!(stale(Some((&datapath, &vips)), (&datapath, &vips)).is_empty());
        // After a restart.
        assert_eq!(stale(None, (&datapath, &vips)), Stale { backends, ..Stale::default() });
        assert!(stale(None, (&datapath, NONE)).is_empty());
    }
}
