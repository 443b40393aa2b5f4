//! Routes of the pod networks: those to recorded Nodes and the stale ones are removed at the end of a run.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use common::api::deorbit::{Debris, Routes};
use common::routes::Route;

use super::ending::entry;
use super::outlook::is_over;
use super::presence::NOT_PROVEN;
use super::reason::Reason;
use super::{Act, LATER, Planner, SOON};
use crate::observe::snapshot::{self, Cluster, DoubtfulRoute, Run, key};
use crate::record::NodeRoute;

/// After a limit is over, the routes get this time: Neutron removes them in one request.
const ENDING: Duration = Duration::from_secs(30);
/// A cloud controller manager that still runs recreates a route in its next reconciliation, every 10 s by default.
const ROUTE_CHECK: Duration = Duration::from_secs(15);
/// The message about a route that is there again after its removal.
pub const RECREATED: &str =
    "it was removed and recreated: a cloud controller manager of the cluster, or another client, still runs";

impl Planner<'_> {
    /// Records the routes to the Nodes of the cluster.
    pub(super) fn record_routes(&mut self, cluster: &Cluster) {
        let Some(asked) = &self.snapshot.run.spec.resources.routes else { return };
        match self.cloud().and_then(|cloud| cloud.routes.as_ref()) {
            Some(Ok(routes)) => add(&mut self.book.routes, &routes.all, cluster),
            Some(Err(why)) => self.find(unknown(asked, why)),
            None => {}
        }
    }

    /// Removes the routes. None: nothing more can be done, or is to be waited for.
    pub(super) fn routes(&mut self) -> Option<Duration> {
        let run = &self.snapshot.run;
        // Without its records a run deletes nothing.
        let asked = run.spec.resources.routes.as_ref().filter(|_| run.lost.is_none())?;
        let limit = if self.book.over { ENDING } else { run.spec.timeouts.per_object.duration() };
        let is_late = self.in_phase_for(limit);
        let routes = match self.cloud().and_then(|cloud| cloud.routes.as_ref()) {
            Some(Ok(routes)) => routes,
            Some(Err(why)) => {
                self.find(unknown(asked, why));
                return (!is_late).then_some(LATER);
            }
            None => return None,
        };
        if let Some(why) = &routes.unread {
            self.find(unknown(asked, why));
        }
        // The router could not be read at the inventory, or Nodes were added since.
        if let (Some(cluster), false) = (self.readable(), self.book.over) {
            add(&mut self.book.routes, &routes.all, cluster);
        }
        let (mut checking, mut recreated) = (false, false);
        let responds = self.snapshot.cluster.is_ok() && !self.book.over;
        // A next hop that a dry run recorded may be another machine by now.
        let is_proven = self.book.proof.any() && self.book.taken;
        let nodes = unneeded(run, is_proven, &mut self.book.routes);
        for one in &mut *nodes {
            match (routes.all.contains(&one.route()), one.removed) {
                (true, None) => {}
                // It was removed, and another client has created it again.
                (true, Some(_)) => recreated = true,
                (false, since) => {
                    let since = *one.removed.insert(since.unwrap_or(self.now));
                    checking |= responds && !is_over(since, ROUTE_CHECK, self.now);
                }
            }
        }
        let removal = removal(asked, routes, nodes);
        if recreated {
            self.find(Reason::RoutesRecreated { router: asked.router_id.clone() });
        }
        if is_late {
            return None;
        }
        let Some(act) = removal else { return (checking || routes.unread.is_some()).then_some(SOON) };
        self.step(act, Reason::Requested);
        Some(SOON)
    }

    /// The debris.
    pub(super) fn routes_left(&self) -> Vec<Debris> {
        let Some(asked) = &self.snapshot.run.spec.resources.routes else { return Vec::new() };
        let router = |why: String| vec![entry("Router", asked.router_id.clone(), why)];
        let routes = match (&self.snapshot.cloud, self.cloud().and_then(|cloud| cloud.routes.as_ref())) {
            (_, Some(Ok(routes))) => routes,
            (_, Some(Err(why))) => return router(format!("its routes are not known: {why}")),
            (Some(Err(why)), None) => return router(format!("its routes were not read: {why}")),
            (_, None) => return router("its routes were not read: the run ended before".to_owned()),
        };
        let failure = self.snapshot.failures.get(&key("Routes", &asked.router_id));
        let why = failure.cloned().unwrap_or_else(|| "it is still there".to_owned());
        let survives = self.snapshot.run.spec.cluster_survives;
        let is_left = |one: &&NodeRoute| !survives && routes.all.contains(&one.route());
        let recorded: Vec<Debris> = (self.book.routes.iter().filter(is_left))
            .map(|one| match one.removed {
                Some(_) => entry("Route", one.route().to_string(), RECREATED.to_owned()),
                None if !self.book.proof.any() => {
                    entry("Route", one.route().to_string(), NOT_PROVEN.to_owned())
                }
                None => entry("Route", one.route().to_string(), why.clone()),
            })
            .collect();
        let known = |text: &str| recorded.iter().any(|one| one.name == text);
        let stale = routes.stale.iter().map(|route| entry("Route", route.to_string(), why.clone()));
        let doubtful = routes.doubtful.iter().map(|DoubtfulRoute { route, why }| {
            entry("Route", route.to_string(), format!("its next hop may still exist: {why}"))
        });
        let others: Vec<Debris> = stale.chain(doubtful).filter(|one| !known(&one.name)).collect();
        let unread = routes.unread.as_ref();
        let unread =
            unread.into_iter().flat_map(|why| router(format!("its stale routes are not known: {why}")));
        recorded.into_iter().chain(others).chain(unread).collect()
    }
}

