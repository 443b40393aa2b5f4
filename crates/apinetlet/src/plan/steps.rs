//! The words of a plan.

use std::collections::BTreeMap;
use std::fmt;

use common::plan::{self, Regarding, Related};
use serde::Serialize;

use crate::api::network_policy::{NetworkPolicy, NetworkPolicyRule};
use crate::api::{apinet, source};
use crate::names::Kind;

/// A plan of this program.
pub type Plan = plan::Plan<Action>;

/// One write.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// The source object that it serves, and on which its Events appear.
    pub source: Regarding,
    /// The write.
    pub act: Act,
}

/// A write of one of the clusters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Act {
    /// Adds a finalizer to the source object.
    AddFinalizer(String),
    /// Removes it.
    RemoveFinalizer {
        /// The finalizer.
        finalizer: String,
        /// metadata.name of a counterpart that must be gone, as a read from the API server shows.
        gone: Option<String>,
    },
    /// Applies an object of the apinet cluster.
    Apply(Box<Desired>),
    /// Deletes a counterpart, if it still has this UID.
    Delete {
        /// Of the source object.
        kind: Kind,
        /// metadata.name of the counterpart.
        name: String,
        /// metadata.uid of the counterpart.
        uid: String,
    },
    /// Sets `spec.providerID` of the source object, which is empty, and adds a finalizer.
    SetProviderId {
        /// The provider ID.
        id: String,
        /// None if it is there.
        finalizer: Option<String>,
    },
    /// Writes the status of the source object.
    SetStatus(Status),
    /// Writes the metadata of an apinet NetworkInterface so that it names the source object, and its configuration.
    Claim(ObservedRef, MetadataPatch, Configuration),
    /// Writes metadata and configuration of a claimed apinet NetworkInterface.
    Configure(ObservedRef, MetadataPatch, Configuration),
    /// Removes that metadata, the public addresses and the prefixes of an apinet NetworkInterface.
    Release(ObservedRef, MetadataPatch),
    /// Sets `spec.targetRef` of a VirtualIP to the source object.
    ClaimVirtualIp(ObservedRef),
    /// Removes `spec.targetRef` of a VirtualIP.
    ReleaseVirtualIp(ObservedRef),
}

/// An apinet NetworkInterface, or a VirtualIP in the namespace of the source object, as it was observed. A write of a newer version is
/// refused by the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedRef {
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// metadata.resourceVersion
    pub resource_version: String,
}

/// Labels and annotations to write; None removes one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetadataPatch {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, Option<String>>,
}

impl MetadataPatch {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// The fields of an apinet NetworkInterface that this program writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// All public addresses.
    #[serde(rename = "publicIPs")]
    pub public_ips: Vec<apinet::NamedIp>,
    /// All prefixes (CIDR).
    pub prefixes: Vec<String>,
    /// All NAT gateways: those that it has, without those of families that have a public address.
    pub nat_gateways: Vec<apinet::ClaimingNatGateway>,
}

/// An object of the apinet cluster with the fields that this program owns.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the names of the kinds")]
pub enum Desired {
    Network(apinet::Network),
    Ip(apinet::Ip),
    NatGateway(apinet::NatGateway),
    NatGatewayAutoscaler(apinet::NatGatewayAutoscaler),
    LoadBalancer(apinet::LoadBalancer),
    LoadBalancerRouting(apinet::LoadBalancerRouting),
    NetworkPolicy(NetworkPolicy),
    NetworkPolicyRule(NetworkPolicyRule),
}

impl Desired {
    fn kind_and_name(&self) -> (&'static str, &str) {
        let (kind, metadata) = match self {
            Desired::Network(object) => ("Network", &object.metadata),
            Desired::Ip(object) => ("IP", &object.metadata),
            Desired::NatGateway(object) => ("NATGateway", &object.metadata),
            Desired::NatGatewayAutoscaler(object) => ("NATGatewayAutoscaler", &object.metadata),
            Desired::LoadBalancer(object) => ("LoadBalancer", &object.metadata),
            Desired::LoadBalancerRouting(object) => ("LoadBalancerRouting", &object.metadata),
            Desired::NetworkPolicy(object) => ("NetworkPolicy", &object.metadata),
            Desired::NetworkPolicyRule(object) => ("NetworkPolicyRule", &object.metadata),
        };
        (kind, metadata.name.as_deref().unwrap_or_default())
    }
}

