//! The watches of each controller. A change of any object becomes the keys of the source objects that it concerns.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use common::backoff::Backoff;
use common::cache::{Cache, Change, ObjectKey};
use common::controller::{Controller, Queue};
use kube::Resource;

use super::{OfKind, Shared};
use crate::api::network_policy::SourceNetworkPolicy;
use crate::api::{ApiNetKind, SourceKind, apinet, source};
use crate::apply::Apply;
use crate::caches::{
    BY_ADDRESS, BY_NETWORK, BY_PEER, BY_PREFIX, BY_PROVIDER_UID, BY_TARGET, BY_UID, BY_VIRTUAL_IP, Caches,
    local_key,
};
use crate::mapping::{Mapping, referring};
use crate::names::Kind;
use crate::origin::Keys;

/// Objects of one kind at a time. A request takes milliseconds, most of which is the API server's.
const MAX_CONCURRENT_RECONCILES: usize = 16;

/// Of an address pool without a free address, for example.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };

/// Changes of many interfaces become one reconciliation of the policies of their network.
const POLICY_DELAY: Duration = Duration::from_millis(100);

fn controller<M: Mapping>(shared: &Arc<Shared>) -> Option<Controller<OfKind<M>>> {
    let Shared { runtime, apply, .. } = &**shared;
    let (sources, counterparts) = M::caches(&apply.caches)?;
    let reconciler = OfKind { shared: Arc::clone(shared), kind: PhantomData };
    let controller = Controller::new(runtime, M::KIND.lowercase(), reconciler)
        .max_concurrent_reconciles(MAX_CONCURRENT_RECONCILES)
        .backoff(BACKOFF)
        .watches(sources, |change, queue| queue.add(change.key()))
        .watches(counterparts, to_origin(apply, M::KIND));
    Some(controller)
}

/// To the source objects that the old and the new version of an apinet object name.
fn to_origin<K: ApiNetKind>(
    apply: &Arc<Apply>,
    kind: Kind,
) -> impl Fn(&Change<K>, &Queue<ObjectKey>) + Send + Sync + use<K> {
    let keys = Keys::of(apply.config.flavor, kind);
    move |change, queue| {
        for object in versions(change) {
            if let Some(origin) = keys.read(object.meta()) {
                queue.add(ObjectKey::new(&origin.namespace, &origin.name));
            }
        }
    }
}

/// The versions of a changed object. What an old one has referenced may be concerned too.
fn versions<K>(change: &Change<K>) -> impl Iterator<Item = &Arc<K>> {
    let (old, new) = match change {
        Change::Updated { old, new } => (Some(old), new),
        Change::Added(object) | Change::Deleted(object) => (None, object),
    };
    old.into_iter().chain([new])
}

/// Whether an update changes nothing that a controller reads of the object. `is_equal` compares what it reads.
fn is_same<K>(change: &Change<K>, is_equal: impl Fn(&K, &K) -> bool) -> bool {
    matches!(change, Change::Updated { old, new } if is_equal(old, new))
}

fn add_all<K: Resource>(queue: &Queue<ObjectKey>, objects: &[Arc<K>]) {
    objects.iter().for_each(|object| queue.add(ObjectKey::of(&**object)));
}

pub(super) fn networks(shared: &Arc<Shared>) -> Option<Controller<OfKind<source::Network>>> {
    let controller = controller::<source::Network>(shared)?;
    let apply = &shared.apply;
    let of_peer = apply.caches.networks.clone();
    let of_prefix = apply.caches.networks.clone();
    let controller = controller
        .watches(&apply.caches.apinet.networks, move |change, queue| {
            // A peering reads the ID only. A network can have thousands, and its status changes with each of them.
            if !is_same(change, |old, new| old.spec.id == new.spec.id) {
                add_all(queue, &of_peer.indexed(BY_PEER, change.key().name()));
            }
        })
        .watches(&apply.caches.networks, |change, queue| {
            changed_peers(change).into_iter().for_each(|key| queue.add(key));
        })
        .watches(&apply.caches.prefixes, move |change, queue| {
            add_all(queue, &of_prefix.indexed(BY_PREFIX, &change.key().to_string()));
        });
    Some(controller)
}

/// The networks that a changed one names now and did not name before, or the other way around. A peering is applied if both networks name
/// each other, and reads nothing else of the other one. A network can have thousands of peerings, and its status changes with each of them.
fn changed_peers(change: &Change<source::Network>) -> Vec<ObjectKey> {
    let named = |network: &source::Network| -> BTreeSet<ObjectKey> {
        let peers = network.spec.peerings.iter().map(|peering| network.peer(peering));
        peers.map(|(namespace, name)| ObjectKey::new(namespace, name)).collect()
    };
    match change {
        Change::Updated { old, new } => named(old).symmetric_difference(&named(new)).cloned().collect(),
        Change::Added(network) | Change::Deleted(network) => named(network).into_iter().collect(),
    }
}

