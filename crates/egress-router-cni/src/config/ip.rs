//! `ip`: addresses, gateways and destinations of one pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::destinations::Destinations;

/// A validated `ip`, as it is written there, in `podIP`, in a ConfigMap or in `overrides`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ip {
    /// In their order; the first of each family is the source address of what is forwarded. `/32` and `/128` where no
    /// prefix length was written. Empty only in `overrides`.
    pub addresses: Vec<IpNet>,
    /// `gateway`.
    pub gateways: Gateways,
    /// `destinations` and `fallbackIP`.
    pub destinations: Destinations,
}

/// At most one gateway a family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gateways {
    /// IPv4.
    pub v4: Option<Ipv4Addr>,
    /// IPv6; may be link-local.
    pub v6: Option<Ipv6Addr>,
}

impl Gateways {
    /// That of `address`' family.
    #[must_use]
    pub fn of(&self, address: &IpAddr) -> Option<IpAddr> {
        if address.is_ipv4() { self.v4.map(IpAddr::V4) } else { self.v6.map(IpAddr::V6) }
    }
}
