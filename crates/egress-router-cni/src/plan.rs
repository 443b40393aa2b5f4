//! The plan: pure data, decided from the configuration and the observed state, without IO.
//!
//! [`add`](add::add) makes a pod's attachment out of a [`Desired`], [`del`](del::del) undoes one by its record ([`table_record`]), and
//! [`check`](check::check) tells what is no longer as it was made. [`master`] and [`gateway`] infer what was not said.

pub mod add;
pub mod check;
pub mod del;
pub mod gateway;
pub mod master;
pub mod primary;
pub mod route;
pub mod slot;
pub mod sysctl;
pub mod table_record;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::destinations::Destinations;
use crate::config::interface::{IpvlanMode, Kind};
use crate::config::ip::Gateways;
use crate::firewall::Firewall;
use crate::netlink::link::NewLink;
use crate::netlink::route::Route;
use crate::netlink::rule::Rule;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// That of an address.
    #[must_use]
    pub fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// That of a network.
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

    /// The prefix length of a single address.
    #[must_use]
    pub fn host_prefix(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// Whose attachment: what DEL, GC and CHECK find it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`; a chained attachment's interface has another name.
    pub ifname: String,
    /// The configuration's `name`.
    pub network: String,
}

/// The desired state of an attachment, completely resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// Whose.
    pub identity: Identity,
    /// What its interface is called in the pod.
    pub interface: String,
    /// What it is.
    pub kind: Kind,
    /// Index of the master on the host.
    pub master: u32,
    /// The master's own addresses: the pod reaches them through its own network, as no macvlan reaches its master.
    pub node_addresses: Vec<IpAddr>,
    /// Bytes; none: the master's.
    pub mtu: Option<u32>,
    /// Hardware address; none: the kernel's choice.
    pub mac: Option<[u8; 6]>,
    /// At least one.
    pub addresses: Vec<IpNet>,
    /// One for each family that has addresses, unless [`needs_gateway`] says that there is none.
    pub gateways: Gateways,
    /// The allow-list and the redirects.
    pub destinations: Destinations,
    /// Reached by the pod's own network.
    pub cluster_networks: Vec<IpNet>,
    /// What `prevResult` says of the pod's own network.
    pub previous: Option<Previous>,
}

/// The interface that the plugins before this one made.
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

    /// The first address of a family: the source of what the pod sends and forwards.
    #[must_use]
    pub fn source(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().map(IpNet::addr).find(|address| Family::of(address) == family)
    }

    /// The gateway of a family.
    #[must_use]
    pub fn gateway(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.gateways.v4.map(IpAddr::V4),
            Family::V6 => self.gateways.v6.map(IpAddr::V6),
        }
    }
}

/// Whether an interface of this kind resolves neighbours, so that its default route names one. An ipvlan on layer 3 hands
/// everything to its master's routes.
#[must_use]
pub fn needs_gateway(kind: Kind) -> bool {
    !matches!(kind, Kind::Ipvlan(IpvlanMode::L3 | IpvlanMode::L3s))
}

/// What ADD does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In their order.
    pub steps: Vec<Step>,
    /// The record of the attachment, as it is in the first step too.
    pub record: table_record::TableRecord,
    /// Cluster, service and node routes that go through the pod's own network because of this attachment: for the result.
    pub primary_routes: Vec<Route>,
    /// What an administrator may want to know, for the log: nothing that fails.
    pub warnings: Vec<String>,
}

/// One write. Each step has what its rollback needs, so that a rollback reads nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// In the pod: the attachment's nf_tables table, in one batch. Undone by deleting the table. First, because it is also
    /// the record of what the steps after it change.
    Firewall(Firewall),
    /// In the pod: `net.ipv4.conf.eth0.rp_filter` becomes `value`. Undone by writing `before`; none where the new link takes
    /// it away with itself.
    Sysctl {
        /// Dots between its parts, and the link's name as it is: slashes in `/proc/sys`.
        name: Vec<String>,
        /// To be written.
        value: String,
        /// What was there.
        before: Option<String>,
    },
    /// From the host: a link in the pod. Undone by deleting it, with its addresses and routes.
    CreateLink(NewLink),
    /// In the pod, on the new link: an address, without duplicate address detection.
    AddAddress(ipnet::IpNet),
    /// In the pod: the new link goes up.
    SetUp,
    /// In the pod. Undone by deleting it.
    AddRoute(Route),
    /// In the pod, behind those with the same destination, TOS and metric. Undone by deleting it.
    AppendRoute(Route),
    /// In the pod: `after` takes the place of `before`, which has the same destination, TOS and metric, in one act. Undone by
    /// the opposite act.
    ReplaceRoute {
        /// What is there.
        before: Route,
        /// What shall be there.
        after: Route,
    },
    /// In the pod. Undone by adding it again. One that is not there is no error.
    DeleteRoute(Route),
    /// In the pod. Undone by deleting it.
    AddRule(Rule),
    /// In the pod. Undone by adding it again. One that is not there is no error.
    DeleteRule(Rule),
    /// In the pod: a link of ours goes down, with its routes, before it is deleted. Rolled back by setting it up. One that is
    /// missing is no error.
    SetDown {
        /// Its index.
        index: u32,
        /// Its name, for messages.
        name: String,
    },
    /// In the pod: a link of ours, with its addresses and routes. Cannot be undone. One that is not there is no error.
    DeleteLink {
        /// Its index.
        index: u32,
        /// Its name, for messages.
        name: String,
    },
    /// In the pod: the nf_tables table of an attachment, the last step of DEL: `run_all` of the apply stage skips it where an earlier
    /// step failed. Cannot be rolled back. One that is missing is no error.
    DeleteFirewall {
        /// The attachment's interface.
        interface: String,
    },
}
