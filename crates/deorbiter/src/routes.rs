//! The cluster's routes on its router, by the rules of routegc: a route whose next hop exists is never removed.

use common::api::deorbit::Routes;
use common::api::period::Period;
use common::api::routegc::Safety;
use common::cloud::openstack::Cloud;
use common::routes::plan::{History, RouteClass};
use common::routes::{self, Decision, Policy, Route, Snapshot};
use jiff::Timestamp;

use crate::observe::snapshot::{self as seen, DoubtfulRoute};

/// The rules for a cluster that is being deleted: no confirmation by a later reconciliation, and no limit for the number of routes.
fn policy(asked: &Routes) -> Result<Policy, String> {
    let safety = Safety {
        confirmations: 1,
        min_age: Period::seconds(0),
        max_removals: u32::MAX,
        max_percent: 100,
        all_next_hops_are_ports: true,
        ..Safety::default()
    };
    Policy::new(&asked.pod_cidrs, None, &safety)
        .map_err(|error| format!("spec.resources.routes.podCIDRs: {error}"))
}

/// Routes into the pod networks that are not in use, as far as OpenStack shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// Their next hop does not exist.
    pub stale: Vec<Route>,
    /// Their next hop is not found but may exist: they are never removed.
    pub doubtful: Vec<DoubtfulRoute>,
}

/// Adds what is known of the router's routes, or why nothing is.
pub async fn add_to(cloud: &Cloud, asked: &Routes, seen: &mut seen::Cloud) {
    match unused(cloud, asked).await {
        Ok(unused) => {
            seen.routes = unused.stale;
            seen.doubtful_routes = unused.doubtful;
        }
        Err(why) => seen.routes_unread = Some(why),
    }
}

async fn judged(cloud: &Cloud, asked: &Routes) -> Result<(Policy, Snapshot, Decision), String> {
    let policy = policy(asked)?;
    let seen =
        routes::observe(cloud, &policy, &asked.router_id, None).await.map_err(|error| error.to_string())?;
    let decision = routes::plan(&policy, &seen, &History::default(), None, Timestamp::now());
    Ok((policy, seen, decision))
}

/// Reads the router, and everything that could be a next hop.
///
/// # Errors
/// What could not be read completely.
pub async fn unused(cloud: &Cloud, asked: &Routes) -> Result<Unused, String> {
    let (_, _, decision) = judged(cloud, asked).await?;
    let doubtful = decision.classified.into_iter().filter_map(|one| match one.class {
        RouteClass::Unknown(_) | RouteClass::Covered(_) | RouteClass::Invalid(_) => {
            Some(DoubtfulRoute { why: one.class.why(), route: one.route })
        }
        RouteClass::Foreign | RouteClass::Valid(_) | RouteClass::Orphan(_) => None,
    });
    let doubtful = doubtful.collect();
    Ok(Unused { stale: decision.removals.into_iter().map(|one| one.route).collect(), doubtful })
}

/// Removes those of `routes` that are still stale.
///
/// # Errors
/// Why nothing was removed.
pub async fn remove(cloud: &Cloud, asked: &Routes, routes: &[Route]) -> Result<(), String> {
    let (policy, seen, Decision { mut removals, .. }) = judged(cloud, asked).await?;
    removals.retain(|one| routes.contains(&one.route));
    if removals.is_empty() {
        return Ok(());
    }
    let applied = routes::apply(cloud, &policy, &seen, &removals, None, None).await;
    applied.map(drop).map_err(|error| error.to_string())
}