/// The status of a source object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the names of the kinds")]
pub enum Status {
    Network(source::NetworkStatus),
    VirtualIp(source::VirtualIpStatus),
    /// Of a LoadBalancer or a NATGateway.
    Ips(source::Ips),
    NetworkInterface(source::NetworkInterfaceStatus),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = &self.source;
        match &self.act {
            Act::AddFinalizer(name) => write!(f, "add finalizer {name} to {source}"),
            Act::RemoveFinalizer { finalizer, .. } => write!(f, "remove finalizer {finalizer} from {source}"),
            Act::Apply(desired) => {
                let (kind, name) = desired.kind_and_name();
                write!(f, "apply apinet {kind} {name} of {source}")
            }
            Act::Delete { name, .. } => write!(f, "delete the apinet object {name} of {source}"),
            Act::SetProviderId { id, .. } => write!(f, "set providerID of {source} to {id}"),
            Act::SetStatus(_) => write!(f, "update the status of {source}"),
            Act::Claim(one, ..) => write!(f, "claim apinet NetworkInterface {} for {source}", one.name),
            Act::Configure(one, ..) => {
                write!(f, "configure apinet NetworkInterface {} of {source}", one.name)
            }
            Act::Release(one, _) => write!(f, "release apinet NetworkInterface {} of {source}", one.name),
            Act::ClaimVirtualIp(one) => write!(f, "claim VirtualIP {} for {source}", one.name),
            Act::ReleaseVirtualIp(one) => write!(f, "release VirtualIP {} of {source}", one.name),
        }
    }
}

impl plan::Action for Action {
    type Reason = Reason;

    fn name(&self) -> &'static str {
        match &self.act {
            Act::AddFinalizer(_) => "AddFinalizer",
            Act::RemoveFinalizer { .. } => "RemoveFinalizer",
            Act::Apply(_) => "Apply",
            Act::Delete { .. } => "Delete",
            Act::SetProviderId { .. } => "SetProviderID",
            Act::SetStatus(_) => "UpdateStatus",
            Act::Claim(..) => "ClaimNetworkInterface",
            Act::Configure(..) => "ConfigureNetworkInterface",
            Act::Release(..) => "ReleaseNetworkInterface",
            Act::ClaimVirtualIp(_) => "ClaimVirtualIP",
            Act::ReleaseVirtualIp(_) => "ReleaseVirtualIP",
        }
    }

    fn regarding(&self) -> Regarding {
        self.source.clone()
    }

    fn related(&self) -> Option<Related> {
        let (kind, name) = match &self.act {
            Act::Apply(desired) => desired.kind_and_name(),
            Act::Claim(one, ..) | Act::Configure(one, ..) | Act::Release(one, _) => {
                ("NetworkInterface", one.name.as_str())
            }
            _ => return None,
        };
        Some(Related { kind: kind.to_owned(), namespace: None, name: name.to_owned() })
    }
}

