//! Bodies of HTTP requests and responses of the controller and of the keeper's status server. Unknown fields are refused.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::address::{Epoch, TunId, TunMac, Vip};
use super::stores::Owner;

/// Body of `POST /vip`: a namespace binding, a Service binding, or a notification only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VipRequest {
    /// The VIP.
    pub vip: Vip,
    /// Bind to this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Bind to this Service of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Bind nothing; read the current MASTER and write it to the Services that carry the VIP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub notify_only: bool,
}

/// Body of `POST /master_notify`, from a keeper. Fields that the seed does not have are optional.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MasterNotify {
    /// VIPs of the virtual router whose gateway changed.
    pub vips: Vec<Vip>,
    /// Main address of the node that is MASTER.
    pub node_ip: IpAddr,
    /// MAC address of its tunnel interface.
    pub tun_mac: TunMac,
    /// Virtual router ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrid: Option<u8>,
    /// Name of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When it became MASTER, in seconds since 1970. None: the status servers decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
}

/// State of a VRRP instance (RFC 9568), as keepalived reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum VrrpState {
    /// keepalived has not reported a state, or was stopped.
    Init,
    /// It does not carry the VIPs.
    Backup,
    /// It carries the VIPs.
    Master,
    /// A tracked script or interface failed.
    Fault,
}

/// As in JSON.
impl fmt::Display for VrrpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Response of the keeper's `GET /status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeeperStatus {
    /// State of the VRRP instance.
    pub state: VrrpState,
    /// When it entered the state, in seconds since 1970.
    pub since: f64,
    /// Virtual router ID.
    pub vrid: u8,
    /// VIPs on the node's interface now.
    pub vips: Vec<Vip>,
    /// Main address of the node.
    pub node_ip: IpAddr,
    /// MAC address of the tunnel interface. None: the interface does not exist.
    pub tun_mac: Option<TunMac>,
}

/// Response of the keeper's `GET /`, as the seed has it: both fields if MASTER, else `{}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterStatus {
    /// Main address of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ip: Option<IpAddr>,
    /// MAC address of the tunnel interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tun_mac: Option<TunMac>,
}

/// Response of `GET /vip/{vip}`, and an item of `GET /vips`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VipView {
    /// The VIP.
    pub vip: Vip,
    /// The object that the VIP is bound to; absent where it is not bound.
    #[serde(flatten)]
    pub owner: Option<Owner>,
    /// The binding's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tun_id: Option<TunId>,
    /// Services that carry the VIP, as `namespace/name`.
    #[serde(default)]
    pub services: Vec<String>,
    /// The gateway, as the Services have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ip: Option<IpAddr>,
    /// MAC address of its tunnel interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tun_mac: Option<TunMac>,
    /// When it became MASTER, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

/// Body of each response that is not a view: success and failure alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// One sentence for a person.
    pub message: String,
    /// Services that were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updated: Vec<String>,
    /// Services whose write failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}
