//! Environments and nodes that the scripts refuse, with an error message and without a change of the node.

use e2e::netns::Iptables;

use super::*;

with_both! {
    invalid_floating_ip_is_refused
    wrong_environment_is_refused
    a_private_only_node_is_refused
    a_node_whose_default_route_is_private_is_refused
    a_node_outside_the_network_is_refused
    one_interface_for_both_sides_is_refused
    without_iptables_setup_and_teardown_fail
    the_nodes_own_address_is_refused_and_never_removed
}

fn invalid_floating_ip_is_refused(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    let before = node.snapshot().unwrap();
    for garbage in [
        "",
        "2001:db8::1",
        "::ffff:198.51.100.9",
        "198.51.100",
        "198.51.100.9.9",
        "198.51.100.256",
        "198.51.100.999",
        "198.51.010.9",
        "198.51.100.09",
        "098.51.100.9",
        "198.51.100.9/32",
        " 198.51.100.9",
        "198.51.100.9\n198.51.100.10",
        "198.51.100.-9",
        "198.51.100.0x9",
        "floating",
        "$(touch /run/owned)",
        "198.51.100.9; touch /run/owned",
        "a[$(touch /run/owned)]",
    ] {
        for script in [SETUP, TEARDOWN] {
            refused(node, script, &environment(&env.gateway, garbage), 2, &["FLOATING_IP"]);
        }
    }
    for invalid in [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "10.0.7.7",
        "10.0.0.1",
    ] {
        refused(node, SETUP, &environment(&env.gateway, invalid), 2, &["FLOATING_IP", invalid]);
    }
    for script in [SETUP, TEARDOWN] {
        refused(node, script, &[("NETWORK_CIDR", "10.0.0.0/16")], 2, &["FLOATING_IP is not set"]);
    }
    assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new());
    let files = node.sh("ls /run").unwrap();
    assert!(!files.contains("natgw") && !files.contains("owned"), "no file either: {files}");
}

fn wrong_environment_is_refused(kind: Iptables) {
    let env = TestEnv::new(kind);
    let before = env.gateway.node.snapshot().unwrap();
    for (name, value, word) in [
        ("NETWORK_CIDR", "", "NETWORK_CIDR is not set"),
        ("NETWORK_CIDR", "10.0.0.0", "NETWORK_CIDR=10.0.0.0 is no IPv4 range"),
        ("NETWORK_CIDR", "10.0.0.0/33", "no IPv4 range"),
        ("NETWORK_CIDR", "10.0.0.0/7", "no IPv4 range"),
        ("NETWORK_CIDR", "0.0.0.0/0", "no IPv4 range"),
        ("NETWORK_CIDR", "10.0.0.0/016", "no IPv4 range"),
        ("NETWORK_CIDR", "10.0.0.1/16", "no IPv4 range"),
        ("NETWORK_CIDR", "fd00::/8", "no IPv4 range"),
        ("NETWORK_CIDR", "10.1.0.0/16", "lies outside NETWORK_CIDR=10.1.0.0/16"),
        ("NETWORK_CIDR", "198.51.100.0/24", "lies in the private network"),
        ("PRIVATE_IP", "10.0.0.256", "PRIVATE_IP=10.0.0.256 is no IPv4 address"),
        ("PRIVATE_IP", "10.9.0.2", "PRIVATE_IP=10.9.0.2 lies outside"),
        ("NETWORK_GATEWAY", "gateway", "NETWORK_GATEWAY=gateway is no IPv4 address"),
        ("NETWORK_GATEWAY", "192.168.0.1", "NETWORK_GATEWAY=192.168.0.1 lies outside"),
        ("SNAT_SOURCES", "10.0.0.0/16 pods", "SNAT_SOURCES: pods is no IPv4 range"),
        ("SNAT_SOURCES", "0.0.0.0/0", "SNAT_SOURCES: 0.0.0.0/0"),
        ("SNAT_SOURCES", "198.51.100.0/24", "contains FLOATING_IP"),
        ("SNAT_SOURCES", " , ", "SNAT_SOURCES holds no range"),
        ("SNAT_SOURCES", "10.0.0.0/16 *", "is no IPv4 range"),
        ("PUBLIC_IFACE", "eth0 -j ACCEPT", "PUBLIC_IFACE=eth0 -j ACCEPT is no name"),
        ("PRIVATE_IFACE", "../all", "PRIVATE_IFACE=../all is no name"),
    ] {
        let mut environment = environment(&env.gateway, FIRST);
        environment.push((name, value));
        refused(&env.gateway.node, SETUP, &environment, 2, &[word]);
    }
    assert_eq!(before.changes(&env.gateway.node.snapshot().unwrap()), Vec::<String>::new());
    let least = [("FLOATING_IP", FIRST), ("NETWORK_CIDR", "10.0.0.0/16")];
    refuses(&env.gateway.node, SETUP, &least, 2, &["set PRIVATE_IP, NETWORK_GATEWAY or PRIVATE_IFACE"]);
    for (name, value) in
        [("PRIVATE_IP", "10.0.0.2"), ("NETWORK_GATEWAY", "10.0.0.1"), ("PRIVATE_IFACE", "ens10")]
    {
        run(&env.gateway.node, SETUP, &[least[0], least[1], (name, value)]);
        env.client_is_seen_as(FIRST);
        teardown(&env.gateway, FIRST);
    }
}

