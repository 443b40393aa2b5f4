//! The files for netplan, with a stand-in that is strict about how it is called. No test here asks systemd-networkd.

use e2e::netns::Iptables;

use super::*;

with_both! {
    setup_persists_the_address_where_netplan_knows_the_interface
    client_setup_persists_the_route
    file_that_netplan_refuses_is_removed
    netplan_without_the_interface_is_left_alone
}

/// The part of netplan that the scripts may use: `generate` without options. It refuses a text that is in /run/refuse.
const NETPLAN: &str = r#"#!/bin/bash
echo "$*" >>/run/netplan-calls
[[ $# == 1 && $1 == generate ]] || { echo "netplan stand-in: only generate is allowed, not: $*" >&2; exit 64; }
if [[ -e /run/refuse ]] && ls /etc/netplan | grep -q natgw; then echo "/etc/netplan: error in definition" >&2; exit 78; fi
"#;
/// The netplan definition that cloud-init writes on Ubuntu.
const CLOUD_INIT: &str = "network:\n  version: 2\n  ethernets:\n    eth0:\n      match: {macaddress: 96:00:00:00:00:01}\n      set-name: eth0\n      dhcp4: true\n";

fn install(node: &Node, definitions: &str) {
    node.write("/usr/local/sbin/netplan", "755", NETPLAN).unwrap();
    node.sh("mkdir -p /etc/netplan").unwrap();
    node.write("/etc/netplan/50-cloud-init.yaml", "600", definitions).unwrap();
}

fn calls(node: &Node) -> String {
    node.sh("cat /run/netplan-calls 2>/dev/null || true").unwrap()
}

fn files(node: &Node) -> Vec<String> {
    let snapshot = node.snapshot().unwrap();
    snapshot.section("netplan").filter(|line| !line.contains("cloud-init")).map(str::to_owned).collect()
}

fn setup_persists_the_address_where_netplan_knows_the_interface(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    install(node, CLOUD_INIT);
    let before = node.snapshot().unwrap();
    setup(&env.gateway, FIRST);
    let expected = "600 /etc/netplan/60-natgw-NATGW-C6336409.yaml network:~  version: 2~  ethernets:~    eth0:~      addresses: [\"198.51.100.9/32\"]~";
    assert_eq!(files(node), [expected]);
    assert_eq!(calls(node), "generate\n");
    setup(&env.gateway, FIRST);
    assert_eq!(files(node), [expected]);
    // Interrupted between the file and generate, the next run must call it: so each run does.
    assert_eq!(calls(node), "generate\ngenerate\n");
    setup(&env.gateway, SECOND);
    assert_eq!(files(node).len(), 2);
    teardown(&env.gateway, SECOND);
    assert_eq!(files(node), [expected]);
    teardown(&env.gateway, FIRST);
    teardown(&env.gateway, FIRST);
    assert_eq!(calls(node), "generate\n".repeat(5), "the last one had nothing to do");
    assert_eq!(left_over(node, &before), Vec::<String>::new());
}

fn client_setup_persists_the_route(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.client.node;
    node.sh("ip route del default").unwrap();
    install(node, "network:\n  version: 2\n  ethernets:\n    \"ens10\": {dhcp4: true}\n");
    let before = node.snapshot().unwrap();
    let environment = environment(&env.client, FIRST);
    run(node, CLIENT_SETUP, &environment);
    run(node, CLIENT_SETUP, &environment);
    assert_eq!(
        files(node),
        [
            "600 /etc/netplan/60-natgw-client-0A000001.yaml network:~  version: 2~  ethernets:~    ens10:~      \
          routes: [{to: 0.0.0.0/0, via: 10.0.0.1, on-link: true, metric: 30000}]~"
        ]
    );
    run(node, CLIENT_TEARDOWN, &environment);
    run(node, CLIENT_TEARDOWN, &environment);
    assert_eq!(calls(node), "generate\n".repeat(3));
    assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new());
}

fn file_that_netplan_refuses_is_removed(kind: Iptables) {
    let env = TestEnv::new(kind);
    let (gateway, client) = (&env.gateway.node, &env.client.node);
    for (node, definitions, script, ours) in [
        (gateway, CLOUD_INIT, SETUP, environment(&env.gateway, FIRST)),
        (client, "network:\n  ethernets:\n    ens10:\n", CLIENT_SETUP, environment(&env.client, FIRST)),
    ] {
        install(node, definitions);
        node.sh("touch /run/refuse").unwrap();
        let output = run(node, script, &ours);
        assert!(output.stderr.contains("netplan refused /etc/netplan/60-natgw-"), "{output:#?}");
        assert_eq!(files(node), Vec::<String>::new());
        assert_eq!(
            calls(node),
            "generate\ngenerate\n",
            "the second one, without the file, restores what was"
        );
    }
    env.client_is_seen_as(FIRST);
}

fn netplan_without_the_interface_is_left_alone(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    // The program is missing; then the folder; then it is switched off; then it does not know the interface by this name.
    node.sh("mkdir /etc/netplan").unwrap();
    setup(&env.gateway, FIRST);
    node.sh("rmdir /etc/netplan").unwrap();
    node.write("/usr/local/sbin/netplan", "755", NETPLAN).unwrap();
    setup(&env.gateway, FIRST);
    install(node, CLOUD_INIT);
    let mut off = environment(&env.gateway, FIRST);
    off.push(("PERSIST_NETPLAN", "0"));
    run(node, SETUP, &off);
    for other in ["network:\n  ethernets:\n    eth00: {}\n    uplink: {set-name: eth0}\n", "", "# eth0:\n"] {
        node.write("/etc/netplan/50-cloud-init.yaml", "600", other).unwrap();
        let output = setup(&env.gateway, FIRST);
        assert!(output.stderr.contains("netplan has no interface eth0"), "{output:#?}");
    }
    assert_eq!(files(node), Vec::<String>::new());
    assert_eq!(calls(node), "");
    env.client_is_seen_as(FIRST);
}
