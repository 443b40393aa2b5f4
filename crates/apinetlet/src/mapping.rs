//! Each kind of the source cluster with what it is mapped to: the caches to read, the neighbourhood of one object, and its plan.

use std::collections::BTreeMap;

use common::cache::{Cache, ObjectKey};
use jiff::Timestamp;
use kube::Resource;

use crate::api::network_policy::{NetworkPolicy, SourceNetworkPolicy};
use crate::api::{ApiNetKind, LocalUidRef, SourceKind, apinet, source};
use crate::caches::{
    BY_ADDRESS, BY_NETWORK, BY_ORIGIN, BY_OWNER, BY_TARGET, BY_UID, Caches, local_key, owned,
};
use crate::config::Config;
use crate::names::Kind;
use crate::plan::{self, Plan};
use crate::provider_id::InterfaceId;

/// A kind of the source cluster that has counterparts.
pub trait Mapping: SourceKind {
    /// Its name in metadata and Events.
    const KIND: Kind;
    /// The type of its counterpart.
    type Counterpart: ApiNetKind;

    /// The cached source objects and their counterparts; None if the flavor does not have the kind.
    fn caches(caches: &Caches) -> Option<(&Cache<Self>, &Cache<Self::Counterpart>)>;
    /// Reads the neighbourhood of the object from the caches, and plans the next steps.
    fn plan(self, config: &Config, caches: &Caches) -> Plan;

    /// The cached source objects.
    fn sources(caches: &Caches) -> Option<&Cache<Self>> {
        Self::caches(caches).map(|(sources, _)| sources)
    }
    /// The cached counterparts.
    fn counterparts(caches: &Caches) -> Option<&Cache<Self::Counterpart>> {
        Self::caches(caches).map(|(_, counterparts)| counterparts)
    }
}

/// The key of the counterpart, which has the UID of the source object as name.
fn counterpart<K: Resource>(config: &Config, object: &K) -> ObjectKey {
    ObjectKey::new(&config.namespace, object.meta().uid.as_deref().unwrap_or_default())
}

/// The Network that a source object references.
fn network<K: Resource>(caches: &Caches, object: &K, name: &str) -> Option<String> {
    caches.networks.get(&local_key(object, name))?.metadata.uid.clone()
}

/// The allocated Prefixes that an object controls (CIDR), by their names.
fn prefixes<K: Resource>(caches: &Caches, object: &K) -> BTreeMap<String, String> {
    let uid = object.meta().uid.as_deref().unwrap_or_default();
    let own = caches.prefixes.indexed(BY_OWNER, uid);
    own.iter()
        .filter_map(|prefix| Some((prefix.metadata.name.clone()?, prefix.allocated()?.to_owned())))
        .collect()
}

impl Mapping for source::Network {
    const KIND: Kind = Kind::Network;
    type Counterpart = apinet::Network;

    fn caches(caches: &Caches) -> Option<(&Cache<Self>, &Cache<apinet::Network>)> {
        Some((&caches.networks, &caches.apinet.networks))
    }

    fn plan(self, config: &Config, caches: &Caches) -> Plan {
        let peer = |uid: &String| {
            let counterpart = caches.apinet.networks.get(&ObjectKey::new(&config.namespace, uid))?;
            let source = owned(caches.networks.indexed(BY_UID, uid).into_iter().next())?;
            Some((uid.clone(), plan::network::Peer { source, id: counterpart.spec.id.clone() }))
        };
        let prefix = |name: &String| {
            let prefix = caches.prefixes.get(&local_key(&self, name))?;
            Some((name.clone(), prefix.allocated()?.to_owned()))
        };
        let referenced = self.spec.peerings.iter().flat_map(|peering| &peering.prefixes);
        let snapshot = plan::network::Snapshot {
            counterpart: owned(caches.apinet.networks.get(&counterpart(config, &self))),
            peers: self.spec.incoming_peerings.iter().filter_map(|one| peer(&one.uid)).collect(),
            prefixes: referenced.filter_map(|one| prefix(&one.prefix_ref.name)).collect(),
            source: self,
        };
        plan::network::plan(config, &snapshot)
    }
}

