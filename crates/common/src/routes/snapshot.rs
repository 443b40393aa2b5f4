//! What was seen of a router and its neighbourhood, at one time. Plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::route::Route;

/// The router first, its neighbourhood second: whoever had a route at the first moment was there at the second, or is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// ID of the router.
    pub router: String,
    /// All of its routes, to the letter, in an order that depends on nothing but them.
    pub routes: Vec<Route>,
    /// Its own addresses.
    pub own: BTreeSet<IpAddr>,
    /// The networks that it is attached to.
    pub networks: Vec<Network>,
    /// Whether it is also attached to something that its owner cannot see, such as the network of its gateway.
    pub hidden: bool,
    /// Who has which address on these networks, according to every port of them.
    pub ports: BTreeMap<IpAddr, Vec<Holder>>,
    /// Address pairs for whole networks, with the port: whoever has one may use any of these addresses, and it cannot be seen
    /// whether it does.
    pub pairs: Vec<(IpNet, Holder)>,
    /// Ports without port security that may be a machine's: they may use any address of their network, and it cannot be seen
    /// whether they do.
    pub open: Vec<Holder>,
    /// Ports that are machines, no matter whose: none at all beside routes means that the view is wrong.
    pub machines: usize,
    /// Nova's list of servers, where the cloud has a Nova that says when it does not know all of them.
    pub servers: Option<Servers>,
    /// The cluster's Nodes, where they are known.
    pub nodes: Option<Vec<Node>>,
    /// How many routes the project may have on a router, where the cloud says so and there is a limit.
    pub limit: Option<i64>,
}

/// A network that a router is attached to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether it belongs to another project: then ports of others on it are not shown to us.
    pub foreign: bool,
    /// Those of its subnets that the router is attached to; Neutron lets no two of one router's overlap.
    pub subnets: Vec<IpNet>,
}

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// ID of the port.
    pub port: String,
    /// ID of its network.
    pub network: String,
    /// The Nova server of our own project that the port belongs to, if it belongs to one.
    pub server: Option<String>,
    /// ID of the machine that the port belongs to, whoever owns both; None where a port does not say it in a way that another
    /// port of the machine would repeat (a trunk's subport), or belongs to none.
    pub machine: Option<String>,
}

/// Nova's complete list of the project's servers, and those that it has beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// IDs of all of them.
    pub ids: BTreeSet<String>,
    /// Who has which address, on networks that have the name of one that the router is attached to: it may be another network, but
    /// for next hops that no living port has. No set is empty.
    pub addresses: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Whether another region's Nova may have servers with ports on these networks: then nobody can say that one is gone.
    pub others: bool,
}

impl Servers {
    /// Whether the port is not one that outlived its server, as far as this list goes.
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
