//! The class of each route: foreign, valid, orphaned, or not known.

mod duplicates;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use super::small;
use crate::api::routegc::{Counts, Recreated};
use crate::routes::policy::Policy;
use crate::routes::route::{Meaning, Route, first_of};
use crate::routes::snapshot::{Holder, Network, Node, Snapshot};

/// A route and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifiedRoute {
    /// The route.
    pub route: Route,
    /// Its class.
    pub class: RouteClass,
    /// Whether another route in a pod network has the same destination.
    pub duplicate: bool,
}

/// The class of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteClass {
    /// Not in a pod network, or of another prefix length than a node's: never removed.
    Foreign,
    /// The next hop exists: what has it.
    Valid(String),
    /// It is not visible whether the next hop exists: why.
    Unknown(String),
    /// No port has the next hop as its own address, but these ports may use it: it is not known whether it exists.
    Covered(Vec<CoveringPort>),
    /// The route cannot work: why.
    Invalid(String),
    /// The next hop no longer exists: how that is known.
    Orphan(OrphanReason),
}

impl RouteClass {
    /// The explanation of the class, for the user. Empty for a foreign route.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            RouteClass::Foreign => String::new(),
            RouteClass::Valid(why) | RouteClass::Unknown(why) | RouteClass::Invalid(why) => why.clone(),
            RouteClass::Covered(covers) => first_of(covers.iter().map(|cover| match &cover.range {
                Some(range) => format!("port {} may use any address of {range}", cover.port),
                None => format!("port {} has no port security and may use any address", cover.port),
            })),
            RouteClass::Orphan(orphaned) => orphaned.to_string(),
        }
    }
}

/// How it is known that a next hop no longer exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanReason {
    /// No port on the network has the address, no server and no Node.
    NoPort {
        /// Name of the network.
        network: String,
    },
    /// Only a port has the address whose server no longer exists in Nova.
    ServerGone {
        /// ID of the port.
        port: String,
        /// ID of the server.
        server: String,
    },
    /// The destination is the pod network of a Node with another address, and the Node's own route leads to an existing port.
    NodeHasAnother {
        /// The Node's name.
        node: String,
        /// The next hop of its own route.
        nexthop: String,
    },
}

impl OrphanReason {
    /// A reason code of a closed set.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            OrphanReason::NoPort { .. } => "NoPort",
            OrphanReason::ServerGone { .. } => "ServerGone",
            OrphanReason::NodeHasAnother { .. } => "NodeHasAnother",
        }
    }
}

impl fmt::Display for OrphanReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrphanReason::NoPort { network } => {
                write!(f, "no port, server or Node has the next hop on network {network}")
            }
            OrphanReason::ServerGone { port, server } => {
                write!(f, "port {port} has the next hop, but its server {server} is gone")
            }
            OrphanReason::NodeHasAnother { node, nexthop } => {
                write!(f, "the destination belongs to Node {node}, whose own route is via {nexthop}")
            }
        }
    }
}

impl Serialize for OrphanReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// A port that may use more addresses than are visible.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoveringPort {
    /// Range of its address pair; None for a port without port security, which may use every address.
    pub range: Option<IpNet>,
    /// ID of the port.
    pub port: String,
}

impl fmt::Display for CoveringPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.range {
            Some(range) => write!(f, "port {} ({range})", self.port),
            None => write!(f, "port {} (no port security)", self.port),
        }
    }
}

/// Routes that cannot be classified because ports may use more addresses than are visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// The routes, in the snapshot's order.
    pub routes: Vec<Route>,
    /// The ports that may use their next hops.
    pub covers: BTreeSet<CoveringPort>,
}