impl Mapping for source::NetworkInterface {
    const KIND: Kind = Kind::NetworkInterface;
    type Counterpart = apinet::NetworkInterface;

    fn caches(caches: &Caches) -> Option<(&Cache<Self>, &Cache<apinet::NetworkInterface>)> {
        Some((&caches.network_interfaces, &caches.apinet.network_interfaces))
    }

    fn plan(self, config: &Config, caches: &Caches) -> Plan {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        let mut interfaces = caches.apinet.network_interfaces.indexed(BY_ORIGIN, uid);
        if let Ok(id) = InterfaceId::parse(config.flavor, &self.spec.provider_id) {
            interfaces.extend(caches.apinet.network_interfaces.indexed(BY_UID, id.uid));
        }
        let mut virtual_ips = caches.virtual_ips.indexed(BY_TARGET, uid);
        let referenced = self.virtual_ip().map(|name| local_key(&self, name));
        virtual_ips.extend(referenced.and_then(|key| caches.virtual_ips.get(&key)));
        let addresses = virtual_ips.iter().filter_map(|one| one.status.ip.as_deref());
        let ips = addresses.flat_map(|address| caches.apinet.ips.indexed(BY_ADDRESS, address)).collect();
        let snapshot = plan::network_interface::Snapshot {
            interfaces: distinct(interfaces),
            virtual_ips: distinct(virtual_ips),
            ips: distinct(ips),
            prefixes: prefixes(caches, &self),
            source: self,
        };
        plan::network_interface::plan(config, &snapshot, Timestamp::now())
    }
}

/// Copies of the objects, each one once.
fn distinct<K: Resource + Clone>(objects: Vec<std::sync::Arc<K>>) -> Vec<K> {
    let by_key: BTreeMap<ObjectKey, _> = objects.into_iter().map(|one| (ObjectKey::of(&*one), one)).collect();
    by_key.into_values().map(std::sync::Arc::unwrap_or_clone).collect()
}

impl Mapping for source::VirtualIp {
    const KIND: Kind = Kind::VirtualIp;
    type Counterpart = apinet::Ip;

    fn caches(caches: &Caches) -> Option<(&Cache<Self>, &Cache<apinet::Ip>)> {
        Some((&caches.virtual_ips, &caches.apinet.ips))
    }

    fn plan(self, config: &Config, caches: &Caches) -> Plan {
        let counterpart = owned(caches.apinet.ips.get(&counterpart(config, &self)));
        let address = self.status.ip.as_deref().filter(|_| counterpart.is_none()).unwrap_or_default();
        let snapshot = plan::virtual_ip::Snapshot {
            interfaces: interfaces_with_address(config, caches, &self),
            ips: distinct(caches.apinet.ips.indexed(BY_ADDRESS, address)),
            virtual_ips: distinct(caches.virtual_ips.indexed(BY_ADDRESS, address)),
            counterpart,
            source: self,
        };
        plan::virtual_ip::plan(config, &snapshot)
    }
}

/// The apinet NetworkInterfaces that can have the address of a VirtualIP that is being deleted. If this program does not manage the
/// source object that has claimed the VirtualIP, or it does not exist, nothing would release them: then there are none.
fn interfaces_with_address(
    config: &Config,
    caches: &Caches,
    object: &source::VirtualIp,
) -> Vec<apinet::NetworkInterface> {
    let target = object.spec.target_ref.as_ref().filter(|_| object.metadata.deletion_timestamp.is_some());
    let Some(target) = target else { return Vec::new() };
    let source = caches.network_interfaces.get(&local_key(object, &target.name));
    let is_managed = source.is_some_and(|source| {
        source.metadata.uid.as_ref() == Some(&target.uid) && plan::is_managed(config, &source.metadata)
    });
    if !is_managed {
        return Vec::new();
    }
    distinct(caches.apinet.network_interfaces.indexed(BY_ORIGIN, &target.uid))
}

