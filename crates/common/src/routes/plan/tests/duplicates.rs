//! Several routes to the pod network of one Node.

use super::env::{
    at, classes, holder, ip, policy, policy_with, removed, safety, second_reconciliation, snapshot,
};
use crate::api::routegc::Safety;
use crate::routes::plan::{History, plan};
use crate::routes::snapshot::Holder;

/// R6: with two routes to one Node's network, the router would send part of the traffic to another machine.
#[test]
fn of_two_routes_to_a_node_the_one_to_another_machine_is_orphaned() {
    let routes =
        [("10.244.1.0/24", "10.0.0.11"), ("10.244.1.0/24", "10.0.0.12"), ("10.244.1.0/24", "10.9.0.5")];
    let env = snapshot(&routes).server("server-of-node-1", "10.0.0.11").server("s2", "10.0.0.12");
    assert_eq!(classes(&env), ["valid", "valid", "unknown"], "without Nodes it is not known which");
    let known = env.clone().node("node-1", "10.0.0.11", "10.244.1.0/24");
    assert_eq!(classes(&known), ["valid", "NodeHasAnother", "unknown"]);
    let own_is_missing = env.clone().node("node-1", "10.0.0.77", "10.244.1.0/24");
    assert_eq!(classes(&own_is_missing), ["valid", "valid", "unknown"]);
    let two_owners = known.node("node-2", "10.0.0.12", "10.244.1.0/24");
    assert_eq!(classes(&two_owners), ["valid", "valid", "unknown"]);
    let counts = plan(&policy(), &two_owners, &History::default(), None, at(0)).counts;
    assert_eq!((counts.duplicates, counts.valid, counts.unknown), (3, 2, 1));
}

/// Without a cloud controller manager, a Node may list old addresses and omit current ones.
#[test]
fn the_status_of_a_node_alone_makes_no_route_orphaned() {
    let routes = [("10.244.1.0/24", "10.0.0.11"), ("10.244.1.0/24", "10.0.0.12")];
    let env = || snapshot(&routes).node("node-1", "10.0.0.11", "10.244.1.0/24");
    let stale = env().server("server-of-node-1", "10.0.0.12");
    assert_eq!(classes(&stale), ["valid", "valid"], "its port was replaced");
    assert_eq!(classes(&env().server("s2", "10.0.0.12")), ["valid", "valid"], "the own route has no port");
    let reused = stale.clone().server("s2", "10.0.0.11");
    assert_eq!(classes(&reused), ["valid", "valid"], "its old address is another server's by now");
    let two_cards = stale.clone().server("server-of-node-1", "10.0.0.11");
    assert_eq!(classes(&two_cards), ["valid", "valid"], "both are the Node's machine's");
    let mut nameless = env().port("p1", Some("s1"), "10.0.0.11").port("p2", Some("s1"), "10.0.0.12");
    nameless.servers.as_mut().unwrap().ids.insert("s1".to_owned());
    nameless.nodes.as_mut().unwrap()[0].server = None;
    assert_eq!(classes(&nameless), ["valid", "valid"], "the Node names no server, the ports do");
    let pair = env().port("p1", None, "10.0.0.11").port("p1", None, "10.0.0.12");
    assert_eq!(classes(&pair), ["valid", "valid"], "an address pair of its own port");
    let left_over = env().port("p1", Some("server-of-node-1"), "10.0.0.11").server("s2", "10.0.0.12");
    assert_eq!(classes(&left_over), ["valid", "valid"], "the port of the own route has no server");
    let foreign = env().server("server-of-node-1", "10.0.0.11").server("s2", "10.0.0.12");
    assert_eq!(classes(&foreign), ["valid", "NodeHasAnother"]);
}

/// Nova lists one project, and the ports of its servers may belong to another; some ports name no machine.
#[test]
fn a_machine_of_another_project_is_identified_by_its_ports() {
    let routes = [("10.244.1.0/24", "10.0.0.11"), ("10.244.1.0/24", "10.0.0.12")];
    let env = |own: Option<&str>, other: Option<&str>| {
        let mut env = snapshot(&routes).node("node-1", "10.0.0.11", "10.244.1.0/24");
        env.servers.get_or_insert_default().others = true;
        for (address, machine) in [("10.0.0.11", own), ("10.0.0.12", other)] {
            let machine = machine.map(str::to_owned);
            let port = Holder { machine, ..holder(&format!("port-at-{address}"), "nodes", None) };
            env.ports.entry(ip(address)).or_default().push(port);
        }
        env
    };
    let node = Some("server-of-node-1");
    assert_eq!(classes(&env(Some("s2"), node)), ["valid", "valid"], "its old address is another's by now");
    assert_eq!(classes(&env(node, node)), ["valid", "valid"], "two cards of its machine");
    assert_eq!(classes(&env(node, None)), ["valid", "valid"], "a trunk's subport may be its machine's");
    assert_eq!(classes(&env(None, node)), ["valid", "valid"]);
    assert_eq!(classes(&env(node, Some("s2"))), ["valid", "NodeHasAnother"]);
    let mut nameless = env(None, Some("s2"));
    nameless.nodes.as_mut().unwrap()[0].server = None;
    assert_eq!(classes(&nameless), ["valid", "valid"], "the machine of the Node is not known");
}

/// A second address of the Node's machine may be covered only by a range.
#[test]
fn an_address_pair_of_the_nodes_own_port_may_cover_the_other_next_hop() {
    let routes = [("10.244.1.0/24", "10.0.0.11"), ("10.244.1.0/24", "10.0.0.50")];
    let env = snapshot(&routes).server("server-of-node-1", "10.0.0.11").server("s2", "10.0.0.12");
    let env = env.node("node-1", "10.0.0.11", "10.244.1.0/24");
    let pair = |port: &str, server: Option<&str>| env.clone().pair(port, server, "nodes", "10.0.0.0/24");
    assert_eq!(classes(&env), ["valid", "NodeHasAnother"]);
    assert_eq!(classes(&pair("p", Some("server-of-node-1"))), ["valid", "unknown"]);
    assert_eq!(classes(&pair("port-of-server-of-node-1", None)), ["valid", "unknown"], "the port says so");
    assert_eq!(classes(&pair("p", Some("s2"))), ["valid", "NodeHasAnother"], "another machine's");
    let claimed = pair("p", Some("server-of-node-1")).node("node-2", "10.0.0.50", "10.244.2.0/24");
    assert_eq!(classes(&claimed), ["valid", "valid"], "another Node's, according to its status only");
    let seen = claimed.server("server-of-node-2", "10.0.0.50");
    assert_eq!(classes(&seen), ["valid", "NodeHasAnother"], "another Node's");
    let mut open = env.clone();
    open.open.push(holder("p", "nodes", Some("server-of-node-1")));
    assert_eq!(classes(&open), ["valid", "unknown"]);
    let ignoring = policy_with(&Safety { ignore_open_ports: true, ..safety() });
    assert_eq!(removed(&second_reconciliation(&ignoring, &open, None)), ["10.244.1.0/24 via 10.0.0.50"]);
}
