//! The observed state of a router and its networks at one time. Plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::route::Route;

/// The router is read first, its networks second: a next hop that is not found in the second read is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// ID of the router.
    pub router: String,
    /// All of its routes, exactly as the router has them, in a stable order.
    pub routes: Vec<Route>,
    /// Its own addresses.
    pub own: BTreeSet<IpAddr>,
    /// The networks that it is attached to.
    pub networks: Vec<Network>,
    /// Whether it is also attached to a network that its owner cannot see, such as that of its gateway.
    pub hidden: bool,
    /// The ports that have each address on these networks.
    pub ports: BTreeMap<IpAddr, Vec<Holder>>,
    /// Address pairs for whole ranges, with their port: the port may use any of these addresses, and it is not visible whether it
    /// does.
    pub pairs: Vec<(IpNet, Holder)>,
    /// Ports without port security that may belong to a machine: they may use any address of their network, and it is not visible
    /// whether they do.
    pub open: Vec<Holder>,
    /// Number of ports of machines of any project. Routes without any machine mean that the view is incomplete.
    pub machines: usize,
    /// Nova's list of servers, where the cloud has a Nova that reports an incomplete list.
    pub servers: Option<Servers>,
    /// The cluster's Nodes, where they are known.
    pub nodes: Option<Vec<Node>>,
    /// How many routes a router of the project may have.
    pub limit: RouteLimit,
}

/// How many routes a router of a project may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteLimit {
    /// The quota could not be read.
    #[default]
    Unknown,
    /// There is no limit, or the cloud does not report it.
    NotReported,
    /// This many.
    Routes(i64),
}

impl RouteLimit {
    /// The limit to show; `last` if it could not be read now.
    #[must_use]
    pub fn or_last(self, last: Option<i64>) -> Option<i64> {
        match self {
            RouteLimit::Unknown => last,
            RouteLimit::NotReported => None,
            RouteLimit::Routes(limit) => Some(limit),
        }
    }
}

/// A network that a router is attached to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether it belongs to another project: then ports of other projects on it are not visible.
    pub foreign: bool,
    /// Its subnets that the router is attached to. Those of one router do not overlap.
    pub subnets: Vec<IpNet>,
}

/// The port that has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// ID of the port.
    pub port: String,
    /// ID of its network.
    pub network: String,
    /// The Nova server of our own project that the port belongs to, if it belongs to one.
    pub server: Option<String>,
    /// ID of the machine that the port belongs to, of any project. None if it belongs to no machine, or if other ports of the machine
    /// do not have the same ID (a subport of a trunk).
    pub machine: Option<String>,
}

/// Nova's complete list of the project's servers, and servers that single requests found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// IDs of all of them.
    pub ids: BTreeSet<String>,
    /// The servers that have each address, on networks with the name of one that the router is attached to. For next hops without an
    /// existing port, networks of other routers are excluded. No set is empty.
    pub addresses: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Whether the Nova of another region may have servers with ports on these networks: then no server counts as gone.
    pub others: bool,
}

impl Servers {
    /// Whether the port belongs to no server, or to a server in this list.
    pub(super) fn know(&self, port: &Holder) -> bool {
        port.server.as_ref().is_none_or(|server| self.ids.contains(server))
    }
}

/// A Node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its internal addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Its pod networks.
    pub pod_cidrs: Vec<IpNet>,
    /// Its server's ID, out of `spec.providerID`.
    pub server: Option<String>,
}