/// Classifies every route of the router, in the snapshot's order.
#[must_use]
pub fn classify(policy: &Policy, snapshot: &Snapshot) -> Vec<ClassifiedRoute> {
    let meanings: Vec<Option<Meaning>> = snapshot.routes.iter().map(Route::meaning).collect();
    let mut together = BTreeMap::<IpNet, Vec<IpAddr>>::new();
    for meaning in meanings.iter().flatten().filter(|meaning| policy.applies_to(&meaning.destination)) {
        together.entry(meaning.destination).or_default().push(meaning.nexthop);
    }
    let classify = |(route, meaning): (&Route, &Option<Meaning>)| {
        let nexthops = meaning.and_then(|meaning| together.get(&meaning.destination));
        let duplicate = nexthops.is_some_and(|nexthops| nexthops.len() > 1);
        let class = match meaning {
            None => unparseable(policy, route),
            Some(meaning) if !policy.applies_to(&meaning.destination) => RouteClass::Foreign,
            Some(meaning) => {
                let nexthops = nexthops.map_or(&[][..], Vec::as_slice);
                duplicates::superseded(policy, snapshot, meaning, nexthops)
                    .unwrap_or_else(|| alive(policy, snapshot, meaning.nexthop))
            }
        };
        ClassifiedRoute { route: route.clone(), class, duplicate }
    };
    snapshot.routes.iter().zip(&meanings).map(classify).collect()
}

/// A route that cannot be parsed is in a pod network only if its destination is.
fn unparseable(policy: &Policy, route: &Route) -> RouteClass {
    match route.destination.parse::<IpNet>() {
        Ok(destination) if policy.applies_to(&destination.trunc()) => {
            RouteClass::Invalid("the next hop is no address of the destination's family".to_owned())
        }
        _ => RouteClass::Foreign,
    }
}

/// Whether the address is on a network of our project, and the foreign network that also has it.
fn located(snapshot: &Snapshot, nexthop: IpAddr) -> (bool, Option<&Network>) {
    let on = |network: &&Network| network.subnets.iter().any(|net| net.contains(&nexthop));
    let foreign = snapshot.networks.iter().filter(|network| network.foreign).find(on);
    (snapshot.networks.iter().filter(|network| !network.foreign).any(|network| on(&network)), foreign)
}

fn alive(policy: &Policy, snapshot: &Snapshot, nexthop: IpAddr) -> RouteClass {
    if snapshot.own.contains(&nexthop) {
        return RouteClass::Invalid("the next hop is the router itself".to_owned());
    }
    if let Some(node) = node_at(snapshot, nexthop) {
        return RouteClass::Valid(format!("Node {}", node.name));
    }
    let (gone, doubt) = match at_port(snapshot, nexthop) {
        AtPort::Exists(who) => return RouteClass::Valid(who),
        AtPort::Unknown(why) => (None, Some(why)),
        AtPort::Gone(orphaned) => (Some(orphaned), None),
        AtPort::NoPort => (None, None),
    };
    let servers = snapshot.servers.as_ref().and_then(|servers| servers.addresses.get(&nexthop));
    if let Some(server) = servers.and_then(BTreeSet::first) {
        return RouteClass::Valid(format!("server {server}, according to Nova"));
    }
    if let Some(why) = doubt {
        return RouteClass::Unknown(why);
    }
    match located(snapshot, nexthop) {
        (_, Some(foreign)) => {
            RouteClass::Unknown(format!("network {} belongs to another project", foreign.name))
        }
        (true, None) => {
            let covers = covers(policy, snapshot, nexthop);
            if !covers.is_empty() {
                return RouteClass::Covered(covers);
            }
            let network = network_of(snapshot, nexthop).map_or_else(String::new, |on| on.name.clone());
            match gone {
                Some(gone) => RouteClass::Orphan(gone),
                None if !policy.safety.all_next_hops_are_ports && !has_nodes(policy, snapshot) => {
                    let nodes = match snapshot.nodes {
                        None => "the cluster's Nodes are not read (nodesFrom)",
                        Some(_) => {
                            "none of the Nodes of nodesFrom has a pod network or an address of these routes, so they may be those of \
                             another cluster"
                        }
                    };
                    RouteClass::Unknown(format!(
                        "no port has the next hop on network {network}, but a machine outside of OpenStack may: {nodes}, and \
                         safety.allNextHopsArePorts is false"
                    ))
                }
                None => RouteClass::Orphan(OrphanReason::NoPort { network }),
            }
        }
        (false, None) if snapshot.hidden => {
            RouteClass::Unknown("the next hop is on no subnet that is visible to this project".to_owned())
        }
        (false, None) => {
            RouteClass::Invalid("the next hop is on no subnet that the router is attached to".to_owned())
        }
    }
}

