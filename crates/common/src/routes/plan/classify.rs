//! What each route is: somebody else's, alive, dead, or nothing that could be said.

mod duplicates;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use super::small;
use crate::api::routegc::{Contested, Counts};
use crate::routes::policy::Policy;
use crate::routes::route::{Meaning, Route, first_of};
use crate::routes::snapshot::{Holder, Network, Node, Snapshot};

/// A route and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifiedRoute {
    /// Which.
    pub route: Route,
    /// What it is.
    pub class: RouteClass,
    /// Whether another route in a pod network has the same destination.
    pub duplicate: bool,
}

/// What a route is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteClass {
    /// Not in a pod network, or not of a node's length: not ours to judge.
    Foreign,
    /// The next hop lives: who it is.
    Valid(String),
    /// It cannot be seen whether the next hop lives: why.
    Unknown(String),
    /// Nobody has the next hop for itself, but these ports may use it among others: that is no sign of life, and none of death
    /// either.
    Covered(Vec<CoveringPort>),
    /// No route that could work: why.
    Invalid(String),
    /// The next hop is gone: how that is known.
    Orphan(OrphanReason),
}

impl RouteClass {
    /// Who lives there, or why nothing can be said, or how it is known, for a person. Empty for what is foreign.
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

/// How it is known that a next hop is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanReason {
    /// No port on the network has the address, no server and no Node.
    NoPort {
        /// Name of the network.
        network: String,
    },
    /// A port has it whose server Nova does not know any more.
    ServerGone {
        /// ID of the port.
        port: String,
        /// ID of the server.
        server: String,
    },
    /// The destination is the pod network of a Node that has another address, and whose own route leads to a port that lives.
    NodeHasAnother {
        /// The Node.
        node: String,
        /// The next hop of its own route.
        nexthop: String,
    },
}

impl OrphanReason {
    /// One word of a closed set.
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

/// A port that may use more addresses than can be seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoveringPort {
    /// Of its address pair; None for a port without port security, which may use every address.
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

/// Routes that cannot be judged because of ports that may use more addresses than can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Which, in the snapshot's order.
    pub routes: Vec<Route>,
    /// The ports that may use their next hops.
    pub covers: BTreeSet<CoveringPort>,
}

/// Judges every route of the router, in the snapshot's order.
#[must_use]
pub fn classify(policy: &Policy, snapshot: &Snapshot) -> Vec<ClassifiedRoute> {
    let meanings: Vec<Option<Meaning>> = snapshot.routes.iter().map(Route::meaning).collect();
    let mut together = BTreeMap::<IpNet, Vec<IpAddr>>::new();
    for meaning in meanings.iter().flatten().filter(|meaning| policy.applies_to(&meaning.destination)) {
        together.entry(meaning.destination).or_default().push(meaning.nexthop);
    }
    let classify = |(route, meaning): (&Route, &Option<Meaning>)| {
        let beside = meaning.and_then(|meaning| together.get(&meaning.destination));
        let duplicate = beside.is_some_and(|beside| beside.len() > 1);
        let class = match meaning {
            None => senseless(policy, route),
            Some(meaning) if !policy.applies_to(&meaning.destination) => RouteClass::Foreign,
            Some(meaning) => {
                let beside = beside.map_or(&[][..], Vec::as_slice);
                duplicates::superseded(policy, snapshot, meaning, beside)
                    .unwrap_or_else(|| alive(policy, snapshot, meaning.nexthop))
            }
        };
        ClassifiedRoute { route: route.clone(), class, duplicate }
    };
    snapshot.routes.iter().zip(&meanings).map(classify).collect()
}

/// A route that means nothing is ours only as far as its destination says so.
fn senseless(policy: &Policy, route: &Route) -> RouteClass {
    match route.destination.parse::<IpNet>() {
        Ok(destination) if policy.applies_to(&destination.trunc()) => {
            RouteClass::Invalid("the next hop is no address of the destination's family".to_owned())
        }
        _ => RouteClass::Foreign,
    }
}

/// Whether the address is on a network of ours, and what speaks against saying so.
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
        AtPort::Lives(who) => return RouteClass::Valid(who),
        AtPort::Doubtful(why) => (None, Some(why)),
        AtPort::Gone(orphaned) => (Some(orphaned), None),
        AtPort::Nobody => (None, None),
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
            RouteClass::Orphan(gone.unwrap_or(OrphanReason::NoPort { network }))
        }
        (false, None) if snapshot.hidden => {
            RouteClass::Unknown("the next hop is on no subnet that is shown to us".to_owned())
        }
        (false, None) => {
            RouteClass::Invalid("the next hop is on no subnet that the router is attached to".to_owned())
        }
    }
}

