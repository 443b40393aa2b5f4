//! Setups that run again, because the script, its environment or the network's range has changed, or because the Node differs from its
//! setup: one Node at a time, the gateway with the traffic last, and only after the route has moved. A setup that fails stops the
//! rollout, since the Node stays pending.

use std::net::Ipv4Addr;

use super::eligibility::{Assessed, Standing, Unfit};
use super::reason::Reason;
use super::{Output, health, jobs, regarding, route, verification};
use crate::config::Config;
use crate::observe::snapshot::{Node, Snapshot};
use crate::task::Role;

/// The Node whose setup runs again now, gateways before clients. `traffic`: the addresses that have the traffic before and after
/// this plan. A gateway that gets the route in this plan is not set up again in the same plan: it would have no rules for a moment,
/// and would be no candidate.
pub(super) fn next<'a>(
    config: &Config,
    snapshot: &'a Snapshot,
    traffic: [Option<Ipv4Addr>; 2],
) -> Option<(Role, &'a Node)> {
    let differs = |node: &Node| verification::differs(config, snapshot, node);
    // Another one would stay pending, and block the others.
    let nodes = || snapshot.nodes.iter().filter(|node| node.can_be_set_up());
    // No gateway forwards the traffic: no setup that has failed elsewhere, or cannot go on, may delay that of one that only differs, and
    // nothing may delay that of the one with the traffic.
    if let [current, None] = traffic {
        let is_at_work = nodes().any(|node| jobs::is_set_up_again(node) && node.failures == 0);
        let has_traffic = |node: &Node| current.is_some() && node.private_ip() == current;
        let repairable = nodes()
            .filter(|node| has_traffic(node) || !is_at_work)
            .filter(|node| differs(node) && jobs::outdated(config, snapshot, node).is_some());
        if let Some(node) = repairable.min_by_key(|node| (!has_traffic(node), &node.name)) {
            return Some((Role::Gateway, node));
        }
    }
    if snapshot.nodes.iter().any(jobs::is_set_up_again) {
        return None;
    }
    let others = nodes().filter(|node| !traffic.contains(&node.private_ip()));
    let outdated = others.filter_map(|node| Some((jobs::outdated(config, snapshot, node)?.role, node)));
    outdated.min_by_key(|(role, node)| (!differs(node), *role, &node.name))
}

/// The route leaves an outdated gateway when all others are up to date.
pub(super) fn judge(config: &Config, snapshot: &Snapshot, assessed: &mut [Assessed<'_>], out: &mut Output) {
    let Some(current) = route::current(snapshot, assessed) else { return };
    let is_outdated = |node: &Node| jobs::outdated(config, snapshot, node).is_some();
    let is_candidate = |one: &Assessed<'_>| matches!(one.standing, Standing::Candidate { .. });
    let is_current = |one: &Assessed<'_>| one.node.private_ip() == Some(current);
    if !assessed.iter().any(|one| is_current(one) && is_candidate(one) && is_outdated(one.node))
        || snapshot.nodes.iter().any(jobs::is_set_up_again)
        || next(config, snapshot, [Some(current), None]).is_some_and(|(role, _)| role == Role::Gateway)
    {
        return;
    }
    let is_ready = |one: &Assessed<'_>| is_candidate(one) && !health::is_suspect(config, snapshot, one.node);
    let is_replaced = assessed.iter().any(|one| !is_current(one) && is_ready(one) && !is_outdated(one.node));
    if let Some(one) = assessed.iter_mut().find(|one| is_current(one)) {
        if is_replaced {
            one.standing = Standing::Eligible(Unfit::Outdated);
        } else {
            out.problem(regarding(one.node), Reason::SetupOutdated);
        }
    }
}
