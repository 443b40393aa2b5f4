//! The names of the two flavors: API groups, finalizers, metadata keys, and the prefix of provider IDs.
//!
//! onmetal became ironcore in November 2023. The APIs kept their structure, so one set of types and this table serve both. The names
//! belong to onmetal-api-net and ironcore-net (`apinetlet/`, `api/core/v1alpha1`, `apimachinery`), and are theirs to the letter.

use clap::ValueEnum;
use common::apply::FieldManager;
use serde::Serialize;

/// The set of names that both clusters use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Flavor {
    /// `networking.api.onmetal.de` and `core.apinet.api.onmetal.de`
    Onmetal,
    /// `networking.ironcore.dev` and `core.apinet.ironcore.dev`
    Ironcore,
}

/// A kind of the source cluster that has a counterpart in the apinet cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// Network
    Network,
    /// NetworkInterface
    NetworkInterface,
    /// VirtualIP, which becomes an IP
    VirtualIp,
    /// LoadBalancer
    LoadBalancer,
    /// NATGateway
    NatGateway,
    /// NetworkPolicy
    NetworkPolicy,
}

impl Kind {
    /// As in the API of the source cluster.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Network => "Network",
            Kind::NetworkInterface => "NetworkInterface",
            Kind::VirtualIp => "VirtualIP",
            Kind::LoadBalancer => "LoadBalancer",
            Kind::NatGateway => "NATGateway",
            Kind::NetworkPolicy => "NetworkPolicy",
        }
    }

    /// As in finalizers and metadata keys, and as the name of its controller in metrics and logs.
    #[must_use]
    pub const fn lowercase(self) -> &'static str {
        match self {
            Kind::Network => "network",
            Kind::NetworkInterface => "networkinterface",
            Kind::VirtualIp => "virtualip",
            Kind::LoadBalancer => "loadbalancer",
            Kind::NatGateway => "natgateway",
            Kind::NetworkPolicy => "networkpolicy",
        }
    }
}

/// The names of one flavor.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// API group of the source cluster's networking kinds.
    pub networking: &'static str,
    /// The same with the version.
    pub networking_version: &'static str,
    /// API group of Prefixes.
    pub ipam: &'static str,
    /// API group of the apinet cluster.
    pub apinet: &'static str,
    /// Prefix of provider IDs.
    pub provider_id: &'static str,
    /// Field manager of everything that is applied in the apinet cluster but NetworkPolicyRules.
    pub field_manager: FieldManager,
    /// Field manager of NetworkPolicyRules.
    pub rule_field_manager: FieldManager,
    /// Domain of the finalizers on source objects.
    pub finalizers: &'static str,
    /// Domain of the labels and annotations that name the source object.
    pub origin: &'static str,
    /// Topology key of a zone in the apinet cluster.
    pub zone: &'static str,
    /// The label that `--watch-filter` selects by its value.
    pub watch_filter: &'static str,
    /// Annotation of source objects that another program manages.
    pub managed_by: &'static str,
    /// The Lease of leader election.
    pub lease: &'static str,
}

const ONMETAL: Names = Names {
    networking: "networking.api.onmetal.de",
    networking_version: "networking.api.onmetal.de/v1alpha1",
    ipam: "ipam.api.onmetal.de",
    apinet: "core.apinet.api.onmetal.de",
    provider_id: "onmetal-api-net://",
    field_manager: FieldManager::new("api.onmetal.de/apinetlet"),
    rule_field_manager: FieldManager::new("networkpolicies.networking.api.onmetal.de"),
    finalizers: "apinet.api.onmetal.de",
    origin: "apinetlet.api.onmetal.de",
    zone: "topology.core.apinet.api.onmetal.de/zone",
    watch_filter: "common.api.onmetal.de/watch-filter",
    managed_by: "common.api.onmetal.de/managed-by",
    lease: "fa89daf5.apinetlet.apinet.api.onmetal.de",
};

const IRONCORE: Names = Names {
    networking: "networking.ironcore.dev",
    networking_version: "networking.ironcore.dev/v1alpha1",
    ipam: "ipam.ironcore.dev",
    apinet: "core.apinet.ironcore.dev",
    provider_id: "ironcore-net://",
    field_manager: FieldManager::new("ironcore.dev/apinetlet"),
    rule_field_manager: FieldManager::new("networkpolicies.networking.ironcore.dev"),
    finalizers: "apinet.ironcore.dev",
    origin: "apinetlet.ironcore.dev",
    zone: "topology.core.apinet.ironcore.dev/zone",
    watch_filter: "common.ironcore.dev/watch-filter",
    managed_by: "common.ironcore.dev/managed-by",
    lease: "fa89daf5.apinetlet.apinet.ironcore.dev",
};

impl Flavor {
    /// Its names.
    #[must_use]
    pub const fn names(self) -> &'static Names {
        match self {
            Flavor::Onmetal => &ONMETAL,
            Flavor::Ironcore => &IRONCORE,
        }
    }

    /// The label with the ID of the source cluster on all apinet objects of this program. Upstream has no such label.
    #[must_use]
    pub fn source_cluster_label(self) -> String {
        format!("{}/source-cluster", self.names().origin)
    }

    /// The annotation of a claimed apinet NetworkInterface with the keys of the labels that were copied from the source object.
    #[must_use]
    pub fn copied_labels_annotation(self) -> String {
        format!("{}/copied-labels", self.names().origin)
    }

    /// The finalizer on source objects of a kind.
    #[must_use]
    pub fn finalizer(self, kind: Kind) -> String {
        format!("{}/{}", self.names().finalizers, kind.lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_are_those_of_the_go_programs() {
        assert_eq!(Flavor::Onmetal.finalizer(Kind::VirtualIp), "apinet.api.onmetal.de/virtualip");
        assert_eq!(
            Flavor::Ironcore.finalizer(Kind::NetworkInterface),
            "apinet.ironcore.dev/networkinterface"
        );
    }
}
