//! The node's settings: a file that only its administrator writes, where a network configuration may come from a tenant.

use std::path::PathBuf;

use ipnet::IpNet;

/// The file, unless `EGRESS_ROUTER_SETTINGS` names another. It need not be there.
pub const PATH: &str = "/etc/cni/net.d/egress-router.d/settings.json";

/// Validated settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `kubeconfig`: with whose rights ConfigMaps are read.
    pub kubeconfig: PathBuf,
    /// `configMapNamespaces`: namespaces other than the pod's that `ipConfig` may name; `*`: all.
    pub config_map_namespaces: Vec<String>,
    /// `allowRequestedIPs`: whether a pod may ask for its address (`runtimeConfig.ips`).
    pub allow_requested_ips: bool,
    /// `clusterNetworks` and `serviceNetworks`: reached by the pod's own network.
    pub cluster_networks: Vec<IpNet>,
    /// `platform`: `auto` (default), `aws` or `none`.
    pub platform: Platform,
    /// `stateDirectory`, for what has to outlive a reboot (Elastic IPs).
    pub state_directory: PathBuf,
    /// `runDirectory`, for what a reboot ends.
    pub run_directory: PathBuf,
    /// `aws.*`.
    pub aws: Aws,
}

/// Where the node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// Asked of the firmware, then of the metadata service.
    #[default]
    Auto,
    /// An EC2 instance.
    Aws,
    /// Anything else.
    None,
}

/// `aws`: endpoints and limits. Only here, never in a network configuration: requests to them carry credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Aws {
    /// `ec2Endpoint`, else `AWS_ENDPOINT_URL_EC2`, else `AWS_ENDPOINT_URL`, else the region's.
    pub ec2_endpoint: Option<String>,
    /// `metadataEndpoint`, else `AWS_EC2_METADATA_SERVICE_ENDPOINT`, else `http://169.254.169.254`.
    pub metadata_endpoint: Option<String>,
    /// `allowReassociation`: whether an address is taken from where it is associated. Default true: the pod has moved.
    pub allow_reassociation: Option<bool>,
}
