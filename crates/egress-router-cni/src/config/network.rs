//! The network configuration on standard input.

use ipnet::IpNet;

use super::interface::InterfaceType;
use super::ip::Ip;
use super::ip_config::IpConfig;
use super::pod_ip::PodIp;
use crate::cni;

/// A parsed and validated configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// `cniVersion`.
    pub version: cni::Version,
    /// `name`.
    pub name: String,
    /// `interfaceType`; none: the platform's default.
    pub interface_type: Option<InterfaceType>,
    /// `interfaceArgs.mode`, as it was written: its type may not be known yet.
    pub mode: Option<String>,
    /// `interfaceArgs.master`.
    pub master: Option<String>,
    /// `interfaceArgs.mtu`, bytes.
    pub mtu: Option<u32>,
    /// `interfaceArgs.name`: what the interface is called where this plugin is chained behind the one that made `CNI_IFNAME`.
    pub chained_name: Option<String>,
    /// Exactly one of `ip`, `podIP`, `ipConfig`.
    pub source: Source,
    /// `clusterNetworks` and `serviceNetworks`: reached by the pod's own network, besides those of the settings.
    pub cluster_networks: Vec<IpNet>,
    /// `runtimeConfig.mac`, else `MAC` of `CNI_ARGS`.
    pub mac: Option<[u8; 6]>,
    /// `runtimeConfig.ips`, else `IP` of `CNI_ARGS`.
    pub requested: Vec<IpNet>,
    /// `prevResult`.
    pub previous: Option<cni::result::Result>,
    /// `cni.dev/valid-attachments`, or the older `cni.dev/attachments`; none: not given.
    pub valid_attachments: Option<Vec<Attachment>>,
    /// `dns`, answered as it came.
    pub dns: Option<serde_json::Value>,
    /// `log_file`.
    pub log_file: Option<std::path::PathBuf>,
    /// `log_level`, as it was written.
    pub log_level: Option<String>,
}

/// Where the addresses come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `ip`.
    Ip(Ip),
    /// `podIP`.
    PodIp(PodIp),
    /// `ipConfig`.
    IpConfig(IpConfig),
}

/// One attachment that a GC call names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attachment {
    /// `containerID`.
    pub container_id: String,
    /// `ifname`.
    pub ifname: String,
}
