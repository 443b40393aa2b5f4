//! The standing of each Node: whether it is set up as a gateway, and whether it could be the primary.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::floating_ip::{self, Claim};
use super::jobs;
use super::reason::Reason;
use super::{Output, health, regarding, rollout, verification};
use crate::config::{Config, Mode};
use crate::observe::snapshot::{Node, Ready, Server, Snapshot};

/// The state of a Node in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Set up for the IP in its label, Ready, not cordoned, attached to the network: it could be the primary.
    Candidate {
        /// Its address in the network: the next hop.
        private_ip: Ipv4Addr,
        /// Its server ID.
        server: u64,
    },
    /// Set up for the IP in its label, but not able to be the primary, for this reason.
    Eligible(Unfit),
    /// Not a gateway (yet).
    None,
}

/// Why an eligible Node is no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unfit {
    /// deletionTimestamp is set.
    Terminating,
    /// Not Ready, or the kubelet does not report.
    NotReady,
    /// spec.unschedulable
    Cordoned,
    /// No address in the network.
    NotInNetwork,
    /// The floating IP is assigned to another server or to none, or the project does not have it.
    FloatingIPNotAssigned,
    /// Another Node has the same label, and there is no list of floating IPs.
    FloatingIPContested,
    /// Its last verification has found that it differs from its setup.
    Differs,
    /// It was set up with another script or environment, and all other gateways with the present one.
    Outdated,
    /// It does not respond to health checks, or has not for long enough since it did not.
    Unreachable,
}

/// A Node with its standing.
pub struct Assessed<'a> {
    /// The Node.
    pub node: &'a Node,
    /// Its state in the election.
    pub standing: Standing,
    /// It is a candidate that has responded to the last health checks. False without health checks.
    pub responds: bool,
}

/// Evaluates every Node. Reports invalid and duplicate label values.
pub(super) fn assess<'a>(config: &Config, snapshot: &'a Snapshot, out: &mut Output) -> Vec<Assessed<'a>> {
    let duplicates = floating_ip::duplicates(snapshot);
    for (ip, nodes) in &duplicates {
        let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        for node in nodes {
            out.problem(regarding(node), Reason::DuplicateFloatingIP { ip: *ip, nodes: names.clone() });
        }
    }
    let mut assessed: Vec<Assessed<'a>> = snapshot
        .nodes
        .iter()
        .map(|node| {
            report_label(snapshot, node, out);
            Assessed { node, standing: standing(config, snapshot, node, &duplicates), responds: false }
        })
        .collect();
    health::judge(config, snapshot, &mut assessed, out);
    rollout::judge(config, snapshot, &mut assessed, out);
    assessed
}

fn standing(
    config: &Config,
    snapshot: &Snapshot,
    node: &Node,
    duplicates: &BTreeMap<Ipv4Addr, Vec<&Node>>,
) -> Standing {
    let Some(ip) = floating_ip::assigned(node) else { return Standing::None };
    if config.mode == Mode::Cleanup || !jobs::is_settled_gateway(config, snapshot, node, ip) {
        return Standing::None;
    }
    let (server, private_ip) = match node.server {
        Server::Cloud { id, private_ip: Some(private_ip) } => (id, private_ip),
        Server::Cloud { private_ip: None, .. } | Server::Unknown => {
            return Standing::Eligible(Unfit::NotInNetwork);
        }
        Server::Robot => return Standing::None,
    };
    let is_current = snapshot.network.default_route == Some(private_ip);
    let claim = floating_ip::claim(snapshot, node, ip);
    if node.terminating {
        Standing::Eligible(Unfit::Terminating)
    } else if node.ready != Ready::True {
        Standing::Eligible(Unfit::NotReady)
    } else if node.cordoned {
        Standing::Eligible(Unfit::Cordoned)
    } else if matches!(claim, Claim::Denied(_)) {
        Standing::Eligible(Unfit::FloatingIPNotAssigned)
    } else if verification::differs(config, snapshot, node) {
        Standing::Eligible(Unfit::Differs)
    } else if claim == Claim::Unknown && duplicates.contains_key(&ip) && !is_current {
        Standing::Eligible(Unfit::FloatingIPContested)
    } else {
        Standing::Candidate { private_ip, server }
    }
}

/// Reports why a Node with a floating-IP label cannot become a gateway with it.
fn report_label(snapshot: &Snapshot, node: &Node, out: &mut Output) {
    let (true, Some(label)) = (node.selected, &node.label) else { return };
    let Some(ip) = floating_ip::parse(label) else {
        out.problem(regarding(node), Reason::InvalidFloatingIP(label.clone()));
        return;
    };
    if let (Server::Cloud { .. }, Claim::Denied(assignment)) =
        (node.server, floating_ip::claim(snapshot, node, ip))
    {
        out.problem(regarding(node), Reason::FloatingIPNotAssigned { ip, assignment });
    }
    match node.server {
        Server::Robot => out.problem(regarding(node), Reason::UnsupportedServer),
        Server::Unknown => out.problem(regarding(node), Reason::ServerNotFound),
        Server::Cloud { private_ip: None, .. } => {
            out.problem(regarding(node), Reason::ServerNotInNetwork(snapshot.network.name.clone()));
        }
        Server::Cloud { private_ip: Some(_), .. } => {}
    }
}
