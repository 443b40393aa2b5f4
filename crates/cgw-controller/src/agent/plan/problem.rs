//! The problems of a plan: a closed set, each about one Kubernetes object.

use std::{fmt, net::Ipv4Addr};

use common::plan::{Problem, Regarding};
use serde::Serialize;

use super::Config;
use crate::{
    agent::snapshot::{Service, Snapshot},
    api::{TunMac, stores::EntryError},
};

/// A problem. Its text does not change while the problem is the same, so that it is reported once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each variant has a sentence for the user in Display")]
pub enum Reason {
    NoNode,
    NoNodeAddress,
    NoPodNetwork,
    PodOutsideNetworks { pod: String },
    NoStore { service: String },
    InvalidBinding { error: String },
    InvalidVip { error: String },
    NotAdmitted { vip: String },
    UnreadableBinding { vip: String },
    Ipv6Vip { vip: String },
    VipInNetwork { vip: Ipv4Addr, network: String, kind: &'static str },
    VipOfNode { vip: Ipv4Addr, node: String },
    TunIdInUse { vip: Ipv4Addr, tun_id: String, other: String },
    TunIdTooLarge { vip: Ipv4Addr, tun_id: String, max: u32 },
    VipExcluded { vip: Ipv4Addr, network: String },
    NoSelector,
    InvalidGateway { vip: Ipv4Addr, error: String },
    UnknownGateway { vip: Ipv4Addr, gateway: String },
    WrongMac { vip: Ipv4Addr, gateway: Ipv4Addr, mac: String, expected: String },
    PodConflict { other: String, vip: Ipv4Addr },
    AddressConflict { pod: String, other: String, address: Ipv4Addr },
    PortConflict { protocol: String, port: u16, other: String },
    HostNetwork,
    ForeignEgress { annotation: &'static str },
    InvalidSourceRange { range: String },
    NoSourceRange,
}

impl Reason {
    /// Every code, for the metric.
    pub const CODES: [&'static str; 26] = [
        "NoNode",
        "NoNodeAddress",
        "NoPodNetwork",
        "PodOutsideNetworks",
        "NoStore",
        "InvalidBinding",
        "InvalidVip",
        "NotAdmitted",
        "UnreadableBinding",
        "Ipv6Vip",
        "VipInNetwork",
        "VipOfNode",
        "TunIdInUse",
        "TunIdTooLarge",
        "VipExcluded",
        "NoSelector",
        "InvalidGateway",
        "UnknownGateway",
        "WrongMac",
        "PodConflict",
        "AddressConflict",
        "PortConflict",
        "HostNetwork",
        "ForeignEgress",
        "InvalidSourceRange",
        "NoSourceRange",
    ];
}

impl common::plan::Reason for Reason {
    fn code(&self) -> &'static str {
        match self {
            Reason::NoNode => "NoNode",
            Reason::NoNodeAddress => "NoNodeAddress",
            Reason::NoPodNetwork => "NoPodNetwork",
            Reason::PodOutsideNetworks { .. } => "PodOutsideNetworks",
            Reason::NoStore { .. } => "NoStore",
            Reason::InvalidBinding { .. } => "InvalidBinding",
            Reason::InvalidVip { .. } => "InvalidVip",
            Reason::NotAdmitted { .. } => "NotAdmitted",
            Reason::UnreadableBinding { .. } => "UnreadableBinding",
            Reason::Ipv6Vip { .. } => "Ipv6Vip",
            Reason::VipInNetwork { .. } => "VipInNetwork",
            Reason::VipOfNode { .. } => "VipOfNode",
            Reason::TunIdInUse { .. } => "TunIdInUse",
            Reason::TunIdTooLarge { .. } => "TunIdTooLarge",
            Reason::VipExcluded { .. } => "VipExcluded",
            Reason::NoSelector => "NoSelector",
            Reason::InvalidGateway { .. } => "InvalidGateway",
            Reason::UnknownGateway { .. } => "UnknownGateway",
            Reason::WrongMac { .. } => "WrongMac",
            Reason::PodConflict { .. } => "PodConflict",
            Reason::AddressConflict { .. } => "AddressConflict",
            Reason::PortConflict { .. } => "PortConflict",
            Reason::HostNetwork => "HostNetwork",
            Reason::ForeignEgress { .. } => "ForeignEgress",
            Reason::InvalidSourceRange { .. } => "InvalidSourceRange",
            Reason::NoSourceRange => "NoSourceRange",
        }
    }

    fn is_trouble(&self) -> bool {
        true
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DROPPED: &str = "packets of its pods to the outside are dropped";
        match self {
            Reason::NoNode => {
                f.write_str("the Node of this agent does not exist: the datapath stays as it is")
            }
            Reason::NoNodeAddress => {
                f.write_str("the Node has no InternalIP of IPv4: the datapath stays as it is")
            }
            Reason::NoPodNetwork => f.write_str(
                "no Node has spec.podCIDRs of IPv4: set --cluster-cidr; the datapath stays as it is",
            ),
            Reason::PodOutsideNetworks { pod } => write!(
                f,
                "pod {pod} has an address outside of the pod networks (spec.podCIDRs, --cluster-cidr): set --cluster-cidr; packets \
                 of pods outside of them are not dropped before the agent has read these pods"
            ),
            Reason::NoStore { service } => {
                write!(f, "Service {service} with the bindings does not exist: the datapath stays as it is")
            }
            Reason::InvalidBinding { error } => write!(f, "a binding cannot be read, and admits no Service: {error}"),
            Reason::InvalidVip { error } => write!(f, "the annotation vip has no effect: {error}"),
            Reason::NotAdmitted { vip } => {
                write!(f, "no binding of VIP {vip} admits this Service: its annotations have no effect")
            }
            Reason::UnreadableBinding { vip } => {
                write!(f, "the record of the binding of VIP {vip} cannot be read: {DROPPED}")
            }
            Reason::Ipv6Vip { vip } => {
                write!(f, "VIP {vip} is of IPv6, which the datapath does not support: {DROPPED}")
            }
            Reason::VipInNetwork { vip, network, kind } => {
                write!(f, "VIP {vip} is in the {kind} network {network}: {DROPPED}")
            }
            Reason::VipOfNode { vip, node } => {
                write!(f, "VIP {vip} is the address of Node {node}: {DROPPED}")
            }
            Reason::TunIdInUse { vip, tun_id, other } => {
                write!(f, "tunnel ID {tun_id} of VIP {vip} is that of VIP {other} too: {DROPPED}")
            }
            Reason::TunIdTooLarge { vip, tun_id, max } => write!(
                f,
                "tunnel ID {tun_id} of VIP {vip} is above {max:#x}, the largest one of the agents' --mark-mask: {DROPPED}; bind the VIP \
                 with another tunnel ID"
            ),
            Reason::VipExcluded { vip, network } => write!(
                f,
                "VIP {vip} is in {network} of --exclude-cidr: bound pods reach it with the address that the CNI gives them"
            ),
            Reason::NoSelector => {
                f.write_str("the Service has no selector: it has no pods that could use the VIP")
            }
            Reason::InvalidGateway { vip, error } => {
                write!(f, "VIP {vip} has no gateway, because an annotation is not valid: {error}")
            }
            Reason::UnknownGateway { vip, gateway } => write!(
                f,
                "VIP {vip} has no gateway: {gateway} is not the InternalIP of a Node with the label {}",
                crate::names::GATEWAY_LABEL
            ),
            Reason::WrongMac { vip, gateway, mac, expected } => write!(
                f,
                "VIP {vip} has no gateway: MAC address {mac} is not that of {gateway}, which is {expected}"
            ),
            Reason::PodConflict { other, vip } => write!(
                f,
                "pods of this Service are also behind the older Service {other}: they keep its VIP {vip} and are not behind \
                 this Service's VIP"
            ),
            Reason::AddressConflict { pod, other, address } => {
                write!(f, "pods {pod} and {other} have the same address {address}: it is that of {other}")
            }
            Reason::PortConflict { protocol, port, other } => write!(
                f,
                "{protocol} port {port} of the VIP is that of the older Service {other}: clients do not reach this Service by it"
            ),
            Reason::HostNetwork => f.write_str(
                "pods of this Service have the network of their node (hostNetwork): they do not use the VIP",
            ),
            Reason::ForeignEgress { annotation } => write!(
                f,
                "pods of this Service have the annotation {annotation}, which gives them another source address: they do not use \
                 the VIP, and their packets to the outside are dropped"
            ),
            Reason::InvalidSourceRange { range } => {
                write!(f, "the entry {range:?} of spec.loadBalancerSourceRanges is no network: it admits no client")
            }
            Reason::NoSourceRange => f.write_str(
                "spec.loadBalancerSourceRanges has no network of IPv4: no client reaches this Service by its VIP",
            ),
        }
    }
}

/// Collects problems.
#[derive(Debug)]
pub struct Problems<'a> {
    config: &'a Config,
    list: Vec<Problem<Reason>>,
}

