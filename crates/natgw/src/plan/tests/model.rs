//! An exhaustive model checker for `plan`: every cluster of a few Nodes that some order of events leads to, every step
//! of every reconciliation, and any event of the environment or a crash between two steps. Run with `--nocapture` to
//! print the numbers of states and transitions.

mod act;
mod bounds;
mod cluster;
mod converge;
mod environment;
mod explore;
mod flaw;
mod law;
mod numbers;
mod view;

use bounds::{Bounds, Seen, Start};
use cluster::{Ip, Ready};
use environment::Alphabet;
use explore::explore;
use flaw::Flaw;

use super::env::{config, config_with};

/// A small set of disturbances, so that longer sequences of them can be explored.
const SMALL: Alphabet = Alphabet {
    labels: [&[Ip::A], &[Ip::B], &[]],
    ready: &[Ready::True, Ready::Unknown],
    reboots: false,
    detaches: false,
    assigns: false,
    foreign_routes: false,
    fails: false,
};

fn bounds(nodes: usize, start: Start, disturbances: usize) -> Bounds {
    Bounds {
        config: config(),
        nodes,
        alphabet: Alphabet::ALL,
        disturbances: Some(disturbances),
        start,
        flaw: Flaw::None,
        refuses_route_and_role: false,
    }
}

fn explore_all(what: &str, bounds: Bounds) {
    let (nodes, start) = (bounds.nodes, bounds.start);
    let most = bounds.disturbances.map_or("any number of".to_owned(), |most| format!("up to {most}"));
    let seen = explore(bounds).unwrap_or_else(|way| panic!("{what}: {way}"));
    println!(
        "plan model: {nodes} Nodes, {what}, {most} disturbances from {start:?}: {} states, {} transitions, depth {}, \
         0 violations; {seen:?}",
        seen.states, seen.transitions, seen.depth
    );
    let Seen { crashes, refused, route_moves, teardowns, .. } = seen;
    assert!(![crashes, refused, route_moves, teardowns].contains(&0), "something was never reached");
}

#[test]
fn one_node_through_everything() {
    explore_all("everything", bounds(1, Start::Labels, 3));
    let alphabet = Alphabet { reboots: true, fails: true, ..SMALL };
    explore_all(
        "labels, readiness, cordons, reboots, failures",
        Bounds { alphabet, disturbances: None, ..bounds(1, Start::Nothing, 0) },
    );
}

#[test]
fn two_nodes_from_every_labelling() {
    explore_all("everything", bounds(2, Start::Labels, 1));
}

#[test]
fn two_gateways() {
    explore_all("everything", bounds(2, Start::Gateways, 2));
    for settings in ["adoptForeignRoute: false", "onNoCandidate: remove"] {
        let config = config_with(settings);
        explore_all(&format!("everything, {settings}"), Bounds { config, ..bounds(2, Start::Gateways, 2) });
    }
}

#[test]
fn two_gateways_through_more_trouble() {
    explore_all("labels, readiness, cordons", Bounds { alphabet: SMALL, ..bounds(2, Start::Gateways, 4) });
}

/// Law of defect 25: a refused write of the route or of the role label stops no Node.
#[test]
fn defect_25_refused_writes_of_route_and_role_stop_no_node() {
    for start in [Start::Gateways, Start::Labels] {
        let most = if start == Start::Labels { 1 } else { 2 };
        let bounds = Bounds { refuses_route_and_role: true, ..bounds(2, start, most) };
        let seen = explore(bounds).unwrap_or_else(|way| panic!("{way}"));
        assert!(seen.refused > 0 && seen.teardowns > 0, "{seen:?}");
    }
}

#[test]
fn three_nodes() {
    explore_all("everything", bounds(3, Start::Nothing, 2));
    explore_all("everything", bounds(3, Start::Gateways, 2));
}

/// Law of the health checks: no move without need, and one wherever there is need.
#[test]
fn health_checks_move_the_route_with_need_only() {
    let alphabet = Alphabet { ready: &[Ready::True], ..SMALL };
    for (nodes, most) in [(2, 4), (3, 2)] {
        let bounds = Bounds { alphabet, ..bounds(nodes, Start::Probed, most) };
        explore_all("labels, cordons, health checks", bounds);
    }
}

/// Law of defect 24: the last gateway stays.
#[test]
fn defect_24_no_list_of_floating_ips_takes_the_last_gateway() {
    let alphabet = Alphabet { labels: [&[]; 3], ready: &[Ready::True], assigns: true, ..SMALL };
    let config = config_with("floatingIPs: {label: true}");
    explore_all("assignments", Bounds { config, alphabet, ..bounds(2, Start::Managed, 4) });
}

#[test]
fn each_flaw_is_caught() {
    for flaw in Flaw::ALL {
        let refuses_route_and_role = matches!(flaw, Flaw::SharedFate | Flaw::IgnoresFailures);
        let start = match flaw {
            Flaw::TrustsTheList => Start::Managed,
            _ if flaw.needs_probes() => Start::Probed,
            _ => Start::Gateways,
        };
        let bounds = Bounds { config: flaw.config(), flaw, refuses_route_and_role, ..bounds(2, start, 2) };
        let Err(way) = explore(bounds) else { panic!("{flaw:?} was not caught") };
        println!("plan model: {flaw:?} is caught: {}", way.lines().next().unwrap());
    }
}
