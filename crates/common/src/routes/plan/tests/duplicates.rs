//! Several routes to the pod network of one Node.

use super::env::{at, classes, holder, ip, policy, removed, second_pass, snapshot};
use crate::routes::plan::{History, plan};
use crate::routes::policy::Policy;
use crate::routes::snapshot::Holder;

/// R6: with two routes to one Node's network the router would share its traffic out to a stranger.
#[test]
fn of_two_routes_to_a_node_the_stranger_s_goes() {
    let routes =
        [("10.244.1.0/24", "10.0.0.11"), ("10.244.1.0/24", "10.0.0.12"), ("10.244.1.0/24", "10.9.0.5")];
    let env = snapshot(&routes).server("server-of-node-1", "10.0.0.11").server("s2", "10.0.0.12");
    assert_eq!(classes(&env), ["valid", "valid", "unknown"], "nobody can say which, without Nodes");
    let known = env.clone().node("node-1", "10.0.0.11", "10.244.1.0/24");
    assert_eq!(classes(&known), ["valid", "NodeHasAnother", "unknown"]);
    let own_is_missing = env.clone().node("node-1", "10.0.0.77", "10.244.1.0/24");
    assert_eq!(classes(&own_is_missing), ["valid", "valid", "unknown"]);
    let two_claim_it = known.node("node-2", "10.0.0.12", "10.244.1.0/24");
    assert_eq!(classes(&two_claim_it), ["valid", "valid", "unknown"]);
    let counts = plan(&policy(), &two_claim_it, &History::default(), None, at(0)).counts;
    assert_eq!((counts.duplicates, counts.valid, counts.unknown), (3, 2, 1));
}

/// A Node lists addresses that it had once, where no controller manager keeps them, and not every one that it has.
#[test]
fn a_node_s_word_alone_removes_no_live_route() {
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
    let stranger = env().server("server-of-node-1", "10.0.0.11").server("s2", "10.0.0.12");
    assert_eq!(classes(&stranger), ["valid", "NodeHasAnother"]);
}

/// Nova's list is of one project, and its servers' ports may be another's; some ports do not say whose they are at all.
#[test]
fn a_machine_that_is_no_server_of_ours_is_told_apart_by_its_ports_alone() {
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
    assert_eq!(classes(&nameless), ["valid", "valid"], "nothing says which machine is the Node's");
}

/// A second address of the Node's machine may stand nowhere but in a range.
#[test]
fn a_range_of_the_node_s_own_port_may_have_the_other_next_hop() {
    let routes = [("10.244.1.0/24", "10.0.0.11"), ("10.244.1.0/24", "10.0.0.50")];
    let env = snapshot(&routes).server("server-of-node-1", "10.0.0.11").server("s2", "10.0.0.12");
    let env = env.node("node-1", "10.0.0.11", "10.244.1.0/24");
    let pair = |port: &str, server: Option<&str>| env.clone().pair(port, server, "nodes", "10.0.0.0/24");
    assert_eq!(classes(&env), ["valid", "NodeHasAnother"]);
    assert_eq!(classes(&pair("p", Some("server-of-node-1"))), ["valid", "unknown"]);
    assert_eq!(classes(&pair("port-of-server-of-node-1", None)), ["valid", "unknown"], "the port says so");
    assert_eq!(classes(&pair("p", Some("s2"))), ["valid", "NodeHasAnother"], "another machine's");
    let claimed = pair("p", Some("server-of-node-1")).node("node-2", "10.0.0.50", "10.244.2.0/24");
    assert_eq!(classes(&claimed), ["valid", "valid"], "another Node's, as far as it says itself");
    let seen = claimed.server("server-of-node-2", "10.0.0.50");
    assert_eq!(classes(&seen), ["valid", "NodeHasAnother"], "another Node's");
    let mut open = env.clone();
    open.open.push(holder("p", "nodes", Some("server-of-node-1")));
    assert_eq!(classes(&open), ["valid", "unknown"]);
    let ignoring = Policy { ignore_open_ports: true, ..policy() };
    assert_eq!(removed(&second_pass(&ignoring, &open, None)), ["10.244.1.0/24 via 10.0.0.50"]);
}
