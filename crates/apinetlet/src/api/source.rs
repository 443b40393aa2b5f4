//! The kinds of the source cluster: `networking` and `ipam` of onmetal-api and ironcore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Serialize};

use super::{IpFamily, LocalRef, LocalUidRef, Port, kind, or_default};

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: NetworkSpec,
    /// The observed state.
    #[serde(default)]
    pub status: NetworkStatus,
}
kind!(Network, "Network", "networks", networking);

impl Network {
    /// Namespace and name of the network that one of its peerings names.
    #[must_use]
    pub fn peer<'a>(&'a self, peering: &'a Peering) -> (&'a str, &'a str) {
        let NetworkRef { namespace, name } = &peering.network_ref;
        let own = self.metadata.namespace.as_deref().unwrap_or_default();
        let namespace = if namespace.is_empty() { own } else { namespace.as_str() };
        (namespace, name.as_str())
    }
}

/// The spec of a Network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkSpec {
    /// [`crate::provider_id::NetworkId`]; empty until the apinet Network is allocated. Immutable once it is set.
    #[serde(rename = "providerID", deserialize_with = "or_default")]
    pub provider_id: String,
    /// The networks that this one shall reach.
    #[serde(deserialize_with = "or_default")]
    pub peerings: Vec<Peering>,
    /// The networks that name this one and that it names in `peerings`. ironcore writes the list, but a user may write it too.
    #[serde(deserialize_with = "or_default")]
    pub incoming_peerings: Vec<IncomingPeering>,
}

/// A network to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Peering {
    /// Unique in the list.
    pub name: String,
    /// The other network.
    pub network_ref: NetworkRef,
    /// The parts of this network that the other one reaches; all of it if there are none.
    #[serde(deserialize_with = "or_default")]
    pub prefixes: Vec<PeeringPrefix>,
}

/// A network in any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkRef {
    /// The namespace of the referring network if empty.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// metadata.name
    pub name: String,
}

/// A part of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeeringPrefix {
    /// Unique in the list.
    pub name: String,
    /// CIDR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// A Prefix that contains it; an empty name is none.
    pub prefix_ref: LocalRef,
}

/// The read part of a network that shall reach this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IncomingPeering {
    /// metadata.uid
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
}

/// The status of a Network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkStatus {
    /// `Pending`, `Available` or `Error`.
    #[serde(deserialize_with = "or_default")]
    pub state: String,
    /// Those that work, or will.
    #[serde(deserialize_with = "or_default")]
    pub peerings: Vec<PeeringStatus>,
}

/// The status of one of the peerings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeeringStatus {
    /// That of the spec.
    pub name: String,
    /// `Pending`, `Ready` or `Error`. onmetal has no such field.
    #[serde(deserialize_with = "or_default")]
    pub state: String,
    /// The parts that the other network reaches, once it is Ready.
    #[serde(deserialize_with = "or_default")]
    pub prefixes: Vec<PeeringPrefixStatus>,
}

/// A part of a network that another one reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeeringPrefixStatus {
    /// That of the spec.
    pub name: String,
    /// CIDR.
    pub prefix: Option<String>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkInterface {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: NetworkInterfaceSpec,
    /// The observed state.
    #[serde(default)]
    pub status: NetworkInterfaceStatus,
}
kind!(NetworkInterface, "NetworkInterface", "networkinterfaces", networking);

impl NetworkInterface {
    /// The name of the VirtualIP that it references. An ephemeral one has its name.
    #[must_use]
    pub fn virtual_ip(&self) -> Option<&str> {
        match self.spec.virtual_ip.as_ref()? {
            VirtualIpSource { virtual_ip_ref: Some(reference), .. } => Some(&reference.name),
            VirtualIpSource { ephemeral: Some(_), .. } => self.metadata.name.as_deref(),
            VirtualIpSource { .. } => None,
        }
    }
}

/// The read part of the spec of a NetworkInterface. The MachinePool writes its addresses to the apinet NetworkInterface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInterfaceSpec {
    /// [`crate::provider_id::InterfaceId`]; empty until a machine has the interface.
    #[serde(rename = "providerID", deserialize_with = "or_default")]
    pub provider_id: String,
    /// Its network.
    pub network_ref: LocalRef,
    /// The prefixes that are routed to it.
    #[serde(deserialize_with = "or_default")]
    pub prefixes: Vec<IpSource>,
    /// Its public address.
    #[serde(rename = "virtualIP")]
    pub virtual_ip: Option<VirtualIpSource>,
}

/// An address or a prefix (CIDR), or the template of a Prefix that it is taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpSource {
    /// The address, or the CIDR.
    pub value: Option<String>,
    /// The template. Its presence is all that is read: the name of the Prefix follows from that of its owner.
    pub ephemeral: Option<Ephemeral>,
}

