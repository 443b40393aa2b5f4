//! `destinations`: where a pod may go (an entry with `/`), and what it hands on (`port proto ip [rport]`, or an IP alone).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// A validated list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destinations {
    /// None: anything. Some and empty: nothing.
    pub allowed: Option<Vec<IpNet>>,
    /// `port proto ip [rport]`, no two for the same port and protocol of one family.
    pub redirects: Vec<Redirect>,
    /// A bare IP, or `fallbackIP`: takes what no redirect takes.
    pub fallback_v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub fallback_v6: Option<Ipv6Addr>,
}

/// Traffic that comes to the pod on `port` goes on to `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Redirect {
    /// 1 to 65535.
    pub port: u16,
    /// tcp, udp or sctp.
    pub protocol: Protocol,
    /// Where to.
    pub to: IpAddr,
    /// Another port there; none: the same.
    pub to_port: Option<u16>,
}

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `tcp`, in either case.
    Tcp,
    /// `udp`.
    Udp,
    /// `sctp`.
    Sctp,
}

impl Protocol {
    /// IANA's protocol number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl Destinations {
    /// Whether anything is forwarded at all.
    #[must_use]
    pub fn redirect(&self) -> bool {
        !self.redirects.is_empty() || self.fallback_v4.is_some() || self.fallback_v6.is_some()
    }
}
