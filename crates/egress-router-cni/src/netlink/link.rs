//! Links (RTM_NEWLINK and its kin; linux/if_link.h).

use crate::config::interface::Kind;

/// A link that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// In its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `macvlan`, `veth`, …; empty for hardware and loopback.
    pub kind: String,
    /// The mode of a macvlan or ipvlan.
    pub mode: Option<Kind>,
    /// Hardware address, where it has one of six bytes.
    pub mac: Option<[u8; 6]>,
    /// Bytes.
    pub mtu: u32,
    /// IFF_UP.
    pub up: bool,
    /// IFF_LOOPBACK.
    pub loopback: bool,
    /// IFLA_LINK: its master (or peer), an index in the namespace where that one is.
    pub parent: Option<u32>,
}

/// A link to be made, by a socket of the host, in the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLink {
    /// Its name in the pod.
    pub name: String,
    /// Index of the master on the host.
    pub master: u32,
    /// What it is.
    pub kind: Kind,
    /// Bytes; none: the master's.
    pub mtu: Option<u32>,
    /// Hardware address; none: the kernel's choice (macvlan), the master's (ipvlan).
    pub mac: Option<[u8; 6]>,
}
