//! Routes (RTM_NEWROUTE and its kin; linux/rtnetlink.h).

use std::net::IpAddr;

use ipnet::IpNet;

/// Through which link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// One that is there: its index.
    Index(u32),
    /// The one that this plan makes: [`crate::apply`] knows its index once it is there.
    New,
}

/// A unicast route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// 254 is main.
    pub table: u32,
    /// `0.0.0.0/0` and `::/0` are the defaults.
    pub destination: IpNet,
    /// RTA_GATEWAY; or RTA_VIA, where the families differ.
    pub gateway: Option<IpAddr>,
    /// RTA_OIF.
    pub device: Option<Device>,
    /// RTA_PREFSRC.
    pub source: Option<IpAddr>,
    /// RTA_PRIORITY: the metric. The kernel makes 1024 of IPv6's 0.
    pub metric: Option<u32>,
    /// RTPROT_*.
    pub protocol: u8,
    /// RT_SCOPE_*.
    pub scope: u8,
    /// RTN_*: 1 is unicast.
    pub kind: u8,
    /// rtm_tos.
    pub tos: u8,
    /// RTNH_F_ONLINK and RTNH_F_PERVASIVE; others tell a state.
    pub flags: u32,
    /// All other attributes that make the route what it is (metrics, multipath, encapsulation, preference, nexthop ID …), as
    /// they came: type and payload. Written back as they are.
    pub rest: Vec<(u16, Vec<u8>)>,
}
