//! The default route of the other Nodes.

use e2e::netns::{Iptables, Port};

use super::*;

with_both! {
    client_reaches_the_internet_through_the_gateway_until_its_teardown
    a_node_with_its_own_uplink_keeps_it
    foreign_route_is_never_changed
    a_gateway_that_is_no_neighbour_is_refused
    wrong_client_environment_is_refused
}

/// The environment variables that natgw gives its client Jobs.
fn client_environment(server: &Server) -> Vec<(&'static str, &str)> {
    let mut all = environment(server, "");
    all.retain(|(name, _)| *name != "FLOATING_IP");
    all
}

fn env_with_bare_client(kind: Iptables) -> TestEnv {
    let env = TestEnv::new(kind);
    env.client.node.sh("ip route del default").unwrap();
    setup(&env.gateway, FIRST);
    env
}

fn defaults(node: &Node) -> String {
    node.sh("ip -4 route show default").unwrap()
}

fn client_reaches_the_internet_through_the_gateway_until_its_teardown(kind: Iptables) {
    let env = env_with_bare_client(kind);
    let (node, environment) = (&env.client.node, client_environment(&env.client));
    let before = node.snapshot().unwrap();
    run(node, CLIENT_TEARDOWN, &environment);
    assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new(), "nothing was there");
    env.client_is_cut_off();
    run(node, CLIENT_SETUP, &environment);
    env.client_is_seen_as(FIRST);
    let once = node.snapshot().unwrap();
    run(node, CLIENT_SETUP, &environment);
    assert_eq!(once.changes(&node.snapshot().unwrap()), Vec::<String>::new());
    assert_eq!(defaults(node).trim(), "default via 10.0.0.1 dev ens10 metric 30000 onlink");
    for _ in 0..2 {
        run(node, CLIENT_TEARDOWN, &[("NETWORK_GATEWAY", "10.0.0.1")]);
        assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new());
    }
    // The least that it needs, with another metric.
    let mut least = vec![
        ("NETWORK_GATEWAY", "10.0.0.1"),
        ("NETWORK_CIDR", "10.0.0.0/16"),
        ("CLIENT_METRIC", "4294967295"),
    ];
    run(node, CLIENT_SETUP, &least);
    env.client_is_seen_as(FIRST);
    run(node, CLIENT_TEARDOWN, &[("NETWORK_GATEWAY", "10.0.0.1")]);
    env.client_is_seen_as(FIRST);
    least.push(("PATH", "/nowhere"));
    run(node, CLIENT_TEARDOWN, &least);
    assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new());
}

fn a_node_with_its_own_uplink_keeps_it(kind: Iptables) {
    let env = env_with_bare_client(kind);
    let public = env.second_gateway();
    run(&public.node, CLIENT_SETUP, &client_environment(&public));
    assert_eq!(defaults(&public.node).lines().count(), 2);
    env.network.wait_sees(&public.node, OWN[1]).unwrap();
    // Its own route gone, the private network is the way out.
    public.node.sh("ip route del default metric 0").unwrap();
    env.network.wait_sees(&public.node, FIRST).unwrap();
}

fn foreign_route_is_never_changed(kind: Iptables) {
    let env = env_with_bare_client(kind);
    let (node, environment) = (&env.client.node, client_environment(&env.client));
    // A second private network with a default route of its own.
    let (lab, other) = (&env.network.lab, env.network.lab.node("other").unwrap());
    lab.link(Port::new(node, "ens11", &["10.9.0.2/24"]), Port::new(&other, "eth0", &["10.9.0.1/24"]))
        .unwrap();
    node.sh("ip route add default via 10.9.0.1 dev ens11 metric 30000").unwrap();
    refuses(
        node,
        CLIENT_SETUP,
        &environment,
        3,
        &["another default route with metric 30000", "CLIENT_METRIC"],
    );
    node.sh("ip route add default via 10.0.0.1 dev ens10 onlink metric 300").unwrap();
    node.sh("ip route add 203.0.113.0/24 via 10.0.0.1 dev ens10 onlink metric 30000").unwrap();
    let before = node.snapshot().unwrap();
    run(node, CLIENT_TEARDOWN, &environment);
    assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new());
    let mut free = environment.clone();
    free.push(("CLIENT_METRIC", "200"));
    run(node, CLIENT_SETUP, &free);
    assert_eq!(defaults(node).lines().count(), 3);
    run(node, CLIENT_TEARDOWN, &free);
    assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new());
}

