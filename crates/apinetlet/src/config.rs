//! The settings that the plans read.

use crate::names::Flavor;
use crate::origin::Layout;

/// The settings of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The names that both clusters use.
    pub flavor: Flavor,
    /// The namespace of all objects in the apinet cluster.
    pub namespace: String,
    /// The ID of the source cluster, which marks all objects of this program; no mark if None.
    pub source_cluster: Option<String>,
    /// Whether objects that name a source object and have no mark count as this program's: the Go programs write none.
    pub adopt_unmarked: bool,
    /// The namespace of the source objects; all if None.
    pub watched_namespace: Option<String>,
    /// Only source objects with this value of the watch-filter label; all if None.
    pub watch_filter: Option<String>,
    /// Where the name of a source object is written.
    pub layout: Layout,
    /// Instances of load balancers only on the Nodes of their targets.
    pub node_affinity: bool,
    /// The fewest addresses of a NAT gateway.
    pub min_public_ips: i32,
    /// The most addresses of a NAT gateway.
    pub max_public_ips: i32,
    /// Whether the peerings of a Network are reported in its status.
    pub peering_status: bool,
    /// Whether the status of a NetworkInterface is written. Otherwise another program writes it.
    pub interface_status: bool,
}

impl Config {
    /// The defaults of the Go programs.
    #[must_use]
    pub fn new(flavor: Flavor, namespace: &str) -> Config {
        Config {
            flavor,
            namespace: namespace.to_owned(),
            source_cluster: None,
            adopt_unmarked: false,
            watched_namespace: None,
            watch_filter: None,
            layout: match flavor {
                Flavor::Onmetal => Layout::Labels,
                Flavor::Ironcore => Layout::Annotated,
            },
            node_affinity: false,
            min_public_ips: 1,
            max_public_ips: 10,
            peering_status: true,
            interface_status: true,
        }
    }
}