/// Whether the Nodes are known. Those of another cluster would say nothing about the routes of this one.
fn has_nodes(policy: &Policy, snapshot: &Snapshot) -> bool {
    let fits = |node: &Node| {
        node.pod_cidrs.iter().any(|network| policy.applies_to(network))
            || node.addresses.iter().any(|address| located(snapshot, *address).0)
    };
    snapshot.nodes.as_ref().is_some_and(|nodes| nodes.is_empty() || nodes.iter().any(fits))
}

/// The ports that may use the address among others, without ports whose server no longer exists.
fn covers(policy: &Policy, snapshot: &Snapshot, nexthop: IpAddr) -> Vec<CoveringPort> {
    let living = users(policy, snapshot, nexthop).into_iter().filter(|(_, port)| may_live(snapshot, port));
    living.map(|(range, port)| CoveringPort { range, port: port.port.clone() }).collect()
}

/// All ports that may use the address among others, with the range of the address pair that allows it.
fn users<'a>(policy: &Policy, snapshot: &'a Snapshot, nexthop: IpAddr) -> Vec<(Option<IpNet>, &'a Holder)> {
    let pairs = snapshot.pairs.iter().filter(|(range, _)| range.contains(&nexthop));
    let pairs = pairs.filter(|(_, port)| !elsewhere(snapshot, port, nexthop));
    let pairs = pairs.map(|(range, port)| (Some(*range), port));
    let network = network_of(snapshot, nexthop).filter(|_| !policy.safety.ignore_open_ports);
    let there = |port: &&Holder| network.is_some_and(|network| network.id == port.network);
    let open = snapshot.open.iter().filter(there).map(|port| (None, port));
    pairs.chain(open).collect()
}

/// Whether the port is on a network of the router that does not contain the address. False where the network or its subnets are not
/// visible.
fn elsewhere(snapshot: &Snapshot, port: &Holder, address: IpAddr) -> bool {
    let network = snapshot.networks.iter().find(|network| network.id == port.network);
    let subnets = network.map_or(&[][..], |network| network.subnets.as_slice());
    !subnets.is_empty() && !subnets.iter().any(|net| net.contains(&address))
}

/// The servers whose ports have the address, or may use it among others.
pub(in crate::routes) fn servers_at<'a>(
    policy: &Policy,
    snapshot: &'a Snapshot,
    nexthop: IpAddr,
) -> Vec<&'a String> {
    let users = users(policy, snapshot, nexthop).into_iter().map(|(_, port)| port);
    holders(snapshot, nexthop).chain(users).filter_map(|port| port.server.as_ref()).collect()
}

fn network_of(snapshot: &Snapshot, address: IpAddr) -> Option<&Network> {
    snapshot.networks.iter().find(|network| network.subnets.iter().any(|net| net.contains(&address)))
}

fn node_at(snapshot: &Snapshot, nexthop: IpAddr) -> Option<&Node> {
    snapshot.nodes.iter().flatten().find(|node| node.addresses.contains(&nexthop))
}

/// The result of the search for a port with an address.
enum AtPort {
    /// A port has it: `server ID` if the port belongs to a server, else `port ID`.
    Exists(String),
    /// Only ports whose servers may be in the Nova of another region: the explanation.
    Unknown(String),
    /// Only ports whose server no longer exists.
    Gone(OrphanReason),
    /// No port has it.
    NoPort,
}

