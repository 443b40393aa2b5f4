//! The plan: pure data, decided from the configuration and the observed state, without IO.
//!
//! [`add`](add::add) creates a pod's attachment from a [`Desired`], [`del`](del::del) removes one by its [`undo`] data, and
//! [`check`](check::check) finds differences. [`routing`] has what both do to routes. [`master`] and [`gateway`] infer missing values.

pub mod add;
pub mod check;
pub mod del;
pub mod gateway;
pub mod master;
pub mod primary;
pub mod route;
pub mod routing;
pub mod slot;
pub mod sysctl;
pub mod undo;

#[cfg(test)]
pub(crate) mod simulated;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use common::netlink::link::NewLink;
use common::netlink::route::Route;
use common::netlink::rule::Rule;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::destinations::Destinations;
use crate::config::interface::{self, IpvlanMode, Kind};
use crate::config::ip::Gateways;
use crate::firewall::Firewall;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    #[must_use]
    pub fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The family of a network.
    #[must_use]
    pub fn of_net(net: &IpNet) -> Self {
        Self::of(&net.addr())
    }

    /// The destination of its default route.
    #[must_use]
    pub fn default_net(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
            Self::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
        }
    }

    /// Whether it is IPv6.
    #[must_use]
    pub fn is_v6(self) -> bool {
        self == Self::V6
    }
}

/// The desired state of an attachment, completely resolved. Its record has it for CHECK, except what only ADD needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// The interface's name in the pod.
    #[serde(skip)]
    pub interface: String,
    /// The interface's kind.
    #[serde(rename = "mode", with = "interface::by_mode")]
    pub kind: Kind,
    /// Index of the master on the host.
    pub master: u32,
    /// The master's addresses. The pod reaches them through its primary interface, because a macvlan cannot reach its master.
    #[serde(skip)]
    pub node_addresses: Vec<IpAddr>,
    /// Bytes; none: the master's.
    pub mtu: Option<u32>,
    /// Hardware address; none: the kernel's choice.
    pub mac: Option<[u8; 6]>,
    /// At least one.
    pub addresses: Vec<IpNet>,
    /// One for each family that has addresses, unless [`needs_gateway`] is false.
    pub gateways: Gateways,
    /// The allow-list and the redirects.
    pub destinations: Destinations,
    /// Networks that are reached through the primary interface.
    #[serde(skip)]
    pub cluster_networks: Vec<IpNet>,
    /// The primary interface of `prevResult`.
    #[serde(skip)]
    pub previous: Option<Previous>,
}

/// The interface of the previous plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Previous {
    /// Its name in the pod.
    pub interface: String,
    /// The gateways of its addresses.
    pub gateways: Vec<IpAddr>,
}

impl Desired {
    /// Families that have addresses.
    pub fn families(&self) -> impl Iterator<Item = Family> + '_ {
        Family::ALL.into_iter().filter(|family| self.source(*family).is_some())
    }

    /// The first address of a family: the source address of the pod's packets and of redirected traffic.
    #[must_use]
    pub fn source(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().map(IpNet::addr).find(|address| Family::of(address) == family)
    }
}

/// Whether an interface of this kind resolves neighbours, so that its default route needs a gateway. An ipvlan on layer 3 uses its
/// master's routes.
#[must_use]
pub fn needs_gateway(kind: Kind) -> bool {
    !matches!(kind, Kind::Ipvlan(IpvlanMode::L3 | IpvlanMode::L3s))
}

/// The plan of ADD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The steps in order.
    pub steps: Vec<Step>,
    /// The undo data, to be recorded before the first step.
    pub undo: undo::Undo,
    /// Cluster, service and node routes through the primary interface for this attachment, for the result.
    pub primary_routes: Vec<Route>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}

/// One write. Each step has what its rollback needs, so that a rollback reads nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// In the pod: the attachment's nf_tables table, in one batch. Rolled back by deleting the table. It is the first
    /// step, so that the new link never exists without it.
    Firewall(Firewall),
    /// In the pod: `net.ipv4.conf.eth0.rp_filter` is set to `value`. Rolled back by writing `before`; none for the new link,
    /// whose sysctls are deleted with it.
    Sysctl {
        /// The parts of its name, joined by dots; the link's name may contain dots.
        name: Vec<String>,
        /// The new value.
        value: String,
        /// The previous value.
        before: Option<String>,
    },
    /// From the host: creates a link in the pod. Rolled back by deleting it, with its addresses and routes.
    CreateLink(NewLink),
    /// In the pod, after the link is created and before it is up: the table of family netdev that applies the allow-list to frames of packet
    /// sockets. Skipped on a kernel without the egress hook. Rolled back by deleting it.
    FrameFilter(Firewall),
    /// In the pod, on the new link: an address, without duplicate address detection.
    AddAddress(ipnet::IpNet),
    /// In the pod: sets the new link up.
    SetUp,
    /// In the pod. Rolled back by deleting it.
    AddRoute(Route),
    /// In the pod, behind those with the same destination, TOS and metric. Rolled back by deleting it.
    AppendRoute(Route),
    /// In the pod: replaces `before` by `after`, which has the same destination, TOS and metric, in one request. Rolled back by the reverse
    /// request.
    ReplaceRoute {
        /// The existing route.
        before: Route,
        /// The new route.
        after: Route,
    },
    /// In the pod. Rolled back by adding it again. A missing one is not an error.
    DeleteRoute(Route),
    /// In the pod. Rolled back by deleting it.
    AddRule(Rule),
    /// In the pod. Rolled back by adding it again. A missing one is not an error.
    DeleteRule(Rule),
    /// In the pod: sets the attachment's link down, with its routes. `run_all` of the apply stage does it if the link cannot be deleted. Cannot
    /// be rolled back. A missing link is not an error.
    SetDown {
        /// Its index.
        index: u32,
        /// Its name, for messages.
        name: String,
    },
    /// In the pod: deletes the attachment's link, with its addresses and routes. Cannot be rolled back. A missing link is not an error.
    DeleteLink {
        /// Its index.
        index: u32,
        /// Its name, for messages.
        name: String,
    },
    /// In the pod: the nf_tables tables of an attachment, the last step of DEL: `run_all` of the apply stage skips it where an earlier
    /// step failed. Cannot be rolled back. A missing table is not an error.
    DeleteFirewall {
        /// The attachment's interface.
        interface: String,
        /// Whether there is one of family netdev.
        frames: bool,
    },
}
