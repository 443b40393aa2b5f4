//! The status text for the user: the network, the route, each Node's standing, and the planned actions.

use std::fmt::Write as _;

use common::plan::Plan;

use crate::config::Config;
use crate::observe::snapshot::{Node, Ready, Snapshot};
use crate::plan::eligibility::{Assessed, Standing, Unfit};
use crate::plan::{self, Action};

/// Text for `natgw status` and `/statusz`.
#[must_use]
pub fn render(config: &Config, snapshot: &Snapshot, plan: &Plan<Action>) -> String {
    let (assessed, primary) = plan::assess(config, snapshot);
    let mut text = String::new();
    let network = &snapshot.network;
    let holder = |ip| {
        assessed.iter().find(|one| one.node.private_ip() == Some(ip)).map_or("no Node", |one| &one.node.name)
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "network  {} ({}, {})", network.name, network.id, network.ip_range);
    let _ = match network.default_route {
        Some(gateway) => writeln!(text, "route    0.0.0.0/0 via {gateway} ({})", holder(gateway)),
        None => writeln!(text, "route    none"),
    };
    let _ = writeln!(text, "primary  {}", primary.map_or("none", |primary| &primary.node.name));
    let width = assessed.iter().map(|one| one.node.name.len()).max().unwrap_or(4).max(4);
    let _ = writeln!(
        text,
        "\n{:width$}  {:15}  {:15}  {:15}  STATE",
        "NODE", "PRIVATE IP", "FLOATING IP", "SET UP FOR"
    );
    for Assessed { node, standing, .. } in &assessed {
        let address = |ip: Option<String>| ip.unwrap_or_else(|| "-".into());
        let _ = writeln!(
            text,
            "{:width$}  {:15}  {:15}  {:15}  {}",
            node.name,
            address(node.private_ip().map(|ip| ip.to_string())),
            address(node.label.clone()),
            address(node.setup.clone().or_else(|| node.client.as_ref().map(|_| "client".into()))),
            state(node, *standing, primary.is_some_and(|primary| primary.node.name == node.name)),
        );
    }
    let _ = write!(text, "\nnext\n{plan}");
    text
}

fn state(node: &Node, standing: Standing, is_primary: bool) -> String {
    let mut words = vec![match standing {
        Standing::Candidate { .. } if is_primary => "primary".to_owned(),
        Standing::Candidate { .. } => "candidate".to_owned(),
        Standing::Eligible(unfit) => format!("eligible, but {}", reason(unfit)),
        Standing::None if !node.selected => "not selected".to_owned(),
        Standing::None if node.client.is_some() => "client".to_owned(),
        Standing::None => "no gateway".to_owned(),
    }];
    if let Some(pending) = &node.pending {
        words.push(format!("pending {pending}"));
    }
    if node.failures > 0 {
        let plural = if node.failures == 1 { "" } else { "s" };
        words.push(format!("{} failure{plural}", node.failures));
        words.extend(node.retry_after.map(|time| format!("next try after {time}")));
    }
    if standing == Standing::None && node.ready != Ready::True {
        words.push("not Ready".to_owned());
    }
    words.join(", ")
}

fn reason(unfit: Unfit) -> &'static str {
    match unfit {
        Unfit::Terminating => "being deleted",
        Unfit::NotReady => "not Ready",
        Unfit::Cordoned => "cordoned",
        Unfit::NotInNetwork => "not in the network",
        Unfit::FloatingIPNotAssigned => "its floating IP is not assigned to its server",
        Unfit::FloatingIPContested => "its floating IP is on another Node too",
        Unfit::Differs => "differs from its setup",
        Unfit::Outdated => "set up with another script",
        Unfit::Unreachable => "without responses to health checks",
    }
}