/// Why a write is made, or what prevents one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// Nothing is written to the apinet cluster before it.
    #[error("the finalizer keeps the source object until its apinet object is gone")]
    FinalizerMissing,
    /// Of a counterpart, or of another object of it.
    #[error("the apinet object does not exist")]
    CounterpartMissing,
    /// Of a counterpart, or of another object of it.
    #[error("the apinet object differs from the source object")]
    CounterpartOutdated,
    /// The finalizer is removed.
    #[error("the apinet object is gone")]
    CounterpartGone,
    /// The counterpart is deleted.
    #[error("the source object is being deleted")]
    SourceDeleted,
    /// The provider ID is written.
    #[error("the apinet Network has its ID")]
    NetworkAllocated,
    /// The status is written.
    #[error("the status differs from the apinet object")]
    StatusOutdated,
    /// An interface or a VirtualIP is claimed.
    #[error("the source object references it and nothing has claimed it")]
    Referenced,
    /// An interface or a VirtualIP is released.
    #[error("the source object does not reference it any more")]
    NotReferenced,
    /// A claimed VirtualIP is released.
    #[error("the VirtualIP is being deleted")]
    VirtualIpDeleted,
    /// An interface is configured.
    #[error("labels, public addresses, prefixes or NAT gateways differ")]
    ConfigurationOutdated,
    /// The network of the object is missing.
    #[error("Network {0} does not exist in this namespace; create it, or correct networkRef")]
    NetworkNotFound(String),
    /// The network of the object is not mapped yet.
    #[error("Network {0} has no apinet Network yet; its own Events have the reason")]
    NetworkPending(String),
    /// The type of a load balancer is unknown.
    #[error("type {0:?} is neither Public nor Internal")]
    TypeUnknown(String),
    /// The rule of a policy is written without its ports of a protocol.
    #[error("its {0} ports are not allowed: metalnetlet has firewall rules for TCP and UDP only")]
    ProtocolUnsupported(String),
    /// A policy is written without its peers of a kind.
    #[error(
        "its peers of kind {0} are not allowed: ironcore-net selects only NetworkInterfaces and LoadBalancers"
    )]
    PeerUnsupported(String),
    /// The API server requires the family, so that it is missing only if another server has served the object.
    #[error("spec.ipFamily is missing")]
    FamilyMissing,
    /// A NATGateway has so many public addresses.
    #[error(
        "it has {0} public addresses and needs more, and ironcore-net adds none; its address pool may be full"
    )]
    AddressMissing(usize),
    /// The interface belongs to another source object.
    #[error("apinet NetworkInterface {0} is claimed by {1}; two source objects have its provider ID")]
    InterfaceTaken(String, String),
    /// The provider ID of an interface is invalid.
    #[error("{0}")]
    ProviderIdInvalid(String),
    /// The VirtualIP belongs to another interface.
    #[error("VirtualIP {0} is claimed by NetworkInterface {1}")]
    VirtualIpTaken(String, String),
    /// The address in the status of a VirtualIP belongs to another VirtualIP or apinet IP.
    #[error(
        "the status of VirtualIP {0} has the address {1}, which is that of another VirtualIP or apinet IP; it is not used"
    )]
    AddressTaken(String, String),
    /// An apinet object is deleted or released.
    #[error("{0} does not exist any more")]
    SourceGone(String),
}

impl Reason {
    /// Whether another program solves such a problem in most cases, within seconds.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Reason::AddressMissing(_) | Reason::NetworkPending(_))
    }
}

impl plan::Reason for Reason {
    fn code(&self) -> &'static str {
        match self {
            Reason::FinalizerMissing => "FinalizerMissing",
            Reason::CounterpartMissing => "CounterpartMissing",
            Reason::CounterpartOutdated => "CounterpartOutdated",
            Reason::CounterpartGone => "CounterpartGone",
            Reason::SourceDeleted => "SourceDeleted",
            Reason::NetworkAllocated => "NetworkAllocated",
            Reason::StatusOutdated => "StatusOutdated",
            Reason::Referenced => "Referenced",
            Reason::NotReferenced => "NotReferenced",
            Reason::VirtualIpDeleted => "VirtualIPDeleted",
            Reason::ConfigurationOutdated => "ConfigurationOutdated",
            Reason::NetworkNotFound(_) => "NetworkNotFound",
            Reason::NetworkPending(_) => "NetworkPending",
            Reason::TypeUnknown(_) => "TypeUnknown",
            Reason::ProtocolUnsupported(_) => "ProtocolUnsupported",
            Reason::PeerUnsupported(_) => "PeerUnsupported",
            Reason::FamilyMissing => "FamilyMissing",
            Reason::AddressMissing(_) => "AddressMissing",
            Reason::InterfaceTaken(..) => "InterfaceTaken",
            Reason::ProviderIdInvalid(_) => "ProviderIDInvalid",
            Reason::VirtualIpTaken(..) => "VirtualIPTaken",
            Reason::AddressTaken(..) => "AddressTaken",
            Reason::SourceGone(_) => "SourceGone",
        }
    }
}
