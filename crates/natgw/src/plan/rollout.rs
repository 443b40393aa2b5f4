//! The rollout of a changed setup script or environment: one Node at a time, the gateway with the traffic last, and only after the
//! route has moved. A setup that fails stops the rollout, since the Node stays pending.

use std::net::Ipv4Addr;

use super::eligibility::{Assessed, Standing, Unfit};
use super::reason::Reason;
use super::{Output, jobs, regarding, route};
use crate::config::Config;
use crate::observe::snapshot::{Node, Ready, Snapshot};
use crate::task::Role;

/// The Node whose setup runs again now, gateways before clients. `current`: the address that has the traffic.
pub(super) fn next<'a>(
    config: &Config,
    snapshot: &'a Snapshot,
    current: Option<Ipv4Addr>,
) -> Option<(Role, &'a Node)> {
    if snapshot.nodes.iter().any(jobs::is_set_up_again) {
        return None;
    }
    let has_traffic = |node: &Node| current.is_some() && node.private_ip() == current;
    let nodes = snapshot.nodes.iter().filter(|node| node.ready != Ready::Unknown && !has_traffic(node));
    let outdated = nodes.filter_map(|node| Some((jobs::outdated(config, snapshot, node)?.role, node)));
    outdated.min_by_key(|(role, node)| (*role, &node.name))
}

/// The route leaves an outdated gateway when all others are up to date.
pub(super) fn judge(config: &Config, snapshot: &Snapshot, assessed: &mut [Assessed<'_>], out: &mut Output) {
    let Some(current) = route::current(snapshot, assessed) else { return };
    let is_outdated = |node: &Node| jobs::outdated(config, snapshot, node).is_some();
    let is_candidate = |one: &Assessed<'_>| matches!(one.standing, Standing::Candidate { .. });
    let is_current = |one: &Assessed<'_>| one.node.private_ip() == Some(current);
    if !assessed.iter().any(|one| is_current(one) && is_candidate(one) && is_outdated(one.node))
        || snapshot.nodes.iter().any(jobs::is_set_up_again)
        || next(config, snapshot, Some(current)).is_some_and(|(role, _)| role == Role::Gateway)
    {
        return;
    }
    let is_replaced =
        assessed.iter().any(|one| !is_current(one) && is_candidate(one) && !is_outdated(one.node));
    if let Some(one) = assessed.iter_mut().find(|one| is_current(one)) {
        if is_replaced {
            one.standing = Standing::Eligible(Unfit::Outdated);
        } else {
            out.problem(regarding(one.node), Reason::SetupOutdated);
        }
    }
}