pub(super) fn network_interfaces(
    shared: &Arc<Shared>,
) -> Option<Controller<OfKind<source::NetworkInterface>>> {
    let controller = controller::<source::NetworkInterface>(shared)?;
    let apply = &shared.apply;
    let of_provider = apply.caches.network_interfaces.clone();
    let of_virtual_ip = apply.caches.network_interfaces.clone();
    let controller = controller
        .watches(&apply.caches.apinet.network_interfaces, move |change, queue| {
            let uid = change.object().metadata.uid.as_deref().unwrap_or_default();
            add_all(queue, &of_provider.indexed(BY_PROVIDER_UID, uid));
        })
        .watches(&apply.caches.virtual_ips, move |change, queue| {
            for object in versions(change) {
                if let Some(target) = &object.spec.target_ref {
                    queue.add(local_key(&**object, &target.name));
                }
            }
            add_all(queue, &of_virtual_ip.indexed(BY_VIRTUAL_IP, &change.key().to_string()));
        })
        .watches(&apply.caches.prefixes, to_controller("NetworkInterface"));
    Some(controller)
}

pub(super) fn virtual_ips(shared: &Arc<Shared>) -> Option<Controller<OfKind<source::VirtualIp>>> {
    let controller = controller::<source::VirtualIp>(shared)?;
    let caches = &shared.apply.caches;
    let of_interface = caches.virtual_ips.clone();
    let of_ip = caches.virtual_ips.clone();
    let of_virtual_ip = caches.virtual_ips.clone();
    // A deleted VirtualIP waits for the one that has claimed it, which can end or become another program's.
    let controller = controller.watches(&caches.network_interfaces, move |change, queue| {
        let uid = change.object().metadata.uid.as_deref().unwrap_or_default();
        add_all(queue, &of_interface.indexed(BY_TARGET, uid));
    });
    // A VirtualIP without an IP waits for another object that has its address.
    let controller = controller
        .watches(&caches.apinet.ips, move |change, queue| {
            let address = change.object().spec.ip.as_deref().unwrap_or_default();
            add_all(queue, &of_ip.indexed(BY_ADDRESS, address));
        })
        .watches(&caches.virtual_ips, move |change, queue| {
            for address in versions(change).filter_map(|one| one.status.ip.as_deref()) {
                add_all(queue, &of_virtual_ip.indexed(BY_ADDRESS, address));
            }
        });
    Some(controller)
}

/// To the object that controls a Prefix.
fn to_controller(kind: &'static str) -> impl Fn(&Change<source::Prefix>, &Queue<ObjectKey>) + Send + Sync {
    move |change, queue| {
        let object = change.object();
        if let Some(owner) = object.controller().filter(|owner| owner.kind == kind) {
            queue.add(local_key(&**object, &owner.name));
        }
    }
}

/// To the objects that reference a Network. They read its UID only, which no update changes.
fn to_referring<K: SourceKind>(
    cache: &Cache<K>,
) -> impl Fn(&Change<source::Network>, &Queue<ObjectKey>) + Send + Sync + use<K> {
    let cache = cache.clone();
    move |change, queue| {
        if !is_same(change, |_, _| true) {
            referring(&cache, change.object()).into_iter().for_each(|key| queue.add(key));
        }
    }
}

pub(super) fn load_balancers(shared: &Arc<Shared>) -> Option<Controller<OfKind<source::LoadBalancer>>> {
    let controller = controller::<source::LoadBalancer>(shared)?;
    let apply = &shared.apply;
    let caches = &apply.caches;
    let controller = controller
        .watches(&caches.load_balancer_routings, |change, queue| queue.add(change.key()))
        .watches(&caches.apinet.load_balancer_routings, to_origin(apply, Kind::LoadBalancer))
        .watches(&caches.networks, to_referring(&caches.load_balancers))
        .watches(&caches.prefixes, to_controller("LoadBalancer"));
    Some(controller)
}

pub(super) fn nat_gateways(shared: &Arc<Shared>) -> Option<Controller<OfKind<source::NatGateway>>> {
    let controller = controller::<source::NatGateway>(shared)?;
    let apply = &shared.apply;
    let caches = &apply.caches;
    let controller = controller
        .watches(&caches.apinet.nat_gateway_autoscalers, to_origin(apply, Kind::NatGateway))
        .watches(&caches.networks, to_referring(&caches.nat_gateways));
    Some(controller)
}