/// The ports that may use the address among others. One that outlived its server uses none.
fn covers(policy: &Policy, snapshot: &Snapshot, nexthop: IpAddr) -> Vec<CoveringPort> {
    let living = users(policy, snapshot, nexthop).into_iter().filter(|(_, port)| may_live(snapshot, port));
    living.map(|(range, port)| CoveringPort { range, port: port.port.clone() }).collect()
}

/// The ports that may use the address among others if they live, and the range of the address pair by which they may.
fn users<'a>(policy: &Policy, snapshot: &'a Snapshot, nexthop: IpAddr) -> Vec<(Option<IpNet>, &'a Holder)> {
    let pairs = snapshot.pairs.iter().filter(|(range, _)| range.contains(&nexthop));
    let pairs = pairs.filter(|(_, port)| !elsewhere(snapshot, port, nexthop));
    let pairs = pairs.map(|(range, port)| (Some(*range), port));
    let network = network_of(snapshot, nexthop).filter(|_| !policy.ignore_open_ports);
    let there = |port: &&Holder| network.is_some_and(|network| network.id == port.network);
    let open = snapshot.open.iter().filter(there).map(|port| (None, port));
    pairs.chain(open).collect()
}

/// Whether the port is on a network of the router that has no such address: nobody on it is asked for one. It is not known where
/// the network or its subnets are not shown.
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

/// What the ports say of an address.
enum AtPort {
    /// Who lives there.
    Lives(String),
    /// Only ports whose servers may be another Nova's: why nothing can be said.
    Doubtful(String),
    /// Only ports that outlived their servers.
    Gone(OrphanReason),
    /// No port has it.
    Nobody,
}

/// A port outlives its server now and then; that counts only if Nova's complete list does not have the server.
fn at_port(snapshot: &Snapshot, nexthop: IpAddr) -> AtPort {
    let mut gone = AtPort::Nobody;
    for holder in holders(snapshot, nexthop) {
        match &holder.server {
            Some(server) if !lives(snapshot, holder) && may_live(snapshot, holder) => {
                gone = AtPort::Doubtful(format!(
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
            Some(server) => return AtPort::Lives(format!("server {server}")),
            None => return AtPort::Lives(format!("port {}", holder.port)),
        }
    }
    gone
}

fn holders(snapshot: &Snapshot, address: IpAddr) -> impl Iterator<Item = &Holder> {
    snapshot.ports.get(&address).into_iter().flatten()
}

/// A port lives unless it is a server's that Nova's complete list does not have.
fn lives(snapshot: &Snapshot, holder: &Holder) -> bool {
    snapshot.servers.as_ref().is_none_or(|servers| servers.know(holder))
}

/// The same, where another Nova may have the server.
fn may_live(snapshot: &Snapshot, holder: &Holder) -> bool {
    lives(snapshot, holder) || snapshot.servers.as_ref().is_some_and(|servers| servers.others)
}

/// Routes whose next hop is on no subnet that the router is attached to, whosever they are. None where one is hidden.
#[must_use]
pub fn unconnected(snapshot: &Snapshot) -> Vec<Route> {
    if snapshot.hidden { Vec::new() } else { out_of_sight(snapshot) }
}

/// Routes whose next hop is on no subnet that is seen to be the router's, whosever they are. Where one is hidden, it may be on
/// that.
#[must_use]
pub fn out_of_sight(snapshot: &Snapshot) -> Vec<Route> {
    let connected = |route: &&Route| {
        route.nexthop.parse().is_ok_and(|nexthop: IpAddr| {
            snapshot.networks.iter().flat_map(|network| &network.subnets).any(|net| net.contains(&nexthop))
        })
    };
    snapshot.routes.iter().filter(|route| !connected(route)).cloned().collect()
}

/// The routes that cannot be judged because ports may use more addresses than can be seen, and these ports, each once.
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

/// How many routes of each kind.
#[must_use]
pub fn count(classified: &[ClassifiedRoute], contested: &[Contested]) -> Counts {
    let of =
        |desired: fn(&ClassifiedRoute) -> bool| small(classified.iter().filter(|one| desired(one)).count());
    Counts {
        valid: of(|one| matches!(one.class, RouteClass::Valid(_))),
        orphan: of(|one| matches!(one.class, RouteClass::Orphan(_))),
        foreign: of(|one| matches!(one.class, RouteClass::Foreign)),
        unknown: of(|one| matches!(one.class, RouteClass::Unknown(_) | RouteClass::Covered(_))),
        invalid: of(|one| matches!(one.class, RouteClass::Invalid(_))),
        duplicates: of(|one| one.duplicate),
        contested: small(contested.len()),
    }
}