fn a_private_only_node_is_refused(kind: Iptables) {
    let env = TestEnv::new(kind);
    // Its default route leads into the private network: the way to the public gateway and to the private one are the same.
    refuses(&env.client.node, SETUP, &environment(&env.client, FIRST), 3, &["ens10", "no public uplink"]);
    env.client.node.sh("ip route del default").unwrap();
    refuses(
        &env.client.node,
        SETUP,
        &environment(&env.client, FIRST),
        3,
        &["no public uplink", "172.31.1.1"],
    );
}

fn a_node_whose_default_route_is_private_is_refused(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    node.sh("ip route replace default via 10.0.0.1 dev ens10 onlink").unwrap();
    refuses(node, SETUP, &environment(&env.gateway, FIRST), 3, &["default route leaves by 'ens10'", "eth0"]);
    node.sh("ip route del default").unwrap();
    refuses(node, SETUP, &environment(&env.gateway, FIRST), 3, &["default route leaves by 'nothing'"]);
}

fn a_node_outside_the_network_is_refused(kind: Iptables) {
    let env = TestEnv::new(kind);
    let mut environment = environment(&env.gateway, FIRST);
    environment.push(("PRIVATE_IP", "10.0.0.77"));
    refuses(&env.gateway.node, SETUP, &environment, 3, &["no interface holds PRIVATE_IP=10.0.0.77"]);
    environment.push(("PRIVATE_IFACE", "eth1"));
    refuses(&env.gateway.node, SETUP, &environment, 3, &["no interface eth1"]);
}

fn one_interface_for_both_sides_is_refused(kind: Iptables) {
    let env = TestEnv::new(kind);
    for (name, interface) in [("PRIVATE_IFACE", "eth0"), ("PUBLIC_IFACE", "ens10")] {
        let mut environment = environment(&env.gateway, FIRST);
        environment.push((name, interface));
        refuses(&env.gateway.node, SETUP, &environment, 3, &["no public uplink", interface]);
    }
}

fn without_iptables_setup_and_teardown_fail(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    let before = node.snapshot().unwrap();
    node.hide("iptables").unwrap();
    for script in [SETUP, TEARDOWN] {
        refuses(
            node,
            script,
            &environment(&env.gateway, FIRST),
            3,
            &["iptables is missing", "install the package"],
        );
    }
    node.unhide("iptables").unwrap();
    setup(&env.gateway, FIRST);
    node.hide("iptables").unwrap();
    // Rules are left: the script must not succeed.
    refuses(node, TEARDOWN, &environment(&env.gateway, FIRST), 3, &["iptables is missing"]);
    node.unhide("iptables").unwrap();
    // There, but of no use: a kernel without the tables, or a container without the right.
    node.sh("rm /usr/local/sbin/iptables").unwrap();
    node.write(
        "/usr/local/sbin/iptables",
        "755",
        "#!/bin/sh\necho 'Table does not exist (do you need to insmod?)' >&2\nexit 3\n",
    )
    .unwrap();
    for script in [SETUP, TEARDOWN] {
        refuses(node, script, &environment(&env.gateway, FIRST), 3, &["cannot read its table nat", "insmod"]);
    }
    node.use_iptables(kind).unwrap();
    teardown(&env.gateway, FIRST);
    assert_eq!(left_over(node, &before), Vec::<String>::new());
}

/// The kubelet replaces `$(NAME)` and `$$` in a container's command before it starts it.
#[test]
fn the_kubelet_leaves_the_scripts_as_they_are() {
    let names = "FLOATING_IP JOB_TYPE NODE_NAME PRIVATE_IP NETWORK_CIDR NETWORK_GATEWAY SNAT_SOURCES PUBLIC_IFACE PRIVATE_IFACE \
                 PERSIST_NETPLAN CLIENT_METRIC";
    for script in [SETUP, TEARDOWN, CLIENT_SETUP, CLIENT_TEARDOWN] {
        assert!(!script.contains("$$"));
        for name in names.split_whitespace() {
            assert!(!script.contains(&format!("$({name})")), "{name}");
        }
        // One argument of a command line holds 128 KiB on Linux; an object of Kubernetes is far from it.
        assert!(script.len() < 64 * 1024);
    }
}

fn the_nodes_own_address_is_refused_and_never_removed(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    // By the default route's source; then by its lease, as DHCP leaves it.
    for change in [
        "true",
        "ip route replace $(ip route show default | sed 's/ src [^ ]*//')
         ip addr change $(ip -o -4 addr show eth0 | sed 's/.*inet \\([^ ]*\\) .*/\\1/') dev eth0 valid_lft 3600 preferred_lft 3600",
    ] {
        node.sh(change).unwrap();
        refuses(node, SETUP, &environment(&env.gateway, OWN[0]), 3, &[OWN[0], "own address", "label"]);
        // A teardown keeps the node's own address, also if an older setup took it for a floating IP.
        let output = run(node, TEARDOWN, &environment(&env.gateway, OWN[0]));
        assert!(output.stderr.contains("own address"), "{output:#?}");
        let address = node.sh("ip -4 addr show eth0").unwrap();
        assert!(address.contains(&format!("inet {}/32", OWN[0])), "{address}");
    }
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);
    teardown(&env.gateway, FIRST);
}