pub(super) fn policies(shared: &Arc<Shared>) -> Option<Controller<OfKind<SourceNetworkPolicy>>> {
    let controller = controller::<SourceNetworkPolicy>(shared)?;
    let apply = &shared.apply;
    let policies = apply.caches.policies.as_ref()?;
    let caches = &apply.caches;
    let (of_interface, of_balancer, of_network) = (caches.clone(), caches.clone(), caches.clone());
    let controller = controller
        .watches(&policies.rules, to_origin(apply, Kind::NetworkPolicy))
        .watches(&caches.networks, to_referring(&policies.policies))
        .watches(&caches.apinet.networks, move |change, queue| {
            // A rule has its UID only, which no update changes.
            if !is_same(change, |_, _| true) {
                policies_of(&of_network, change.key().name()).into_iter().for_each(|key| queue.add(key));
            }
        })
        .watches(&caches.apinet.network_interfaces, move |change, queue| {
            if !is_same(change, is_same_interface) {
                add_later(queue, policies_of(&of_interface, &change.object().spec.network_ref.name));
            }
        })
        .watches(&caches.apinet.load_balancers, move |change, queue| {
            if !is_same(change, is_same_balancer) {
                add_later(queue, policies_of(&of_balancer, &change.object().spec.network_ref.name));
            }
        });
    Some(controller)
}

/// Whether all is equal that a policy reads. A reconciliation reads all interfaces of the network, and one of them changes several times
/// while it gets its addresses and NAT gateways.
fn is_same_interface(old: &apinet::NetworkInterface, new: &apinet::NetworkInterface) -> bool {
    old.spec.network_ref == new.spec.network_ref
        && old.spec.ips == new.spec.ips
        && old.status.state == new.status.state
        && old.metadata.labels == new.metadata.labels
}

/// The same for a load balancer, which also changes with the Nodes of its targets.
fn is_same_balancer(old: &apinet::LoadBalancer, new: &apinet::LoadBalancer) -> bool {
    old.spec.network_ref == new.spec.network_ref
        && old.spec.ips == new.spec.ips
        && old.metadata.labels == new.metadata.labels
}

fn add_later(queue: &Queue<ObjectKey>, keys: Vec<ObjectKey>) {
    keys.into_iter().for_each(|key| queue.add_after(key, POLICY_DELAY));
}

/// The policies of an apinet Network. Its name is the UID of the source Network.
fn policies_of(caches: &Caches, network: &str) -> Vec<ObjectKey> {
    let Some(policies) = &caches.policies else { return Vec::new() };
    let networks = caches.networks.indexed(BY_UID, network);
    let of_network = |network: &Arc<source::Network>| {
        let name = network.metadata.name.as_deref().unwrap_or_default();
        policies.policies.indexed(BY_NETWORK, &local_key(&**network, name).to_string())
    };
    networks.iter().flat_map(of_network).map(|policy| ObjectKey::of(&*policy)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn network(peers: &[(&str, &str)], state: &str) -> Arc<source::Network> {
        let peering = |(namespace, name): &(&str, &str)| json!({ "name": name, "networkRef": { "namespace": namespace, "name": name } });
        let peerings: Vec<_> = peers.iter().map(peering).collect();
        let object = json!({ "metadata": { "name": "hub", "namespace": "team" }, "spec": { "peerings": peerings },
            "status": { "state": state } });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_changed_network_concerns_the_networks_that_it_names_newly_or_no_longer() {
        let peers = [("", "a"), ("other", "b")];
        let changed =
            |change| -> Vec<String> { changed_peers(&change).iter().map(ObjectKey::to_string).collect() };
        let updated = |old, new| changed(Change::Updated { old, new });
        let before = || network(&peers, "Pending");
        assert_eq!(changed(Change::Added(before())), ["other/b", "team/a"]);
        assert_eq!(changed(Change::Deleted(before())), ["other/b", "team/a"]);
        assert_eq!(updated(before(), network(&peers, "Available")), [""; 0]);
        assert_eq!(updated(before(), network(&[("team", "a"), ("", "b")], "Pending")), ["other/b", "team/b"]);
    }

    #[test]
    fn a_policy_is_reconciled_if_addresses_labels_or_state_of_an_interface_change() {
        let interface = |spec: Value, state: &str, label: &str| -> Arc<apinet::NetworkInterface> {
            let object = json!({ "metadata": { "name": "i", "labels": { "app": label } }, "spec": spec,
                "status": { "state": state } });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let spec = |ip: &str, prefix: &str| json!({ "networkRef": { "name": "n" }, "ips": [ip], "prefixes": [prefix] });
        let old = || interface(spec("10.0.0.1", "10.1.0.0/24"), "Ready", "a");
        for (new, is_same_to_policy) in [
            (interface(spec("10.0.0.1", "10.2.0.0/24"), "Ready", "a"), true),
            (interface(spec("10.0.0.2", "10.1.0.0/24"), "Ready", "a"), false),
            (interface(spec("10.0.0.1", "10.1.0.0/24"), "Pending", "a"), false),
            (interface(spec("10.0.0.1", "10.1.0.0/24"), "Ready", "b"), false),
        ] {
            let change = Change::Updated { old: old(), new };
            assert_eq!(is_same(&change, is_same_interface), is_same_to_policy, "{change:?}");
        }
        assert!(!is_same(&Change::Added(old()), is_same_interface));
    }
}
