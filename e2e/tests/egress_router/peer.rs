//! Comparison with Debian's macvlan and static plugins: with the same configuration, the kernel's state is the same.

use e2e::egress_router::{UPLINK, debian};

use super::*;

/// The state of the new link: kind, mode, master, MTU, addresses and their routes. Omitted are the transmit queue's length, which the peer sets
/// to 0; the default route, the cluster's routes, tables and the packet filter, which only this plugin configures; and duplicate address
/// detection, which the peer waits for.
fn state_of_net1(pod: &Pod) -> Vec<String> {
    let lines = pod
        .inside
        .sh("ip -d -o link show net1 | sed -E 's/^[0-9]+: //; s/link\\/ether [0-9a-f:]+/ether/; s/ qlen [0-9]+/ /; s/ usedbcqueuelen [0-9]+//'
             ip -o addr show dev net1 scope global | sed -E 's/^[0-9]+: //; s/ (nodad|dynamic|tentative)//g; s/ valid_lft.*//'
             ip route show table local dev net1; ip route show dev net1 proto kernel | sed 's/ src .*//'
             ip -6 route show dev net1 proto kernel | sed '/^fe80/d'")
        .unwrap();
    let mut lines: Vec<_> =
        lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.sort();
    lines
}

#[test]
fn the_same_configuration_gives_the_same_link_addresses_and_kernel_routes() {
    let scene = Scene::new();
    for (mode, addresses) in [
        ("bridge", vec!["192.168.50.99/24"]),
        ("private", vec!["192.168.50.99/24", "192.168.50.98/24"]),
        ("vepa", vec!["192.168.50.99/32"]),
        ("bridge", vec!["192.168.50.99/24", "2001:db8:50::99/64"]),
    ] {
        let list: Vec<_> = addresses.iter().map(|address| json!({"address": address})).collect();
        let peer = scene.env.other_plugin(debian("macvlan").unwrap(), &scene.pod, "net1", json!({
            "cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": UPLINK, "mode": mode, "mtu": 1400,
            "ipam": {"type": "static", "addresses": list},
        }));
        let theirs = peer.add().unwrap();
        let expected = state_of_net1(&scene.pod);
        peer.del(Some(&theirs)).unwrap();
        let mut config =
            config(json!({"addresses": addresses, "gateway": ["192.168.50.1", "2001:db8:50::1"]}));
        if addresses.iter().all(|address| !address.contains(':')) {
            config["ip"]["gateway"] = json!("192.168.50.1");
        }
        config["cniVersion"] = json!("1.0.0");
        config["interfaceArgs"] = json!({"master": UPLINK, "mode": mode, "mtu": 1400});
        let plugin = scene.env.plugin(&scene.pod, "net1", config).unwrap();
        let ours = plugin.add().unwrap();
        assert_eq!(state_of_net1(&scene.pod), expected, "{mode} {addresses:?}");
        // The results are the same in their common part.
        for (index, address) in addresses.iter().enumerate() {
            assert_eq!(ours["ips"][index]["address"], *address, "{ours}");
            assert_eq!(ours["ips"][index]["interface"], theirs["ips"][index]["interface"], "{ours} {theirs}");
        }
        assert_eq!(ours["interfaces"][0]["name"], theirs["interfaces"][0]["name"]);
        assert_eq!(ours["interfaces"][0]["sandbox"], theirs["interfaces"][0]["sandbox"]);
        plugin.del(Some(&ours)).unwrap();
        assert_eq!(scene.changes(), Vec::<String>::new());
    }
}
