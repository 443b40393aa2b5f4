//! Where Kubernetes itself shows the VIP of a Service: kube-proxy on all nodes reads it there.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use crate::api::Vip;

/// `status.loadBalancer.ingress[].ipMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum IpMode {
    /// kube-proxy leaves packets to the VIP alone: they go to the gateway.
    #[value(name = "Proxy")]
    Proxy,
    /// kube-proxy DNATs packets to the VIP on every node.
    #[value(name = "VIP")]
    #[serde(rename = "VIP")]
    Vip,
}

/// As in JSON.
impl fmt::Display for IpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The field of a Service that shows its VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// None: nothing is read or written.
    None,
    /// `status.loadBalancer.ingress`, of a Service of type LoadBalancer with our class.
    Status(IpMode),
    /// `spec.externalIPs`.
    ExternalIps,
}

/// One address of that field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The address.
    pub ip: IpAddr,
    /// `ipMode`, where the field has it.
    pub ip_mode: Option<String>,
}

impl Publication {
    /// Whether the field has the address, in any mode.
    #[must_use]
    pub fn has(self, vip: Vip, listed: &[Listed]) -> bool {
        self != Publication::None && listed.iter().any(|one| one.ip == vip.address())
    }

    /// Whether the field shows the VIP as desired.
    #[must_use]
    pub fn shows(self, vip: Vip, listed: &[Listed]) -> bool {
        let mut ours = listed.iter().filter(|one| one.ip == vip.address());
        match self {
            Publication::None => true,
            Publication::ExternalIps => ours.next().is_some(),
            Publication::Status(mode) => {
                ours.any(|one| one.ip_mode.as_deref() == Some(mode.to_string().as_str()))
            }
        }
    }
}
