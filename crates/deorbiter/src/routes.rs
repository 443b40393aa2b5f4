//! The cluster's routes on its router, by the rules of routegc: a route whose next hop exists is never removed.

use std::collections::BTreeSet;

use common::api::deorbit::Routes as Asked;
use common::api::period::Period;
use common::api::routegc::Safety;
use common::cloud::openstack::Cloud;
use common::routes::plan::{History, RouteClass};
use common::routes::snapshot::Node;
use common::routes::{self, Decision, NodeSource, Policy, Route, Snapshot};
use futures::FutureExt as _;
use jiff::Timestamp;

use crate::observe::snapshot::{Cluster, DoubtfulRoute, Routes};

/// The rules for a cluster that is being deleted: no confirmation by a later reconciliation, and no limit for the number of routes.
fn policy(asked: &Asked) -> Result<Policy, String> {
    let safety = Safety {
        confirmations: 1,
        min_age: Period::seconds(0),
        max_removals: u32::MAX,
        max_percent: 100,
        ..Safety::default()
    };
    Policy::new(&asked.pod_cidrs, None, &safety)
        .map_err(|error| format!("spec.resources.routes.podCIDRs: {error}"))
}

/// The Nodes of the cluster, as one more source of live addresses; None where they are not known. A next hop without a port is stale only
/// if they are known: it may be a machine outside of OpenStack.
fn nodes(cluster: Option<&Cluster>) -> Option<NodeSource> {
    let node = |node: &crate::observe::snapshot::Node| Node {
        name: node.name.clone(),
        addresses: node.addresses.iter().copied().collect::<BTreeSet<_>>(),
        server: node.server.as_ref().map(|(_, id)| id.clone()),
        ..Node::default()
    };
    let nodes: Vec<Node> = cluster?.nodes.as_ref()?.iter().map(node).collect();
    Some(NodeSource::new(move || std::future::ready(Ok(nodes.clone())).boxed()))
}

/// The router's routes into the pod networks, as far as they are known.
///
/// # Errors
/// The router cannot be read, or the pod networks in the spec are invalid.
pub async fn read(cloud: &Cloud, asked: &Asked, cluster: Option<&Cluster>) -> Result<Routes, String> {
    let policy = policy(asked)?;
    let router = cloud.router(&asked.router_id).await.map_err(|error| error.to_string())?;
    let is_ours = |route: &Route| {
        route.destination.parse::<ipnet::IpNet>().is_ok_and(|net| policy.applies_to(&net.trunc()))
    };
    let all: Vec<Route> = router.routes.into_iter().map(Route::from).filter(is_ours).collect();
    if all.is_empty() {
        return Ok(Routes::default());
    }
    let decision = match judged(cloud, asked, &policy, nodes(cluster).as_ref()).await {
        Ok((_, decision)) => decision,
        Err(why) => return Ok(Routes { all, unread: Some(why), ..Routes::default() }),
    };
    let doubtful = decision.classified.into_iter().filter_map(|one| match one.class {
        RouteClass::Unknown(_) | RouteClass::Covered(_) | RouteClass::Invalid(_) => {
            Some(DoubtfulRoute { why: one.class.why(), route: one.route })
        }
        RouteClass::Foreign | RouteClass::Valid(_) | RouteClass::Orphan(_) => None,
    });
    let doubtful = doubtful.collect();
    let stale = decision.removals.into_iter().map(|one| one.route).collect();
    Ok(Routes { all, stale, doubtful, unread: None })
}

async fn judged(
    cloud: &Cloud,
    asked: &Asked,
    policy: &Policy,
    nodes: Option<&NodeSource>,
) -> Result<(Snapshot, Decision), String> {
    let seen =
        routes::observe(cloud, policy, &asked.router_id, nodes).await.map_err(|error| error.to_string())?;
    let decision = routes::plan(policy, &seen, &History::default(), None, Timestamp::now());
    Ok((seen, decision))
}

/// Removes those of `stale` that still have no live next hop.
///
/// # Errors
/// Why nothing was removed.
pub async fn remove(cloud: &Cloud, asked: &Asked, stale: &[Route]) -> Result<(), String> {
    // They were decided with the Nodes; the ports and servers are read again.
    let mut policy = policy(asked)?;
    policy.safety.all_next_hops_are_ports = true;
    let (seen, Decision { mut removals, .. }) = judged(cloud, asked, &policy, None).await?;
    removals.retain(|one| stale.contains(&one.route));
    if removals.is_empty() {
        return Ok(());
    }
    let applied = routes::apply(cloud, &policy, &seen, &removals, None, None).await;
    applied.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Node that may not be read could be a machine outside of OpenStack, which has no port.
    #[test]
    fn nodes_that_may_not_be_listed_are_not_taken_for_a_cluster_without_nodes() {
        let known = |all| nodes(Some(&Cluster { nodes: all, ..Cluster::default() })).is_some();
        assert!(!known(None) && known(Some(Vec::new())));
        assert!(nodes(None).is_none());
    }
}
