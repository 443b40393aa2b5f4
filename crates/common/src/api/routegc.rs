//! `RouteGC`: one router whose orphaned routes are reported or removed.

// Each printer column has a name, a type and a path of its own; clippy takes them for one attribute said twice.
#![allow(clippy::duplicated_attributes)]

mod status;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::status::{Candidate, Counts, Quota, Recreated, Removed, Route, RouteGCStatus};
use super::{IdentityRef, Period, SecretKeyRef};

/// The annotation that lets one exact list of routes through the safety threshold: its value is `status.removalHash`.
pub const ALLOW_ANNOTATION: &str = "routegc.perimeter.dev/allow-removal";

/// One router, the pod networks whose routes routegc may remove, and the safety limits. In mode Audit, the default, routegc
/// changes nothing in OpenStack: the status shows what Enforce would remove.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "routegc.perimeter.dev",
    version = "v1alpha1",
    kind = "RouteGC",
    plural = "routegcs",
    shortname = "rgc",
    category = "perimeter",
    namespaced,
    status = "RouteGCStatus",
    derive = "PartialEq",
    doc = "RouteGC finds, and in mode Enforce removes, the static routes of one OpenStack router whose next hop no longer exists.",
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.mode",
        description = "Audit reports, Enforce removes."
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        description = "Whether the last reconciliation succeeded."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        description = "Result of the last reconciliation."
    ),
    printcolumn(
        name = "Routes",
        type_ = "integer",
        json_path = ".status.quota.routes",
        description = "All routes of the router."
    ),
    printcolumn(
        name = "Orphans",
        type_ = "integer",
        json_path = ".status.counts.orphan",
        description = "Routes in the pod networks whose next hop no longer exists."
    ),
    printcolumn(
        name = "Limit",
        type_ = "integer",
        json_path = ".status.quota.limit",
        description = "How many routes the cloud allows, where it reports this.",
        priority = 1
    ),
    printcolumn(
        name = "Router",
        type_ = "string",
        json_path = ".status.routerID",
        description = "ID of the router.",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        description = "Details of the reason.",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Age of this object."
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.routerID), has(self.routerName), has(self.openStackClusterRef)].exists_one(given, given)").message("set exactly one of routerID, routerName and openStackClusterRef"))]
#[x_kube(validation = Rule::new("has(self.routerID) == has(oldSelf.routerID) && (!has(self.routerID) || self.routerID == oldSelf.routerID) && has(self.routerName) == has(oldSelf.routerName) && (!has(self.routerName) || self.routerName == oldSelf.routerName) && has(self.openStackClusterRef) == has(oldSelf.openStackClusterRef) && (!has(self.openStackClusterRef) || self.openStackClusterRef.name == oldSelf.openStackClusterRef.name)").message("routerID, routerName and openStackClusterRef are immutable: create another RouteGC"))]
pub struct RouteGCSpec {
    /// The login to OpenStack: the project that owns the router. Its type is Secret.
    #[x_kube(validation = Rule::new("!has(self.type) || self.type == 'Secret'").message("RouteGC reads Secrets only: name a Secret of its namespace"))]
    pub identity_ref: IdentityRef,
    /// ID of the router, as `openstack router list` shows it. Exactly one of routerID, routerName and openStackClusterRef is set. They
    /// are immutable: create another RouteGC for another router.
    #[serde(rename = "routerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[0-9A-Za-z-]+$"))]
    pub router_id: Option<String>,
    /// Name of the router, instead of its ID. It must be the only router of this name in the project of the login. The ID that is
    /// found first is kept in `status.routerID`: if the name leads to another router later, routegc reports it and removes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub router_name: Option<String>,
    /// The router of an OpenStackCluster of Cluster API, instead of its ID: its `status.router.id`. The ID that is found first is
    /// kept in `status.routerID`, as with routerName.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_stack_cluster_ref: Option<OpenStackClusterRef>,
    /// The cluster's pod networks, IPv4 or IPv6, as in the controller manager's `--cluster-cidr`. Routes whose destination does
    /// not lie completely inside one of them are foreign and never removed.
    #[serde(rename = "podCIDRs")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 64)))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("self.all(net, isCIDR(net))").message("each must be a network such as 10.244.0.0/16 or fd00:10::/56"),
        validation = Rule::new("self.all(net, !isCIDR(net) || cidr(net) == cidr(net).masked())").message("each must be written with its first address: 10.244.0.0/16, not 10.244.1.0/16"),
        validation = Rule::new("self.all(net, !isCIDR(net) || cidr(net).prefixLength() > 0)").message("a pod network cannot have prefix length 0")
    )]
    pub pod_cidrs: Vec<String>,
    /// Prefix length of each node's part of a pod network (`--node-cidr-mask-size`). If set, routes with another prefix length,
    /// such as summary routes, are foreign and never removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_prefix_length: Option<NodePrefixLength>,
    /// Time between two reconciliations, plus or minus a tenth. At least 10s. The default of 5m keeps the load on the cloud low.
    #[serde(default = "five_minutes")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('10s')").message("at least 10s"))]
    pub interval: Period,
    /// Audit reports orphaned routes and changes nothing. Enforce removes them.
    #[serde(default)]
    pub mode: Mode,
    /// Limits that a removal must respect.
    #[serde(default)]
    pub safety: Safety,
    /// Source of the cluster's Nodes, in addition to OpenStack: an address of a Node is never an orphaned next hop, and
    /// of several routes to one pod network the Node's own is the right one. If not set, OpenStack is the only source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_from: Option<NodesFrom>,
}

