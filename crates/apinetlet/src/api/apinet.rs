//! The kinds of the apinet cluster: `core` of onmetal-api-net and ironcore-net.
//!
//! A field that this program applies is in the type, so that a cached object shows whether applying it again changes anything.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{IpFamily, LocalRef, LocalUidRef, Port, is_default, kind, or_default};

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spec: NetworkSpec,
    /// The observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: NetworkStatus,
}
kind!(Network, "Network", "networks", apinet);

/// The spec of a Network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkSpec {
    /// The VXLAN network identifier, in decimal. The API server allocates it; empty until then.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The networks that it reaches. onmetal has no such field.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub peerings: Vec<Peering>,
}

/// A network that another one reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peering {
    /// Unique in the list.
    pub name: String,
    /// [`NetworkSpec::id`] of the other network.
    pub id: String,
    /// The parts of the network that the other one reaches; all of it if there are none.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<PeeringPrefix>,
}

/// A part of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeeringPrefix {
    /// Unique in the list.
    pub name: String,
    /// CIDR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

/// The status of a Network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkStatus {
    /// By partition. onmetal has no such field.
    #[serde(deserialize_with = "or_default")]
    pub peerings: BTreeMap<String, Vec<PeeringStatus>>,
}

/// The status of a peering in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeeringStatus {
    /// [`NetworkSpec::id`] of the other network, as a number.
    pub id: i32,
    /// `Pending`, `Ready` or `Error`.
    #[serde(deserialize_with = "or_default")]
    pub state: String,
}

/// A public address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ip {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: IpSpec,
}
kind!(Ip, "IP", "ips", apinet);

/// The spec of an IP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpSpec {
    /// `Public`
    #[serde(rename = "type")]
    pub kind: String,
    /// Its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_family: Option<IpFamily>,
    /// The address. The API server allocates it; None until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// A network interface on a Node. The MachinePool creates it.
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
kind!(NetworkInterface, "NetworkInterface", "networkinterfaces", apinet);

/// The spec of a NetworkInterface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInterfaceSpec {
    /// Its network.
    pub network_ref: LocalRef,
    /// Its addresses.
    #[serde(deserialize_with = "or_default")]
    pub ips: Vec<String>,
    /// The prefixes (CIDR) that are routed to it.
    #[serde(deserialize_with = "or_default")]
    pub prefixes: Vec<String>,
    /// The NAT gateways that have claimed it: at most one of each family, and none of a family in `public_ips`.
    #[serde(deserialize_with = "or_default")]
    pub nat_gateways: Vec<ClaimingNatGateway>,
    /// Its public addresses: at most one of each family.
    #[serde(rename = "publicIPs", deserialize_with = "or_default")]
    pub public_ips: Vec<NamedIp>,
}

/// A NAT gateway that has claimed a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimingNatGateway {
    /// Of the gateway.
    pub ip_family: IpFamily,
    /// The gateway.
    pub claim_ref: LocalUidRef,
}

/// A public address of a network interface, or an address of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedIp {
    /// Unique in the list.
    pub name: String,
    /// Its family.
    pub ip_family: IpFamily,
    /// The address. The API server allocates that of a public load balancer; None until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// The read part of the status of a NetworkInterface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkInterfaceStatus {
    /// `Pending`, `Ready` or `Error`.
    #[serde(deserialize_with = "or_default")]
    pub state: String,
    /// The public addresses that are in effect.
    #[serde(rename = "publicIPs", deserialize_with = "or_default")]
    pub public_ips: Vec<String>,
}

/// A load balancer. Its controller makes an Instance on each suitable Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: LoadBalancerSpec,
}
kind!(LoadBalancer, "LoadBalancer", "loadbalancers", apinet);

/// The spec of a LoadBalancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerSpec {
    /// `Public` or `Internal`. Immutable.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its network. Immutable.
    pub network_ref: LocalRef,
    /// Its addresses.
    #[serde(deserialize_with = "or_default")]
    pub ips: Vec<NamedIp>,
    /// Its ports.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Selects its Instances. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<MatchLabels>,
    /// The template of its Instances.
    pub template: InstanceTemplate,
}

/// A label selector by values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchLabels {
    /// Each of these labels.
    #[serde(deserialize_with = "or_default")]
    pub match_labels: BTreeMap<String, String>,
}

/// The template of Instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceTemplate {
    /// Labels and annotations of the Instances.
    pub metadata: TemplateMetadata,
    /// The applied part of their spec; the controller of the load balancer adds the rest.
    pub spec: InstanceSpec,
}

/// The metadata of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The applied part of the spec of an Instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceSpec {
    /// Where it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
}

/// Rules for the Nodes of Instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Only on these Nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<Required<NodeSelector>>,
    /// Not beside other Instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_anti_affinity: Option<Required<Vec<AntiAffinityTerm>>>,
}

/// A rule of the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Required<T> {
    /// The rule.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: T,
}

/// At most one of the selected Instances in each domain of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AntiAffinityTerm {
    /// The Instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<MatchLabels>,
    /// A label of Nodes.
    pub topology_key: String,
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
kind!(LoadBalancerRouting, "LoadBalancerRouting", "loadbalancerroutings", apinet);

/// A target of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Destination {
    /// Its address.
    pub ip: String,
    /// The apinet NetworkInterface that has the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<DestinationTarget>,
}

/// The apinet NetworkInterface of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DestinationTarget {
    /// metadata.uid
    pub uid: String,
    /// metadata.name
    pub name: String,
    /// The Node that it is on.
    pub node_ref: LocalRef,
}

/// A NAT gateway. Its controller distributes the ports of its addresses among network interfaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NatGateway {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: NatGatewaySpec,
    /// The observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: NatGatewayStatus,
}
kind!(NatGateway, "NATGateway", "natgateways", apinet);

/// The spec of a NATGateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NatGatewaySpec {
    /// Of its addresses. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_family: Option<IpFamily>,
    /// Its network. Immutable.
    pub network_ref: LocalRef,
    /// Its addresses. The autoscaler has the list; the API server allocates them.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<NatGatewayIp>,
    /// Ports that each network interface gets.
    pub ports_per_network_interface: i32,
}

/// An address of a NAT gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NatGatewayIp {
    /// Unique in the list.
    pub name: String,
    /// The address; None until it is allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// The status of a NATGateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NatGatewayStatus {
    /// Network interfaces that have ports of an address.
    #[serde(rename = "usedNATIPs")]
    pub used: i64,
    /// Network interfaces that need ports of an address.
    #[serde(rename = "requestedNATIPs")]
    pub requested: i64,
}

/// Adds addresses to a NAT gateway, and removes them, as its network interfaces need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NatGatewayAutoscaler {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: NatGatewayAutoscalerSpec,
}
kind!(NatGatewayAutoscaler, "NATGatewayAutoscaler", "natgatewayautoscalers", apinet);

/// The spec of a NATGatewayAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NatGatewayAutoscalerSpec {
    /// The gateway.
    pub nat_gateway_ref: LocalRef,
    /// The fewest addresses.
    #[serde(rename = "minPublicIPs", skip_serializing_if = "Option::is_none")]
    pub min_public_ips: Option<i32>,
    /// The most addresses.
    #[serde(rename = "maxPublicIPs", skip_serializing_if = "Option::is_none")]
    pub max_public_ips: Option<i32>,
}
