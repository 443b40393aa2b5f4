//! The plan for a [`Snapshot`]. Pure: no IO, no clock, no client.
//!
//! Each rule is a module of its own. [`plan`] applies the rules in order.

pub mod action;
pub mod eligibility;
pub mod floating_ip;
pub mod health;
pub mod jobs;
pub mod primary;
pub mod reason;
pub mod records;
mod rollout;
mod route;
mod verification;

use common::plan::{Plan, Regarding};
use jiff::Timestamp;

pub use self::action::Action;
use self::action::NodeRef;
use self::eligibility::Assessed;
use self::primary::Primary;
pub use self::reason::Reason;
use crate::config::Config;
use crate::observe::snapshot::{Node, Snapshot};

pub(crate) type Output = Plan<Action>;

/// Plans the actions that bring the observed state to the desired state.
///
/// Guarantees: once the steps were done and their Jobs have succeeded, the plan is empty in the end; the route is only
/// ever pointed to a candidate; no Job is created on a Node that has another one; natgw removes only objects that its
/// own labels and annotations identify as its own.
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot, now: Timestamp) -> Plan<Action> {
    let mut out = Plan::default();
    if let Some(error) = &snapshot.floating_ips_error {
        out.problem(about_natgw(config), Reason::FloatingIPsUnknown(error.clone()));
    }
    // The rest of the plan uses the labels that this plan writes, so that a label that was removed by mistake tears
    // down no gateway.
    let snapshot = &*floating_ip::labels(config, snapshot, &mut out);
    let assessed = eligibility::assess(config, snapshot, &mut out);
    let elected = primary::elect(&assessed, route::current(snapshot, &assessed));
    let in_use = route::in_use_by_cleanup(config, snapshot, &assessed);
    let primary = if in_use.is_some() {
        None
    } else {
        // The route first: a gateway that is to be torn down loses its traffic before it loses its rules.
        let primary = route::towards(config, snapshot, &assessed, elected, &mut out);
        primary::label(snapshot, primary, &mut out);
        primary
    };
    let traffic = [route::current(snapshot, &assessed), primary.map(|primary| primary.private_ip)];
    let in_rollout = rollout::next(config, snapshot, traffic);
    for node in snapshot.nodes.iter().filter(|node| in_use.is_none_or(|in_use| in_use.name != node.name)) {
        let in_rollout = in_rollout.is_some_and(|(_, next)| next.name == node.name);
        jobs::work(config, snapshot, node, in_rollout, now, &mut out);
    }
    out
}

/// The state of every Node and the primary, for metrics and status. A network with a foreign route that is kept has no primary.
#[must_use]
pub fn assess<'a>(config: &Config, snapshot: &'a Snapshot) -> (Vec<Assessed<'a>>, Option<Primary<'a>>) {
    let assessed = eligibility::assess(config, snapshot, &mut Plan::default());
    let elected = primary::elect(&assessed, route::current(snapshot, &assessed))
        .filter(|primary| !route::is_left_to_others(config, snapshot, &assessed, primary));
    (assessed, elected)
}

/// Whether the plan of this Snapshot moves the route.
#[must_use]
pub fn moves_route(config: &Config, snapshot: &Snapshot) -> bool {
    let (_, elected) = assess(config, snapshot);
    elected.is_some_and(|primary| snapshot.network.default_route != Some(primary.private_ip))
}

/// The object of an Event about one Node.
fn regarding(node: &Node) -> Regarding {
    NodeRef::from(node).regarding()
}

/// The object of Events that concern no single Node: natgw's own namespace.
#[must_use]
pub fn about_natgw(config: &Config) -> Regarding {
    Regarding {
        api_version: "v1",
        kind: "Namespace",
        namespace: None,
        name: config.namespace.clone(),
        uid: None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