impl Mapping for source::LoadBalancer {
    const KIND: Kind = Kind::LoadBalancer;
    type Counterpart = apinet::LoadBalancer;

    fn caches(caches: &Caches) -> Option<(&Cache<Self>, &Cache<apinet::LoadBalancer>)> {
        Some((&caches.load_balancers, &caches.apinet.load_balancers))
    }

    fn plan(self, config: &Config, caches: &Caches) -> Plan {
        let key = counterpart(config, &self);
        let snapshot = plan::load_balancer::Snapshot {
            network: network(caches, &self, &self.spec.network_ref.name),
            prefixes: prefixes(caches, &self),
            routing: caches.load_balancer_routings.get(&ObjectKey::of(&self)),
            counterpart: owned(caches.apinet.load_balancers.get(&key)),
            counterpart_routing: caches.apinet.load_balancer_routings.get(&key),
            source: self,
        };
        plan::load_balancer::plan(config, &snapshot)
    }
}

impl Mapping for source::NatGateway {
    const KIND: Kind = Kind::NatGateway;
    type Counterpart = apinet::NatGateway;

    fn caches(caches: &Caches) -> Option<(&Cache<Self>, &Cache<apinet::NatGateway>)> {
        Some((&caches.nat_gateways, &caches.apinet.nat_gateways))
    }

    fn plan(self, config: &Config, caches: &Caches) -> Plan {
        let key = counterpart(config, &self);
        let snapshot = plan::nat_gateway::Snapshot {
            network: network(caches, &self, &self.spec.network_ref.name),
            counterpart: owned(caches.apinet.nat_gateways.get(&key)),
            autoscaler: owned(caches.apinet.nat_gateway_autoscalers.get(&key)),
            source: self,
        };
        plan::nat_gateway::plan(config, &snapshot)
    }
}

impl Mapping for SourceNetworkPolicy {
    const KIND: Kind = Kind::NetworkPolicy;
    type Counterpart = NetworkPolicy;

    fn caches(caches: &Caches) -> Option<(&Cache<Self>, &Cache<NetworkPolicy>)> {
        caches.policies.as_ref().map(|caches| (&caches.policies, &caches.counterparts))
    }

    fn plan(self, config: &Config, caches: &Caches) -> Plan {
        let key = counterpart(config, &self);
        let policies = caches.policies.as_ref();
        let source_network = network(caches, &self, &self.spec.network_ref.name);
        let has_source_network = source_network.is_some();
        let network = source_network.and_then(|name| {
            let network = caches.apinet.networks.get(&ObjectKey::new(&config.namespace, &name))?;
            Some(LocalUidRef { uid: network.metadata.uid.clone()?, name })
        });
        let name = network.as_ref().map_or("", |network| network.name.as_str());
        let snapshot = plan::network_policy::Snapshot {
            interfaces: distinct(caches.apinet.network_interfaces.indexed(BY_NETWORK, name)),
            load_balancers: distinct(caches.apinet.load_balancers.indexed(BY_NETWORK, name)),
            counterpart: owned(policies.and_then(|caches| caches.counterparts.get(&key))),
            rule: owned(policies.and_then(|caches| caches.rules.get(&key))),
            network,
            has_source_network,
            source: self,
        };
        plan::network_policy::plan(config, &snapshot)
    }
}

/// The keys of the source objects that reference a Network.
#[must_use]
pub fn referring<K: SourceKind>(cache: &Cache<K>, network: &source::Network) -> Vec<ObjectKey> {
    let name = network.metadata.name.as_deref().unwrap_or_default();
    let referring = cache.indexed(BY_NETWORK, &local_key(network, name).to_string());
    referring.iter().map(|one| ObjectKey::of(&**one)).collect()
}
