//! Random states: no removal is unsafe, and what was removed is not planned again.

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::env::{at, holder, ip, policy, snapshot};
use crate::routes::plan::{Decision, History, OrphanReason, plan};
use crate::routes::snapshot::{Holder, Node, Snapshot};

const DESTINATIONS: [&str; 8] = [
    "10.244.1.0/24",
    "10.244.2.0/24",
    "10.244.0.0/16",
    "10.244.0.0/15",
    "192.168.0.0/24",
    "fd00:10:0:1::/64",
    "fd00:0010:0:1:0::/64",
    "nonsense",
];
const ADDRESSES: [&str; 9] = [
    "10.0.0.1",
    "10.0.0.11",
    "10.0.0.12",
    "10.0.0.13",
    "10.9.0.5",
    "203.0.113.7",
    "fd00:1::11",
    "fd00:1:0::11",
    "fd00:1::12",
];

#[derive(Clone, Debug)]
enum Fact {
    /// An address of the server of the Node that has the first one.
    Server(&'static str, &'static str),
    Stray(&'static str),
    Port(&'static str),
    Nova(&'static str),
    Node(&'static str, &'static str),
    /// A range, the network of the port that has it, and the port's server.
    Pair(&'static str, &'static str, Option<&'static str>),
    /// The server of a port without port security.
    Open(Option<&'static str>),
    Hidden,
    NoNova,
    Others,
}

fn fact() -> impl Strategy<Value = Fact> {
    let address = || select(&ADDRESSES[..]);
    let range = select(&["10.0.0.8/29", "10.0.0.0/24", "fd00:1::/64"][..]);
    let server = || select(&[None, Some("deleted"), Some("server-of-10.0.0.11")][..]);
    let pod_net = select(&["10.244.1.0/24", "10.244.2.0/24", "fd00:10:0:1::/64"][..]);
    prop_oneof![
        address().prop_map(|address| Fact::Server(address, address)),
        (address(), address()).prop_map(|(node, address)| Fact::Server(node, address)),
        address().prop_map(Fact::Stray),
        address().prop_map(Fact::Port),
        address().prop_map(Fact::Nova),
        (address(), pod_net).prop_map(|(address, net)| Fact::Node(address, net)),
        (range, select(&["nodes", "theirs", "hidden"][..]), server())
            .prop_map(|(range, network, server)| Fact::Pair(range, network, server)),
        server().prop_map(Fact::Open),
        Just(Fact::Hidden),
        Just(Fact::NoNova),
        Just(Fact::Others),
    ]
}

fn env() -> impl Strategy<Value = Snapshot> {
    let routes = vec((select(&DESTINATIONS[..]), select(&ADDRESSES[..])), 0..12);
    (routes, vec(fact(), 0..6)).prop_map(|(routes, facts)| {
        let mut env = snapshot(&routes);
        for fact in facts {
            env = match fact {
                Fact::Server(node, address) => env.server(&format!("server-of-{node}"), address),
                Fact::Stray(address) => env.port("stray", Some("deleted"), address),
                Fact::Port(address) => env.port("port", None, address),
                Fact::Node(address, net) => env.node(address, address, net),
                Fact::Nova(address) => {
                    env.servers
                        .get_or_insert_default()
                        .addresses
                        .insert(ip(address), ["s".to_owned()].into());
                    env
                }
                Fact::Pair(net, network, server) => env.pair("wide", server, network, net),
                Fact::Open(server) => {
                    env.open.push(holder("open", "nodes", server));
                    env
                }
                Fact::Hidden => Snapshot { hidden: true, ..env },
                Fact::NoNova => Snapshot { servers: None, ..env },
                Fact::Others => {
                    env.servers.get_or_insert_default().others = true;
                    env
                }
            };
        }
        env
    })
}

/// Checks what may be removed, independently of the plan's code.
fn assert_safe(env: &Snapshot, decision: &Decision) {
    for removal in &decision.removals {
        let text = removal.route.to_string();
        let destination: IpNet = removal.route.destination.parse().expect(&text);
        let nexthop = ip(&removal.route.nexthop);
        let ours: [IpNet; 2] = ["10.244.0.0/16".parse().unwrap(), "fd00:10::/56".parse().unwrap()];
        assert!(ours.iter().any(|net| net.contains(&destination)), "foreign: {text}");
        assert!(!env.own.contains(&nexthop), "the router itself: {text}");
        assert!(!"10.9.0.0/24".parse::<IpNet>().unwrap().contains(&nexthop), "not visible: {text}");
        let visible = ["10.0.0.0/24", "fd00:1::/64"];
        assert!(
            visible.iter().any(|net| net.parse::<IpNet>().unwrap().contains(&nexthop)),
            "nowhere: {text}"
        );
        assert!(
            removal.observations >= 2 && at(10).duration_since(removal.first_seen).as_mins() >= 5,
            "{text}"
        );
        let nova = env.servers.as_ref();
        let known = |id: &String| nova.is_none_or(|nova| nova.others || nova.ids.contains(id));
        let pairs = env.pairs.iter().filter(|(net, port)| net.contains(&nexthop) && port.network != "theirs");
        let mut users: Vec<&Holder> = pairs.map(|(_, port)| port).chain(&env.open).collect();
        users.retain(|port| port.server.as_ref().is_none_or(known));
        if let OrphanReason::NodeHasAnother { node, nexthop: own } = &removal.reason {
            let node = env.nodes.iter().flatten().find(|one| one.name == *node).expect(&text);
            assert!(node.pod_cidrs.contains(&destination.trunc()) && !node.addresses.contains(&nexthop));
            assert!(node.addresses.contains(&ip(own)), "{text}");
            let servers = |address| -> Vec<&String> {
                env.ports.get(&address).into_iter().flatten().flat_map(|holder| &holder.server).collect()
            };
            assert!(env.ports.contains_key(&ip(own)), "the own route is orphaned: {text}");
            let here: Vec<_> = servers(ip(own)).into_iter().chain(&node.server).collect();
            assert!(!servers(nexthop).iter().any(|id| here.contains(id)), "the Node's machine: {text}");
            let is_another = |one: &Node| one.name != node.name && one.addresses.contains(&nexthop);
            let theirs = env.nodes.iter().flatten().any(is_another) && env.ports.contains_key(&nexthop);
            let mut may = users.iter().filter_map(|port| port.server.as_ref());
            assert!(theirs || !may.any(|id| here.contains(&id)), "the Node's machine may have it: {text}");
            assert!(env.routes.iter().any(|route| route.nexthop.parse() == Ok(ip(own))), "{text}");
            continue;
        }
        let holders = env.ports.get(&nexthop).into_iter().flatten();
        for holder in holders {
            assert!(holder.server.as_ref().is_some_and(|id| !known(id)), "a port exists: {text}");
        }
        assert!(!nova.is_some_and(|nova| nova.addresses.contains_key(&nexthop)), "Nova: {text}");
        assert!(!env.nodes.iter().flatten().any(|node| node.addresses.contains(&nexthop)), "a Node: {text}");
        assert!(users.is_empty(), "a wide pair or an open port: {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn no_removal_is_unsafe_and_every_state_converges(env in env(), before in env()) {
        let policy = policy();
        let first = plan(&policy, &before, &History::default(), None, at(0));
        prop_assert!(first.removals.is_empty(), "at the first observation");
        let second = plan(&policy, &env, &first.history, None, at(10));
        assert_safe(&env, &second);
        for removal in &second.removals {
            prop_assert!(before.routes.contains(&removal.route), "one reconciliation confirms nothing");
        }
        prop_assert!(second.removals.is_empty() || second.excess.is_none());
        let total = second.counts.valid + second.counts.orphan + second.counts.foreign
            + second.counts.unknown + second.counts.invalid;
        prop_assert_eq!(total as usize, env.routes.len());

        let mut after = env.clone();
        after.routes.retain(|route| !second.removals.iter().any(|removal| removal.route == *route));
        // The second reconciliation confirmed what the first observed; the third is the last that can remove anything new.
        let third = plan(&policy, &after, &second.history, None, at(20));
        assert_safe(&after, &Decision { removals: Vec::new(), ..third.clone() });
        for removal in &third.removals {
            prop_assert!(!second.removals.iter().any(|done| done.route == removal.route));
        }
        after.routes.retain(|route| !third.removals.iter().any(|removal| removal.route == *route));
        let fourth = plan(&policy, &after, &third.history, None, at(30));
        prop_assert!(fourth.removals.is_empty() || third.excess.is_some(), "{:?}", fourth.removals);
    }
}