impl<'a> Problems<'a> {
    pub(in crate::agent) fn new(config: &'a Config) -> Problems<'a> {
        Problems { config, list: Vec::new() }
    }

    /// About the node of this agent.
    pub(super) fn node(&mut self, snapshot: &Snapshot, because: Reason) {
        let uid = snapshot.nodes.iter().find(|node| node.name == snapshot.node).map(|node| node.uid.clone());
        let regarding = node_regarding(&snapshot.node, uid);
        self.list.push(Problem { regarding, because });
    }

    /// About a Service.
    pub(super) fn service(&mut self, service: &Service, because: Reason) {
        let regarding = Regarding {
            api_version: "v1",
            kind: "Service",
            namespace: Some(service.key.namespace().to_owned()),
            name: service.key.name().to_owned(),
            uid: Some(service.uid.clone()).filter(|uid| !uid.is_empty()),
        };
        self.list.push(Problem { regarding, because });
    }

    /// About an entry of the store `binds`.
    pub(super) fn binding(&mut self, error: &EntryError) {
        let regarding = Regarding {
            api_version: "v1",
            kind: "Service",
            namespace: Some(self.config.store.namespace().to_owned()),
            name: self.config.store.name().to_owned(),
            uid: None,
        };
        self.list.push(Problem { regarding, because: Reason::InvalidBinding { error: error.to_string() } });
    }

    /// Sorted and without duplicates.
    pub(in crate::agent) fn sorted(mut self) -> Vec<Problem<Reason>> {
        let key = |problem: &Problem<Reason>| {
            let code = common::plan::Reason::code(&problem.because);
            (problem.regarding.clone(), code, problem.because.to_string())
        };
        self.list.sort_by_cached_key(key);
        self.list.dedup();
        self.list
    }
}

/// A Node as the object of an Event.
#[must_use]
pub fn node_regarding(name: &str, uid: Option<String>) -> Regarding {
    Regarding { api_version: "v1", kind: "Node", namespace: None, name: name.to_owned(), uid }
}

impl Reason {
    pub(super) fn wrong_mac(vip: Ipv4Addr, gateway: Ipv4Addr, mac: TunMac) -> Reason {
        let expected = TunMac::new(super::mac_of(gateway));
        Reason::WrongMac {
            vip,
            gateway,
            mac: mac.to_string(),
            expected: expected.map(|mac| mac.to_string()).unwrap_or_default(),
        }
    }
}