/// A VirtualIP, or the template of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualIpSource {
    /// An existing VirtualIP.
    #[serde(rename = "virtualIPRef")]
    pub virtual_ip_ref: Option<LocalRef>,
    /// As in [`IpSource`]. The VirtualIP has the name of the NetworkInterface.
    pub ephemeral: Option<Ephemeral>,
}

/// A template that another controller makes an object of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ephemeral {}

/// The status of a NetworkInterface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInterfaceStatus {
    /// `Pending`, `Available` or `Error`.
    #[serde(deserialize_with = "or_default")]
    pub state: String,
    /// The last change of `state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_state_transition_time: Option<Time>,
    /// Addresses.
    #[serde(deserialize_with = "or_default")]
    pub ips: Vec<String>,
    /// CIDRs.
    #[serde(deserialize_with = "or_default")]
    pub prefixes: Vec<String>,
    /// The public address.
    #[serde(rename = "virtualIP", skip_serializing_if = "Option::is_none")]
    pub virtual_ip: Option<String>,
}

/// A public address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VirtualIp {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: VirtualIpSpec,
    /// The observed state.
    #[serde(default)]
    pub status: VirtualIpStatus,
}
kind!(VirtualIp, "VirtualIP", "virtualips", networking);

/// The spec of a VirtualIP. Its type is always `Public`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualIpSpec {
    /// Its family. The API server requires it.
    pub ip_family: Option<IpFamily>,
    /// The NetworkInterface that has claimed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<LocalUidRef>,
}

/// The status of a VirtualIP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VirtualIpStatus {
    /// The address, once it is allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// A load balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: LoadBalancerSpec,
    /// The observed state.
    #[serde(default)]
    pub status: Ips,
}
kind!(LoadBalancer, "LoadBalancer", "loadbalancers", networking);

/// The read part of the spec of a LoadBalancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerSpec {
    /// `Public` or `Internal`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of its addresses.
    #[serde(deserialize_with = "or_default")]
    pub ip_families: Vec<IpFamily>,
    /// Its addresses, if it is internal.
    #[serde(deserialize_with = "or_default")]
    pub ips: Vec<IpSource>,
    /// Its network.
    pub network_ref: LocalRef,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<Port>,
}

/// The status of a LoadBalancer or of a NATGateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ips {
    /// Addresses.
    #[serde(deserialize_with = "or_default")]
    pub ips: Vec<String>,
}

/// The targets of the load balancer of the same name. It has no spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadBalancerRouting {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The targets.
    #[serde(default, deserialize_with = "or_default")]
    pub destinations: Vec<Destination>,
}
kind!(LoadBalancerRouting, "LoadBalancerRouting", "loadbalancerroutings", networking);

/// A target of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Destination {
    /// Its address.
    #[serde(deserialize_with = "or_default")]
    pub ip: String,
    /// The NetworkInterface that has the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<DestinationTarget>,
}

/// The NetworkInterface of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DestinationTarget {
    /// [`crate::provider_id::InterfaceId`]
    #[serde(rename = "providerID", deserialize_with = "or_default")]
    pub provider_id: String,
}

/// A NAT gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NatGateway {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: NatGatewaySpec,
    /// The observed state.
    #[serde(default)]
    pub status: Ips,
}
kind!(NatGateway, "NATGateway", "natgateways", networking);

/// The spec of a NATGateway. Its type is always `Public`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NatGatewaySpec {
    /// Of its addresses. The API server requires it.
    pub ip_family: Option<IpFamily>,
    /// Its network.
    pub network_ref: LocalRef,
    /// A power of two; [`NatGatewaySpec::DEFAULT_PORTS`] if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports_per_network_interface: Option<i32>,
}

impl NatGatewaySpec {
    /// The default of the API server (`DefaultPortsPerNetworkInterface`).
    pub const DEFAULT_PORTS: i32 = 2048;
}

/// A prefix of `ipam`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prefix {
    /// Metadata, with the owner references.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: PrefixSpec,
    /// The observed state.
    #[serde(default)]
    pub status: PrefixStatus,
}
kind!(Prefix, "Prefix", "prefixes", ipam);

/// The read part of the spec of a Prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrefixSpec {
    /// CIDR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

/// The read part of the status of a Prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefixStatus {
    /// `Pending` or `Allocated`.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
}

impl Prefix {
    /// The prefix (CIDR), once it is allocated.
    #[must_use]
    pub fn allocated(&self) -> Option<&str> {
        self.spec.prefix.as_deref().filter(|_| self.status.phase == "Allocated")
    }

    /// The object that controls it.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
    }
}
