//! The cluster's routes on its router: judged as routegc judges them, so that one whose next hop lives is never removed.

use common::api::deorbit::Routes;
use common::api::period::Period;
use common::api::routegc::Safety;
use common::cloud::openstack::Cloud;
use common::routes::plan::Removal;
use common::routes::plan::confirm::Memory;
use common::routes::{self, Policy, Snapshot};
use jiff::Timestamp;

use crate::observe::snapshot::Route;

/// The rules of a run that is the last to look: the cluster is gone, so nobody is waited for, and all of its routes may go.
fn policy(asked: &Routes) -> Result<Policy, String> {
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

async fn judged(cloud: &Cloud, asked: &Routes) -> Result<(Policy, Snapshot, Vec<Removal>), String> {
    let policy = policy(asked)?;
    let seen =
        routes::observe(cloud, &policy, &asked.router_id, None).await.map_err(|error| error.to_string())?;
    let decision = routes::plan(&policy, &seen, &Memory::default(), None, Timestamp::now());
    Ok((policy, seen, decision.removals))
}

/// Routes into the pod networks that lead to nobody.
///
/// # Errors
/// Whatever could not be seen whole, for a person.
pub async fn dead(cloud: &Cloud, asked: &Routes) -> Result<Vec<Route>, String> {
    let (_, _, removals) = judged(cloud, asked).await?;
    let plain = |one: Removal| Route { destination: one.route.destination, nexthop: one.route.nexthop };
    Ok(removals.into_iter().map(plain).collect())
}

/// Removes those of `routes` that still lead to nobody.
///
/// # Errors
/// Why nothing was removed, for a person.
pub async fn remove(cloud: &Cloud, asked: &Routes, routes: &[Route]) -> Result<(), String> {
    let (policy, seen, mut removals) = judged(cloud, asked).await?;
    removals.retain(|one| {
        routes.iter().any(|two| two.destination == one.route.destination && two.nexthop == one.route.nexthop)
    });
    if removals.is_empty() {
        return Ok(());
    }
    let applied = routes::apply(cloud, &policy, &seen, &removals, None).await;
    applied.map(drop).map_err(|error| error.to_string())
}
