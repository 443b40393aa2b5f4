//! Results: what ADD answers, and what a chained call is given (`prevResult`).

use std::net::IpAddr;

use ipnet::IpNet;

/// An ADD result in the words of 1.1.0; older versions leave out or add what their specification says.
/// What other plugins put into a `prevResult` and this one does not know is kept in `rest` and answered unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Result {
    /// `interfaces`.
    pub interfaces: Vec<Interface>,
    /// `ips`.
    pub ips: Vec<Ip>,
    /// `routes`.
    pub routes: Vec<Route>,
    /// `dns`, as it came.
    pub dns: Option<serde_json::Value>,
}

/// One of `interfaces`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// `aa:bb:cc:dd:ee:ff`.
    pub mac: Option<String>,
    /// Path of the namespace it is in; none: the host's.
    pub sandbox: Option<String>,
    /// From 1.1.0 on.
    pub mtu: Option<u32>,
    /// Other keys of a `prevResult`, answered as they came.
    pub rest: serde_json::Map<String, serde_json::Value>,
}

/// One of `ips`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ip {
    /// With its prefix length.
    pub address: IpNet,
    /// The default gateway for its subnet.
    pub gateway: Option<IpAddr>,
    /// Index into `interfaces`.
    pub interface: Option<usize>,
}

/// One of `routes`.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// `dst`.
    pub destination: IpNet,
    /// `gw`.
    pub gateway: Option<IpAddr>,
    /// Other keys of a `prevResult` (1.1.0: mtu, advmss, priority, table, scope), answered as they came to those who know them.
    pub rest: serde_json::Map<String, serde_json::Value>,
}