fn a_gateway_that_is_no_neighbour_is_refused(kind: Iptables) {
    let env = env_with_bare_client(kind);
    let (node, environment) = (&env.client.node, client_environment(&env.client));
    let with = |name: &'static str, value: &'static str| {
        let mut all = environment.clone();
        all.push((name, value));
        all
    };
    refuses(
        node,
        CLIENT_SETUP,
        &with("NETWORK_GATEWAY", "10.0.0.2"),
        3,
        &["10.0.0.2 is not directly reachable"],
    );
    refuses(
        node,
        CLIENT_SETUP,
        &with("NETWORK_GATEWAY", "10.0.1.4"),
        3,
        &["10.0.1.4 is not directly reachable"],
    );
    refuses(
        node,
        CLIENT_SETUP,
        &with("PRIVATE_IP", "10.0.1.5"),
        3,
        &["no interface holds PRIVATE_IP=10.0.1.5"],
    );
    refuses(node, CLIENT_SETUP, &with("PRIVATE_IFACE", "eth9"), 3, &["no interface eth9"]);
    let public = env.second_gateway();
    let mut wrong = client_environment(&public);
    wrong.push(("PRIVATE_IFACE", "eth0"));
    refuses(&public.node, CLIENT_SETUP, &wrong, 3, &["not directly reachable on eth0"]);
    // An interface that leads there by accident, without an address of the network.
    let stray = [("NETWORK_GATEWAY", "10.0.0.1"), ("NETWORK_CIDR", "10.0.0.0/24")];
    refuses(node, CLIENT_SETUP, &stray, 3, &["ens10", "no address in 10.0.0.0/24"]);
    node.sh("ip route flush dev ens10").unwrap();
    refuses(node, CLIENT_SETUP, &environment, 3, &["no route to NETWORK_GATEWAY=10.0.0.1"]);
}

fn wrong_client_environment_is_refused(kind: Iptables) {
    let env = env_with_bare_client(kind);
    let before = env.client.node.snapshot().unwrap();
    for (name, value, word) in [
        ("NETWORK_GATEWAY", "", "NETWORK_GATEWAY is not set"),
        ("NETWORK_GATEWAY", "fd00::1", "NETWORK_GATEWAY=fd00::1 is no IPv4 address"),
        ("NETWORK_GATEWAY", "010.0.0.1", "is no IPv4 address"),
        ("CLIENT_METRIC", "0", "CLIENT_METRIC=0 is no metric"),
        ("CLIENT_METRIC", "030000", "is no metric"),
        ("CLIENT_METRIC", "4294967296", "is no metric"),
        ("CLIENT_METRIC", "low", "is no metric"),
    ] {
        let mut environment = client_environment(&env.client);
        environment.push((name, value));
        for script in [CLIENT_SETUP, CLIENT_TEARDOWN] {
            refused(&env.client.node, script, &environment, 2, &[word]);
        }
    }
    for (name, value, word) in [
        ("NETWORK_CIDR", "", "NETWORK_CIDR is not set"),
        ("NETWORK_CIDR", "10.0.0.0", "no IPv4 range"),
        ("NETWORK_CIDR", "10.1.0.0/16", "lies outside NETWORK_CIDR"),
        ("PRIVATE_IP", "10.0.1", "PRIVATE_IP=10.0.1 is no IPv4 address"),
        ("PRIVATE_IFACE", "ens10;", "is no name of an interface"),
    ] {
        let mut environment = client_environment(&env.client);
        environment.push((name, value));
        refused(&env.client.node, CLIENT_SETUP, &environment, 2, &[word]);
    }
    assert_eq!(before.changes(&env.client.node.snapshot().unwrap()), Vec::<String>::new());
}
