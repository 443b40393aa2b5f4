//! The watched objects of both clusters, with the indexes by which a reconciliation finds its neighbourhood.

use std::sync::Arc;

use common::cache::{Cache, ObjectKey};
use common::runtime::Runtime;
use kube::Resource;

use crate::api::network_policy::{NetworkPolicy, NetworkPolicyRule, SourceNetworkPolicy};
use crate::api::{apinet, source};
use crate::clusters::{ApiNet, Source};
use crate::config::Config;
use crate::names::{Flavor, Kind};
use crate::origin::Keys;
use crate::provider_id::InterfaceId;

/// metadata.uid
pub const BY_UID: &str = "uid";
/// Source NetworkInterfaces by the UID of the apinet one that their provider ID names.
pub const BY_PROVIDER_UID: &str = "provider-uid";
/// Source NetworkInterfaces by the VirtualIP that they reference (`namespace/name`).
pub const BY_VIRTUAL_IP: &str = "virtual-ip";
/// VirtualIPs by the UID of the NetworkInterface that has claimed them.
pub const BY_TARGET: &str = "target";
/// Source objects by their Network (`namespace/name`); apinet objects by the name of their apinet Network.
pub const BY_NETWORK: &str = "network";
/// Source Networks by the UIDs of the Networks that shall reach them.
pub const BY_PEER: &str = "peer";
/// Source Networks by the Prefixes that their peerings refer to (`namespace/name`).
pub const BY_PREFIX: &str = "prefix";
/// Prefixes by the UID of the object that controls them.
pub const BY_OWNER: &str = "owner";
/// apinet IPs by their address; VirtualIPs by that in their status.
pub const BY_ADDRESS: &str = "address";
/// apinet NetworkInterfaces by the UID of the source object that has claimed them.
pub const BY_ORIGIN: &str = "origin";

/// The first version with NetworkPolicies.
const POLICIES_SINCE: &str = "ironcore-net v0.2.0";

/// The caches of both clusters.
#[derive(Clone, Debug)]
pub struct Caches {
    /// Source cluster.
    pub networks: Cache<source::Network>,
    /// Source cluster.
    pub network_interfaces: Cache<source::NetworkInterface>,
    /// Source cluster.
    pub virtual_ips: Cache<source::VirtualIp>,
    /// Source cluster.
    pub load_balancers: Cache<source::LoadBalancer>,
    /// Source cluster.
    pub load_balancer_routings: Cache<source::LoadBalancerRouting>,
    /// Source cluster.
    pub nat_gateways: Cache<source::NatGateway>,
    /// Source cluster.
    pub prefixes: Cache<source::Prefix>,
    /// apinet cluster.
    pub apinet: ApiNetCaches,
    /// Of both clusters. onmetal-api-net has no network policies.
    pub policies: Option<PolicyCaches>,
}

/// The caches of the apinet cluster.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names of the kinds")]
pub struct ApiNetCaches {
    pub networks: Cache<apinet::Network>,
    pub network_interfaces: Cache<apinet::NetworkInterface>,
    pub ips: Cache<apinet::Ip>,
    pub load_balancers: Cache<apinet::LoadBalancer>,
    pub load_balancer_routings: Cache<apinet::LoadBalancerRouting>,
    pub nat_gateways: Cache<apinet::NatGateway>,
    pub nat_gateway_autoscalers: Cache<apinet::NatGatewayAutoscaler>,
}

/// The caches of network policies.
#[derive(Clone, Debug)]
pub struct PolicyCaches {
    /// Source cluster.
    pub policies: Cache<SourceNetworkPolicy>,
    /// apinet cluster.
    pub counterparts: Cache<NetworkPolicy>,
    /// apinet cluster.
    pub rules: Cache<NetworkPolicyRule>,
}