/// An OpenStackCluster of Cluster API Provider OpenStack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenStackClusterRef {
    /// Name of the OpenStackCluster, in the namespace of this object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Whether routes are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Reports orphaned routes and changes nothing.
    #[default]
    Audit,
    /// Removes orphaned routes.
    Enforce,
}

/// Prefix length of a node's pod network in each address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePrefixLength {
    /// For IPv4; 24 is the default of Kubernetes. If not set, every prefix length is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub ipv4: Option<u8>,
    /// For IPv6; 64 is the default of Kubernetes. If not set, every prefix length is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub ipv6: Option<u8>,
}

/// Limits that a removal must respect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Safety {
    /// How many consecutive reconciliations must find a route orphaned before it is removed. The count is in the status and
    /// survives a restart.
    #[schemars(range(min = 1, max = 100))]
    pub confirmations: u32,
    /// How long a route must have been orphaned before it is removed.
    pub min_age: Period,
    /// If one reconciliation would remove more routes than this, it removes none and reports it. You can allow this exact list:
    /// set the annotation `routegc.perimeter.dev/allow-removal` to the value of `status.removalHash`.
    #[schemars(range(min = 1, max = 10000))]
    pub max_removals: u32,
    /// The same limit as a percentage of the routes in the pod networks. Two routes may always be removed.
    #[schemars(range(min = 1, max = 100))]
    pub max_percent: u8,
    /// A Neutron with neither `extraroute-atomic` nor `revision-if-match` (older than 2019) can only replace the whole list of
    /// routes: a route that another client adds between read and write is lost. true accepts this.
    pub allow_unsafe_update: bool,
    /// A port without port security can use any address of its network, for example a virtual address of keepalived, and Neutron
    /// does not know it. If the network has such a port, a next hop without a port is not orphaned but unknown. true declares
    /// that these ports use only the addresses that Neutron knows.
    pub ignore_open_ports: bool,
    /// A machine outside of OpenStack, such as a bare-metal Node on a provider network, has an address and no port. Without
    /// `nodesFrom`, a next hop without a port is therefore unknown and not orphaned. true declares that every next hop in the pod
    /// networks is an address of a port.
    pub all_next_hops_are_ports: bool,
}

impl Default for Safety {
    fn default() -> Self {
        Safety {
            confirmations: 2,
            min_age: Period::minutes(5),
            max_removals: 10,
            max_percent: 50,
            allow_unsafe_update: false,
            ignore_open_ports: false,
            all_next_hops_are_ports: false,
        }
    }
}

/// Source of the cluster's Nodes. Set exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretRef) != (has(self.inCluster) && self.inCluster)").message("exactly one of secretRef and inCluster: true"))]
pub struct NodesFrom {
    /// A Secret with the kubeconfig of the cluster whose routes these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyRef>,
    /// The cluster that routegc itself runs in, or that its kubeconfig names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
}

/// The default of the original. A change of a router is slow in the cloud, and an orphaned route does no harm for five minutes.
fn five_minutes() -> Period {
    Period::minutes(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_spec_has_safe_defaults() {
        let spec: RouteGCSpec = serde_json::from_str(
            r#"{"identityRef": {"name": "cloud-config"}, "routerID": "r", "podCIDRs": ["10.244.0.0/16"]}"#,
        )
        .unwrap();
        assert_eq!((spec.mode, spec.interval), (Mode::Audit, Period::minutes(5)));
        assert_eq!(spec.safety, Safety::default());
        assert!(!spec.safety.allow_unsafe_update && spec.nodes_from.is_none());
        assert_eq!(
            (spec.router_id.as_deref(), spec.router_name, spec.open_stack_cluster_ref),
            (Some("r"), None, None)
        );
    }
}
