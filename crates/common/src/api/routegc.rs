//! `RouteGC`: one router whose routes to dead next hops are reported, or removed.

// Each printer column has a name, a type and a path of its own; clippy takes them for one attribute said twice.
#![allow(clippy::duplicated_attributes)]

mod status;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::status::{Candidate, Contested, Counts, Quota, Removed, RouteGCStatus, RouteText};
use super::{IdentityRef, Period, SecretKeyRef};

/// The annotation that lets one exact list of routes through the safety threshold: its value is `status.removalHash`.
pub const ALLOW_ANNOTATION: &str = "routegc.perimeter.dev/allow-removal";

/// One router, the pod networks whose routes routegc may judge, and how careful it is. In mode Audit, the default, nothing is
/// ever changed in OpenStack: the status says what Enforce would remove.
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
        description = "Whether the last pass could decide and do what it should."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        description = "What the last pass came to."
    ),
    printcolumn(
        name = "Routes",
        type_ = "integer",
        json_path = ".status.quota.routes",
        description = "Routes of the router, of whatever kind."
    ),
    printcolumn(
        name = "Orphans",
        type_ = "integer",
        json_path = ".status.counts.orphan",
        description = "Routes in the pod networks whose next hop is gone."
    ),
    printcolumn(
        name = "Limit",
        type_ = "integer",
        json_path = ".status.quota.limit",
        description = "How many routes the cloud allows, where it says so.",
        priority = 1
    ),
    printcolumn(
        name = "Router",
        type_ = "string",
        json_path = ".spec.routerID",
        description = "Which router.",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        description = "The same for a person.",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Since when this object is there."
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RouteGCSpec {
    /// The login to OpenStack: the project that owns the router.
    pub identity_ref: IdentityRef,
    /// ID of the router, as `openstack router list` shows it. It cannot be changed: another router is another RouteGC.
    #[serde(rename = "routerID")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[0-9A-Za-z-]+$"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a RouteGC belongs to one router: create another RouteGC"))]
    pub router_id: String,
    /// The cluster's pod networks, of either family: only routes whose destination lies wholly inside one of them are judged,
    /// all others are left alone. The same networks that the controller manager has as `--cluster-cidr`.
    #[serde(rename = "podCIDRs")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 64)))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("self.all(net, isCIDR(net))").message("each must be a network such as 10.244.0.0/16 or fd00:10::/56"),
        validation = Rule::new("self.all(net, !isCIDR(net) || cidr(net) == cidr(net).masked())").message("each must be written with its first address: 10.244.0.0/16, not 10.244.1.0/16"),
        validation = Rule::new("self.all(net, !isCIDR(net) || cidr(net).prefixLength() > 0)").message("a pod network cannot be the whole internet")
    )]
    pub pod_cidrs: Vec<String>,
    /// Length of the prefix that each node gets out of a pod network (`--node-cidr-mask-size`). Where it is given, routes of
    /// another length are left alone: a summary route is nobody's pod network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_prefix_length: Option<NodePrefixLength>,
    /// How long between two passes, give or take a tenth. At least 10s; 5m is what the cloud's operators expect.
    #[serde(default = "five_minutes")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('10s')").message("at least 10s"))]
    pub interval: Period,
    /// Audit reports what would be removed and changes nothing. Enforce removes it.
    #[serde(default)]
    pub mode: Mode,
    /// What must hold before a route is removed.
    #[serde(default)]
    pub safety: Safety,
    /// Where the cluster's Nodes are read from, as one more witness: an address of a Node is alive, and of several routes to
    /// one pod network the Node's own is the right one. Without it only OpenStack is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_from: Option<NodesFrom>,
}

/// Whether routes are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Reports what would be removed, and changes nothing.
    #[default]
    Audit,
    /// Removes it.
    Enforce,
}

/// The length of a node's own prefix in each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePrefixLength {
    /// For IPv4; 24 is what Kubernetes gives each node by itself. Where it is absent, every length is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub ipv4: Option<u8>,
    /// For IPv6; 64 is what Kubernetes gives each node by itself. Where it is absent, every length is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub ipv6: Option<u8>,
}

/// What must hold before a route is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Safety {
    /// In how many passes in a row a route must have been found dead. They are counted in the status: a restart forgets none.
    #[schemars(range(min = 1, max = 100))]
    pub confirmations: u32,
    /// How long ago it must first have been found dead.
    pub min_age: Period,
    /// If one pass wanted to remove more routes than this, it removes none, and says so. A person may let that one list
    /// through: annotation `routegc.perimeter.dev/allow-removal` with the value of `status.removalHash`.
    #[schemars(range(min = 1, max = 10000))]
    pub max_removals: u32,
    /// The same for a share, in percent, of the routes that are judged at all; two routes may always go.
    #[schemars(range(min = 1, max = 100))]
    pub max_percent: u8,
    /// On a cloud that has neither `extraroute-atomic` nor `revision-if-match` (older than 2019), a route can only be removed by
    /// writing the whole list again, and a route that somebody adds in that instant is lost. true accepts that.
    pub allow_unsafe_update: bool,
    /// A port without port security may use any address of its network, such as a virtual one of keepalived, and Neutron does not
    /// see it: while the network has one, no next hop is taken for dead only because no port has it. true says that these ports
    /// have no addresses but those that Neutron knows.
    pub ignore_open_ports: bool,
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
        }
    }
}

/// Where Nodes are read from: exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretRef) != (has(self.inCluster) && self.inCluster)").message("exactly one of secretRef and inCluster: true"))]
pub struct NodesFrom {
    /// A Secret with the kubeconfig of the cluster whose routes these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyRef>,
    /// The cluster that routegc itself runs in, or was pointed to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
}

/// What the original had; a router's route is a slow operation for the cloud, and nothing is lost by waiting.
fn five_minutes() -> Period {
    Period::minutes(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_a_user_writes_is_careful() {
        let spec: RouteGCSpec = serde_json::from_str(
            r#"{"identityRef": {"name": "cloud-config"}, "routerID": "r", "podCIDRs": ["10.244.0.0/16"]}"#,
        )
        .unwrap();
        assert_eq!((spec.mode, spec.interval), (Mode::Audit, Period::minutes(5)));
        assert_eq!(spec.safety, Safety::default());
        assert!(!spec.safety.allow_unsafe_update && spec.nodes_from.is_none());
    }
}