impl Caches {
    /// Starts all watches. Must be called inside a tokio runtime. Kinds of which users have thousands are packed. Routings are not:
    /// there are few, and some have thousands of targets.
    #[must_use]
    pub fn start(runtime: &Runtime, config: &Config, source: &Source, apinet: &ApiNet) -> Caches {
        let flavor = config.flavor;
        let interface = Keys::of(flavor, Kind::NetworkInterface);
        Caches {
            networks: source
                .cache::<source::Network>(runtime)
                .packed()
                .index(BY_UID, uid)
                .index(BY_PEER, |one| {
                    one.spec.incoming_peerings.iter().map(|peer| peer.uid.clone()).collect()
                })
                .index(BY_PREFIX, prefixes_of_peerings)
                .start(),
            network_interfaces: source
                .cache::<source::NetworkInterface>(runtime)
                .packed()
                .index(BY_PROVIDER_UID, move |one| {
                    let id = InterfaceId::parse(flavor, &one.spec.provider_id);
                    id.into_iter().map(|id| id.uid.to_owned()).collect()
                })
                .index(BY_VIRTUAL_IP, |one| {
                    let name = one.virtual_ip();
                    name.map(|name| local_key(one, name).to_string()).into_iter().collect()
                })
                .start(),
            virtual_ips: source
                .cache::<source::VirtualIp>(runtime)
                .packed()
                .index(BY_TARGET, |one| one.spec.target_ref.iter().map(|target| target.uid.clone()).collect())
                .index(BY_ADDRESS, |one| one.status.ip.iter().cloned().collect())
                .start(),
            load_balancers: source
                .cache::<source::LoadBalancer>(runtime)
                .index(BY_NETWORK, |one| vec![local_key(one, &one.spec.network_ref.name).to_string()])
                .start(),
            load_balancer_routings: source.cache(runtime).start(),
            nat_gateways: source
                .cache::<source::NatGateway>(runtime)
                .index(BY_NETWORK, |one| vec![local_key(one, &one.spec.network_ref.name).to_string()])
                .start(),
            prefixes: source
                .cache::<source::Prefix>(runtime)
                .packed()
                .index(BY_OWNER, |one| one.controller().map(|owner| owner.uid.clone()).into_iter().collect())
                .start(),
            apinet: ApiNetCaches {
                networks: apinet.cache(runtime).packed().start(),
                network_interfaces: apinet
                    .cache::<apinet::NetworkInterface>(runtime)
                    .packed()
                    .index(BY_UID, uid)
                    .index(BY_ORIGIN, move |one| {
                        interface.read(&one.metadata).map(|origin| origin.uid).into_iter().collect()
                    })
                    .index(BY_NETWORK, |one| vec![one.spec.network_ref.name.clone()])
                    .start(),
                ips: apinet
                    .cache::<apinet::Ip>(runtime)
                    .packed()
                    .index(BY_ADDRESS, |one| one.spec.ip.iter().cloned().collect())
                    .start(),
                load_balancers: apinet
                    .cache::<apinet::LoadBalancer>(runtime)
                    .index(BY_NETWORK, |one| vec![one.spec.network_ref.name.clone()])
                    // The plan sees in it which labels this program has applied.
                    .owned_by(flavor.names().field_manager)
                    .start(),
                load_balancer_routings: apinet.cache(runtime).start(),
                nat_gateways: apinet.cache(runtime).start(),
                nat_gateway_autoscalers: apinet.cache(runtime).start(),
            },
            policies: (flavor == Flavor::Ironcore).then(|| PolicyCaches {
                policies: source
                    .cache::<SourceNetworkPolicy>(runtime)
                    .index(BY_NETWORK, |one| vec![local_key(one, &one.spec.network_ref.name).to_string()])
                    .start(),
                counterparts: apinet.cache(runtime).served_since(POLICIES_SINCE).start(),
                rules: apinet.cache(runtime).served_since(POLICIES_SINCE).start(),
            }),
        }
    }
}

impl Caches {
    /// Waits for the first list of each kind.
    pub async fn synced(&self) {
        let ApiNetCaches {
            networks,
            network_interfaces,
            ips,
            load_balancers,
            load_balancer_routings,
            nat_gateways,
            nat_gateway_autoscalers,
        } = &self.apinet;
        tokio::join!(
            self.networks.synced(),
            self.network_interfaces.synced(),
            self.virtual_ips.synced(),
            self.load_balancers.synced(),
            self.load_balancer_routings.synced(),
            self.nat_gateways.synced(),
            self.prefixes.synced(),
            networks.synced(),
            network_interfaces.synced(),
            ips.synced(),
            load_balancers.synced(),
            load_balancer_routings.synced(),
            nat_gateways.synced(),
            nat_gateway_autoscalers.synced(),
        );
        if let Some(PolicyCaches { policies, counterparts, rules }) = &self.policies {
            tokio::join!(policies.synced(), counterparts.synced(), rules.synced());
        }
    }
}

fn uid<K: Resource>(object: &K) -> Vec<String> {
    object.meta().uid.clone().into_iter().collect()
}

/// The key of another object in the namespace of this one.
pub fn local_key<K: Resource>(object: &K, name: &str) -> ObjectKey {
    ObjectKey::new(object.meta().namespace.as_deref().unwrap_or_default(), name)
}

fn prefixes_of_peerings(network: &source::Network) -> Vec<String> {
    let prefixes = network.spec.peerings.iter().flat_map(|peering| &peering.prefixes);
    let names = prefixes.map(|prefix| prefix.prefix_ref.name.as_str()).filter(|name| !name.is_empty());
    names.map(|name| local_key(network, name).to_string()).collect()
}

/// A copy that a plan may keep.
pub fn owned<K: Clone>(object: Option<Arc<K>>) -> Option<K> {
    object.map(Arc::unwrap_or_clone)
}