/// The routes of the router are not known, or it is not known which of them are stale.
pub fn unknown(asked: &Routes, why: &str) -> Reason {
    Reason::RoutesUnknown { router: asked.router_id.clone(), why: why.to_owned() }
}

/// The recorded routes that the run removes. A cluster that survives needs all routes to its Nodes, and without a proof of the login a
/// Node of another cluster may have the same address.
pub fn unneeded<'a>(run: &Run, is_proven: bool, recorded: &'a mut [NodeRoute]) -> &'a mut [NodeRoute] {
    if run.spec.cluster_survives || !is_proven { &mut [] } else { recorded }
}

/// The step that removes the routes to these Nodes and the stale ones. None: there are none. A route that was removed and recreated is
/// not removed again.
pub fn removal(asked: &Routes, observed: &snapshot::Routes, nodes: &[NodeRoute]) -> Option<Act> {
    let left = nodes.iter().filter(|one| one.removed.is_none()).map(NodeRoute::route);
    let recorded: Vec<_> = left.filter(|route| observed.all.contains(route)).collect();
    let of_no_node = |route: &&Route| nodes.iter().all(|one| one.route() != **route);
    let stale: Vec<_> = observed.stale.iter().filter(of_no_node).cloned().collect();
    let is_some = !(recorded.is_empty() && stale.is_empty());
    is_some.then(|| Act::RemoveRoutes { asked: asked.clone(), recorded, stale })
}

/// Records the routes to the Nodes of the cluster. None is ever removed from the records.
pub fn add(known: &mut Vec<NodeRoute>, all: &[Route], cluster: &Cluster) {
    let addresses: HashSet<IpAddr> =
        cluster.known_nodes().flat_map(|node| node.addresses.iter().copied()).collect();
    for route in all {
        let is_node = route.nexthop.parse().is_ok_and(|address: IpAddr| addresses.contains(&address));
        if is_node && known.iter().all(|one| one.route() != *route) {
            let Route { destination, nexthop } = route.clone();
            known.push(NodeRoute { destination, nexthop, removed: None });
        }
    }
}
