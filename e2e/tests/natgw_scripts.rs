//! natgw's scripts for Nodes, run as its Jobs run them (root, `/bin/bash -c` in a chroot, the Node's network), proven with
//! packets: a host in the Internet says as whom it sees a private-only client.
//!
//! Each behaviour is proven with iptables-nft and with iptables-legacy. On a kernel without legacy tables the legacy half
//! fails, and says so; with `PERIMETER_NO_IPTABLES_LEGACY=1` it prints that it is not proven instead.
//!
//! `netplan` has a stand-in for netplan: a program in the node's path that accepts `generate` and nothing else, and writes down each
//! call. `networkd` has netplan and systemd-networkd themselves.

use e2e::netns::{Iptables, Node, Output, PrivateNetwork, Server};

const SETUP: &str = include_str!("../../crates/natgw/scripts/setup.sh");
const TEARDOWN: &str = include_str!("../../crates/natgw/scripts/teardown.sh");
const CLIENT_SETUP: &str = include_str!("../../crates/natgw/scripts/client-setup.sh");
const CLIENT_TEARDOWN: &str = include_str!("../../crates/natgw/scripts/client-teardown.sh");

/// Floating IPs, and what the gateways' own public addresses are.
const FIRST: &str = "198.51.100.9";
const SECOND: &str = "198.51.100.10";
const OWN: [&str; 2] = ["192.0.2.11", "192.0.2.12"];

/// Makes a test of each function for both kinds of iptables.
macro_rules! with_both {
    ($($behaviour:ident)*) => {
        mod nft { $( #[test] fn $behaviour() { super::$behaviour(e2e::netns::Iptables::Nft) } )* }
        mod legacy { $( #[test] fn $behaviour() {
            if crate::natgw_scripts::legacy_is_claimed(stringify!($behaviour)) { super::$behaviour(e2e::netns::Iptables::Legacy) }
        } )* }
    };
}

mod clients;
mod gateway;
mod netplan;
mod networkd;
mod refusals;
mod repair;

fn legacy_is_claimed(behaviour: &str) -> bool {
    let claimed = std::env::var("PERIMETER_NO_IPTABLES_LEGACY").as_deref() != Ok("1");
    if !claimed {
        println!("NOT PROVEN with iptables-legacy, by PERIMETER_NO_IPTABLES_LEGACY=1: {behaviour}");
    }
    claimed
}

/// One gateway and one client without a public side, whose default route leads into the private network.
struct TestEnv {
    network: PrivateNetwork,
    kind: Iptables,
    gateway: Server,
    client: Server,
}

impl TestEnv {
    fn new(kind: Iptables) -> Self {
        let network = PrivateNetwork::new().unwrap();
        let gateway = network.server("gw1", kind, "10.0.0.2", Some(OWN[0])).unwrap();
        let client = network.server("client", kind, "10.0.1.4", None).unwrap();
        client.node.sh("ip route add default via 10.0.0.1 dev ens10 onlink").unwrap();
        network.route_default_to(&gateway).unwrap();
        network.assign(FIRST, &gateway).unwrap();
        Self { network, kind, gateway, client }
    }

    fn second_gateway(&self) -> Server {
        let second = self.network.server("gw2", self.kind, "10.0.0.3", Some(OWN[1])).unwrap();
        self.network.assign(SECOND, &second).unwrap();
        second
    }

    fn client_is_seen_as(&self, expected: &str) {
        self.network.wait_sees(&self.client.node, expected).unwrap();
    }

    fn client_is_cut_off(&self) {
        assert_eq!(self.network.sees(&self.client.node).unwrap(), None);
    }
}

/// The environment variables that natgw gives its Jobs.
fn environment<'a>(server: &'a Server, floating_ip: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("FLOATING_IP", floating_ip),
        ("JOB_TYPE", "setup"),
        ("NODE_NAME", server.node.name()),
        ("PRIVATE_IP", &server.private_ip),
        ("NETWORK_CIDR", "10.0.0.0/16"),
        ("NETWORK_GATEWAY", "10.0.0.1"),
    ]
}

fn run(node: &Node, script: &str, environment: &[(&str, &str)]) -> Output {
    let output = node.script(script, environment).unwrap();
    assert!(output.success(), "{output:#?}");
    output
}

fn setup(server: &Server, floating_ip: &str) -> Output {
    run(&server.node, SETUP, &environment(server, floating_ip))
}

fn teardown(server: &Server, floating_ip: &str) -> Output {
    run(&server.node, TEARDOWN, &environment(server, floating_ip))
}

/// The script refuses with `code` and says each of `words`.
fn refused(node: &Node, script: &str, environment: &[(&str, &str)], code: i32, words: &[&str]) {
    let output = node.script(script, environment).unwrap();
    assert_eq!(output.code, Some(code), "{environment:?}: {output:#?}");
    for word in words.iter().chain(&["refused, nothing was touched"]) {
        assert!(output.stderr.contains(word), "{environment:?}: no {word:?} in {}", output.stderr);
    }
}

/// The script refuses with `code`, says each of `words`, and leaves the node as it is.
fn refuses(node: &Node, script: &str, environment: &[(&str, &str)], code: i32, words: &[&str]) {
    let before = node.snapshot().unwrap();
    refused(node, script, environment, code, words);
    assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new(), "{environment:?}");
}

/// The differences from `before`, apart from the switches that a teardown leaves on by design (forwarding also decides
/// whether redirects are accepted).
fn left_over(node: &Node, before: &e2e::netns::Snapshot) -> Vec<String> {
    let mut changes = before.changes(&node.snapshot().unwrap());
    changes.retain(|line| {
        !(line.contains(" sysctl: ")
            && ["ip_forward:", "/forwarding:", "/rp_filter:", "/accept_redirects:"]
                .iter()
                .any(|s| line.contains(s)))
    });
    changes
}

/// The rules of a node that mention natgw, of both kinds of iptables.
fn rules(node: &Node) -> Vec<String> {
    let snapshot = node.snapshot().unwrap();
    let sections =
        ["iptables-nft", "iptables-legacy"].map(|name| snapshot.section(name).map(str::to_owned).collect());
    let all: Vec<Vec<String>> = sections.into();
    all.concat().into_iter().filter(|line| line.contains("NATGW-")).collect()
}
