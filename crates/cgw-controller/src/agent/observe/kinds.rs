//! Slim views of the watched kinds: only the fields that the plan reads are decoded and kept. The caches keep them packed.

use std::collections::BTreeMap;

use common::k8s::{metadata, or_default};
use k8s_openapi::api::{core::v1 as core, discovery::v1 as discovery};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

/// `v1/Service`
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = core::Service)]
pub struct Service {
    /// Names, versions, creation and annotations.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// The read part.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: ServiceSpec,
}

/// The read part of `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// Labels of its pods.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// Ports.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// `ClientIP` or `None`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub session_affinity: String,
    /// The timeout of `ClientIP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<AffinityConfig>,
    /// Networks of the clients that may use the Service.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub load_balancer_source_ranges: Vec<String>,
}

/// `spec.sessionAffinityConfig`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AffinityConfig {
    /// Of `ClientIP`.
    #[serde(rename = "clientIP", skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

/// `spec.sessionAffinityConfig.clientIP`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    /// 10,800 if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
}

/// A port of a Service or of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// May be empty.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`; TCP if it is not set.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// In an EndpointSlice it may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// `v1/Pod`
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = core::Pod)]
pub struct Pod {
    /// Names, versions, labels, annotations and deletion.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// The read part.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// The read part.
    #[serde(default, deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// The read part of `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Empty until it is scheduled.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Whether it has the network of its node.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
}

/// The read part of `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The first of `podIPs`.
    #[serde(rename = "podIP", deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// Its addresses, one of each family.
    #[serde(rename = "podIPs", deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<PodIp>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodIp {
    /// The address.
    #[serde(deserialize_with = "or_default")]
    pub ip: String,
}

/// `discovery.k8s.io/v1` EndpointSlice
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = discovery::EndpointSlice)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    /// Names, versions and the label with the Service.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// `IPv4`, `IPv6` or `FQDN`
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub address_type: String,
    /// Endpoints.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// Ports of each endpoint.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
}

/// An endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// Consumers use the first one.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Its state.
    #[serde(deserialize_with = "or_default")]
    pub conditions: EndpointConditions,
}

/// The state of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// Not set: ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Ready, regardless of termination. Not set: as `ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// Not set: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// `v1/Node`
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = core::Node)]
pub struct Node {
    /// Names, versions and labels.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// The read part.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: NodeSpec,
    /// The read part.
    #[serde(default, deserialize_with = "or_default")]
    pub status: NodeStatus,
}

/// The read part of `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Networks of its pods, if the cluster assigns them.
    #[serde(rename = "podCIDRs", deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub pod_cidrs: Vec<String>,
}

/// The read part of `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Its addresses.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
}

/// An address of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// `InternalIP`
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}
