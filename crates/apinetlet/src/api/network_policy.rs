//! Network policies. The rules of a policy have the same type in both clusters; a NetworkPolicyRule has the addresses that they mean.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{IpFamily, LocalRef, LocalUidRef, kind, or_default};

/// The spec of a policy. The apinet cluster's has a priority too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Its network. Immutable.
    pub network_ref: LocalRef,
    /// The interfaces that it applies to; all of the network if empty.
    pub network_interface_selector: LabelSelector,
    /// Of several policies; the source cluster's has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Allowed incoming connections.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<Ingress>,
    /// Allowed outgoing connections.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<Egress>,
    /// `Ingress`, `Egress`: the directions in which all that is not allowed is refused.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub policy_types: Vec<String>,
}

/// Allowed incoming connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ingress {
    /// To these ports; to all if there are none.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PolicyPort>,
    /// From these peers; from all if there are none.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Peer>,
}

/// Allowed outgoing connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Egress {
    /// To these ports; to all if there are none.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PolicyPort>,
    /// To these peers; to all if there are none.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Peer>,
}

/// A port, or a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPort {
    /// `TCP`, `UDP` or `SCTP`; TCP if missing. metalnetlet requires it in a [`Rule`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The first port; 0 or none: all ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The last port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,
}

/// One side of a connection: at most one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Peer {
    /// The addresses of objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<ObjectSelector>,
    /// Addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,
}

/// Objects of one kind, by their labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectSelector {
    /// `NetworkInterface` or `LoadBalancer`.
    pub kind: String,
    /// Their labels.
    #[serde(flatten)]
    pub selector: LabelSelector,
}

/// A network (CIDR) with exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpBlock {
    /// CIDR.
    pub cidr: String,
    /// CIDRs within it.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
}

/// A policy of the source cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceNetworkPolicy {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: Spec,
}
kind!(SourceNetworkPolicy, "NetworkPolicy", "networkpolicies", networking);

/// A policy of the apinet cluster. onmetal has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: Spec,
}
kind!(NetworkPolicy, "NetworkPolicy", "networkpolicies", apinet);

/// The addresses that the policy of the same name means. It has no spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyRule {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The apinet Network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_ref: Option<LocalUidRef>,
    /// The interfaces that it applies to.
    #[serde(default, deserialize_with = "or_default")]
    pub targets: Vec<Target>,
    /// That of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Allowed incoming connections.
    #[serde(default, rename = "ingressRule", deserialize_with = "or_default")]
    pub ingress: Vec<Rule>,
    /// Allowed outgoing connections.
    #[serde(default, rename = "egressRule", deserialize_with = "or_default")]
    pub egress: Vec<Rule>,
}
kind!(NetworkPolicyRule, "NetworkPolicyRule", "networkpolicyrules", apinet);

/// An address of an interface that a policy applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Target {
    /// The address.
    pub ip: String,
    /// The apinet NetworkInterface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<LocalUidRef>,
}

/// Allowed connections. metalnetlet makes a firewall rule of each port with each network and address, and none if one side is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// The networks on the other side.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ip_block: Vec<IpBlock>,
    /// The addresses on the other side.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<ObjectIp>,
    /// The ports, each with its protocol.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub network_policy_ports: Vec<PolicyPort>,
}

/// The address of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectIp {
    /// Of the address.
    pub ip_family: IpFamily,
    /// CIDR of one address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}
