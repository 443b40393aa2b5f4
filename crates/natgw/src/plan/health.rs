//! Gateways that do not respond to health checks.
//!
//! The leader's probes alone prove nothing: the leader may be cut off itself. They count only while another candidate and the third
//! reference have responded in every one of the rounds in which the gateway has not.

use std::net::Ipv4Addr;

use super::eligibility::{Assessed, Standing, Unfit};
use super::reason::Reason;
use super::{Output, floating_ip, regarding, route};
use crate::config::Config;
use crate::observe::health::Limits;
use crate::observe::snapshot::{Node, Snapshot};

/// The Nodes that are probed, with their addresses: each one with a floating IP in its label, also while it is not set up. After a
/// reboot, its results would be lost otherwise, and it could be elected before it has recovered.
pub fn targets(snapshot: &Snapshot) -> impl Iterator<Item = (String, Ipv4Addr)> {
    let gateways = snapshot.nodes.iter().filter(|node| floating_ip::assigned(node).is_some());
    gateways.filter_map(|node| Some((node.name.clone(), node.private_ip()?)))
}

/// Whether its health checks fail, or have failed and it has not recovered, confirmed or not: no reason to leave it, and one not to
/// prefer it.
pub(super) fn is_suspect(config: &Config, snapshot: &Snapshot, node: &Node) -> bool {
    let limits = Limits::new(&config.health_check);
    let probes = snapshot.health.nodes.get(&node.name);
    probes.is_some_and(|probes| probes.is_failing(limits) || probes.is_lost())
}

/// Makes candidates that are unavailable no candidates.
///
/// The Node at the next hop is left only if it does not respond now; any other one is not elected before it has recovered.
pub(super) fn judge(config: &Config, snapshot: &Snapshot, assessed: &mut [Assessed<'_>], out: &mut Output) {
    let limits = Limits::new(&config.health_check);
    let health = &snapshot.health;
    for one in assessed.iter_mut() {
        let probes = health.nodes.get(&one.node.name);
        let is_candidate = matches!(one.standing, Standing::Candidate { .. });
        one.responds = is_candidate && probes.is_some_and(|probes| probes.is_responding(limits));
    }
    let is_confirmed = health.reference.is_responding(limits) && assessed.iter().any(|one| one.responds);
    let current = route::current(snapshot, assessed);
    for one in assessed.iter_mut() {
        let Standing::Candidate { private_ip, .. } = one.standing else { continue };
        let Some(probes) = health.nodes.get(&one.node.name) else { continue };
        let is_failing = probes.is_failing(limits);
        if is_failing {
            out.problem(regarding(one.node), Reason::HealthCheckFailed { is_confirmed });
        }
        if is_confirmed && (is_failing || current != Some(private_ip) && probes.is_lost()) {
            one.standing = Standing::Eligible(Unfit::Unreachable);
        }
    }
}
