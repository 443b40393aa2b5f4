//! Routes to add.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Device, EXPIRES, ONLINK, Route};
use crate::netlink::message::{Message, NESTED};

/// The types of routes without a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// RTN_BLACKHOLE: packets are dropped.
    Blackhole = 6,
    /// RTN_THROW: the lookup continues with the next rule.
    Throw = 9,
}

/// RTA_METRICS.
const METRICS: u16 = 8;
/// RT_SCOPE_LINK.
const LINK_SCOPE: u8 = 253;
/// RTN_UNICAST.
const UNICAST: u8 = 1;

impl Route {
    /// A unicast route of `protocol` (RTPROT_*). For IPv4 without a gateway its scope is link, as the kernel requires.
    #[must_use]
    pub fn unicast(
        protocol: u8,
        table: u32,
        destination: IpNet,
        gateway: Option<IpAddr>,
        device: Device,
    ) -> Self {
        let direct = gateway.is_none() && destination.addr().is_ipv4();
        Self {
            table,
            destination: destination.trunc(),
            gateway,
            device: Some(device),
            source: None,
            metric: None,
            protocol,
            scope: if direct { LINK_SCOPE } else { 0 },
            kind: UNICAST,
            tos: 0,
            flags: 0,
            rest: Vec::new(),
        }
    }

    /// A route of `protocol` (RTPROT_*) that ends the lookup of its packets without a device.
    #[must_use]
    pub fn special(protocol: u8, table: u32, destination: IpNet, special: Special) -> Self {
        Self {
            device: None,
            scope: 0,
            kind: special as u8,
            ..Self::unicast(protocol, table, destination, None, Device::Index(0))
        }
    }

    /// RTNH_F_ONLINK: the gateway is reachable on the device, even if no route leads to it.
    #[must_use]
    pub fn onlink(mut self) -> Self {
        self.flags |= ONLINK;
        self
    }

    /// Sets the MTU, locked against path MTU discovery, and the largest MSS of TCP that is advertised (RTAX_ADVMSS).
    #[must_use]
    pub fn metrics(mut self, locked_mtu: Option<u32>, advmss: Option<u32>) -> Self {
        /// RTAX_LOCK with the bit of RTAX_MTU, RTAX_MTU, RTAX_ADVMSS: in the kernel's order.
        const LOCK: u16 = 1;
        const MTU: u16 = 2;
        const ADVMSS: u16 = 8;
        let mut payload = Message::new(0, 0, &[]);
        if let Some(mtu) = locked_mtu {
            payload.u32(LOCK, 1 << MTU).u32(MTU, mtu);
        }
        if let Some(advmss) = advmss {
            payload.u32(ADVMSS, advmss);
        }
        self.rest.retain(|(kind, _)| kind & !NESTED != METRICS);
        if !payload.body().is_empty() {
            self.rest.push((METRICS, payload.body().to_vec()));
        }
        self
    }

    /// The same route without an expiry.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.rest.retain(|(kind, _)| *kind != EXPIRES);
        self
    }
}