/// A port sometimes outlives its server. This counts only if Nova's complete list does not have the server.
fn at_port(snapshot: &Snapshot, nexthop: IpAddr) -> AtPort {
    let mut gone = AtPort::NoPort;
    for holder in holders(snapshot, nexthop) {
        match &holder.server {
            Some(server) if !lives(snapshot, holder) && may_live(snapshot, holder) => {
                gone = AtPort::Unknown(format!(
                    "port {} has the next hop, and Nova does not know its server {server}, but that of another region may; delete the \
                     port if the server is gone",
                    holder.port
                ));
            }
            Some(server) if !lives(snapshot, holder) => {
                gone = AtPort::Gone(OrphanReason::ServerGone {
                    port: holder.port.clone(),
                    server: server.clone(),
                });
            }
            Some(server) => return AtPort::Exists(format!("server {server}")),
            None => return AtPort::Exists(format!("port {}", holder.port)),
        }
    }
    gone
}

fn holders(snapshot: &Snapshot, address: IpAddr) -> impl Iterator<Item = &Holder> {
    snapshot.ports.get(&address).into_iter().flatten()
}

/// Whether the port exists for us: it belongs to no server, or to one that Nova's complete list has.
fn lives(snapshot: &Snapshot, holder: &Holder) -> bool {
    snapshot.servers.as_ref().is_none_or(|servers| servers.know(holder))
}

/// The same, or the Nova of another region may have the server.
fn may_live(snapshot: &Snapshot, holder: &Holder) -> bool {
    lives(snapshot, holder) || snapshot.servers.as_ref().is_some_and(|servers| servers.others)
}

/// Routes whose next hop is on no subnet that the router is attached to, foreign ones included. Empty if a subnet is hidden.
#[must_use]
pub fn unconnected(snapshot: &Snapshot) -> Vec<Route> {
    if snapshot.hidden { Vec::new() } else { on_no_visible_subnet(snapshot) }
}

/// Routes whose next hop is on no visible subnet of the router, foreign ones included. If a subnet is hidden, it may be on that.
#[must_use]
pub fn on_no_visible_subnet(snapshot: &Snapshot) -> Vec<Route> {
    let connected = |route: &&Route| {
        route.nexthop.parse().is_ok_and(|nexthop: IpAddr| {
            snapshot.networks.iter().flat_map(|network| &network.subnets).any(|net| net.contains(&nexthop))
        })
    };
    snapshot.routes.iter().filter(|route| !connected(route)).cloned().collect()
}

/// The routes that cannot be classified because ports may use more addresses than are visible, and these ports.
#[must_use]
pub fn covered(classified: &[ClassifiedRoute]) -> Option<Covered> {
    let mut covered = Covered::default();
    for one in classified {
        if let RouteClass::Covered(covers) = &one.class {
            covered.routes.push(one.route.clone());
            covered.covers.extend(covers.iter().cloned());
        }
    }
    (!covered.routes.is_empty()).then_some(covered)
}

/// Number of routes of each class.
#[must_use]
pub fn count(classified: &[ClassifiedRoute], recreated: &[Recreated]) -> Counts {
    let of =
        |filter: fn(&ClassifiedRoute) -> bool| small(classified.iter().filter(|one| filter(one)).count());
    Counts {
        valid: of(|one| matches!(one.class, RouteClass::Valid(_))),
        orphan: of(|one| matches!(one.class, RouteClass::Orphan(_))),
        foreign: of(|one| matches!(one.class, RouteClass::Foreign)),
        unknown: of(|one| matches!(one.class, RouteClass::Unknown(_) | RouteClass::Covered(_))),
        invalid: of(|one| matches!(one.class, RouteClass::Invalid(_))),
        duplicates: of(|one| one.duplicate),
        recreated: small(recreated.len()),
    }
}
