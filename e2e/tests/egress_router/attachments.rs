//! Several attachments in one pod.

use super::*;

const NAMES: [&str; 3] = ["net1", "net2", "net3"];
const ADDRESSES: [&str; 3] = ["192.168.50.91", "192.168.50.92", "192.168.50.93"];
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[test]
fn after_each_del_in_any_order_the_newest_remaining_attachment_has_the_default_route() {
    let scene = Scene::new();
    for order in ORDERS {
        let all: Vec<(Plugin, Value)> = NAMES
            .iter()
            .zip(ADDRESSES)
            .map(|(name, address)| {
                let plugin = scene.attachment(name, json!({"addresses": [format!("{address}/24")]}));
                let result = plugin.add().unwrap();
                scene.outside_sees(address);
                (plugin, result)
            })
            .collect();
        // Packets with the source address of one of them leave through it, whichever has the default route.
        for address in ADDRESSES {
            scene.leaves_with(address);
        }
        scene.cluster_is_reached(0..1);
        scene.is_reached_from(&scene.env.node2, "10.1.0.2");
        let mut left = vec![0, 1, 2];
        for index in order {
            let (plugin, result) = &all[index];
            plugin.del(Some(result)).unwrap();
            left.retain(|other| *other != index);
            match left.last() {
                Some(youngest) => scene.outside_sees(ADDRESSES[*youngest]),
                None => scene.outside_sees(NODE[0]),
            }
            scene.is_reached_from(&scene.env.node2, "10.1.0.2");
            // CHECK succeeds for the remaining ones.
            for other in &left {
                let (plugin, result) = &all[*other];
                let check = plugin.check(result).unwrap();
                assert_eq!(
                    check.code,
                    Some(0),
                    "{order:?}, {} after {}: {check:#?}",
                    NAMES[*other],
                    NAMES[index]
                );
            }
        }
        assert_eq!(scene.changes(), Vec::<String>::new(), "{order:?}");
    }
    scene.restored();
}

#[test]
fn one_of_each_family_share_a_pod() {
    let scene = Scene::new();
    let first = scene.attachment("net1", v4());
    let second = scene.attachment("net2", v6());
    let results = [first.add().unwrap(), second.add().unwrap()];
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
    }
    scene.cluster_is_reached(0..2);
    first.del(Some(&results[0])).unwrap();
    scene.outside_sees(NODE[0]);
    scene.outside_sees(OWN[1]);
    second.del(Some(&results[1])).unwrap();
    scene.restored();
}

#[test]
fn host_addresses_share_a_gateway() {
    let scene = Scene::new();
    for family in 0..2 {
        let addresses = [["192.168.50.91", "192.168.50.92"], ["2001:db8:50::91", "2001:db8:50::92"]][family];
        for order in [[0, 1], [1, 0]] {
            let all = addresses.map(|address| {
                let name = if address == addresses[0] { "net1" } else { "net2" };
                let ip = json!({"addresses": [address], "gateway": GATEWAY[family]});
                let plugin = scene.attachment(name, ip);
                let result = plugin.add().unwrap();
                scene.outside_sees(address);
                (plugin, result)
            });
            for (plugin, result) in &all {
                let check = plugin.check(result).unwrap();
                assert_eq!(check.code, Some(0), "{check:#?}");
            }
            let (plugin, result) = &all[order[0]];
            plugin.del(Some(result)).unwrap();
            scene.outside_sees(addresses[order[1]]);
            let (plugin, result) = &all[order[1]];
            plugin.del(Some(result)).unwrap();
            assert_eq!(scene.changes(), Vec::<String>::new(), "{order:?}");
        }
    }
    scene.restored();
}

#[test]
fn each_attachment_has_its_own_list_and_redirects() {
    let scene = Scene::new();
    // Loose reverse path filter, as in several distributions: replies to redirected connections of the older attachment come from a host that
    // main routes through the newer one.
    scene
        .pod
        .inside
        .sh("cd /proc/sys/net/ipv4/conf; echo 1 >all/rp_filter; echo 1 >default/rp_filter")
        .unwrap();
    let before = scene.pod.inside.network_state().unwrap();
    let first = scene.attachment(
        "net1",
        json!({
            "addresses": ["192.168.50.91/24"], "destinations": ["203.0.113.9/32", "8081 TCP 203.0.113.9 80"],
        }),
    );
    let second = scene.attachment(
        "net2",
        json!({
            "addresses": ["192.168.50.92/24"], "destinations": ["8082 TCP 203.0.113.9 80"],
        }),
    );
    let results = [first.add().unwrap(), second.add().unwrap()];
    let pod = &scene.pod.addresses[0];
    scene.env.node2.wait_seen_as("192.168.50.91", pod, 8081).unwrap();
    scene.env.node2.wait_seen_as("192.168.50.92", pod, 8082).unwrap();
    scene.pod.inside.sh("echo 1 >/proc/sys/net/ipv4/conf/net1/rp_filter").unwrap();
    let check = first.check(&results[0]).unwrap();
    assert!(check.words().contains("net.ipv4.conf.net1.rp_filter"), "{check:#?}");
    second.del(Some(&results[1])).unwrap();
    scene.env.node2.wait_seen_as("192.168.50.91", pod, 8081).unwrap();
    refused_at_once(&scene.env.node2, Transport::Tcp, pod, 8082);
    first.del(Some(&results[0])).unwrap();
    assert_eq!(before.changes(&scene.pod.inside.network_state().unwrap()), Vec::<String>::new());
}

#[test]
fn an_existing_interface_is_never_replaced() {
    let scene = Scene::new();
    scene.pod.inside.sh("ip link add net1 type veth peer name other").unwrap();
    let before = scene.pod.inside.network_state().unwrap();
    let plugin = scene.plugin(v4());
    let refusal = plugin.refused().unwrap();
    assert!(refusal.words().contains("net1"), "{refusal:?}");
    // The runtime's DEL after a failed ADD must not delete a foreign interface.
    plugin.del(None).unwrap();
    assert_eq!(before.changes(&scene.pod.inside.network_state().unwrap()), Vec::<String>::new());
    let taken = scene.attachment("eth0", v4()).refused().unwrap();
    assert!(taken.words().contains("eth0"), "{taken:?}");
}
