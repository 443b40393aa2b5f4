//! Routing: defects of the original (docs/egress-router-cni/defects.md).

use e2e::egress_router::ELSEWHERE;

use super::*;

#[test]
fn b04_the_gateway_is_inferred() {
    let scene = Scene::new();
    let result = scene.plugin(dual()).add().unwrap();
    for family in 0..2 {
        assert_eq!(result["ips"][family]["gateway"], GATEWAY[family], "{result}");
        scene.outside_sees(OWN[family]);
    }
}

#[test]
fn b04_a_gateway_that_cannot_be_inferred_is_an_error() {
    let scene = Scene::new();
    scene.env.second_uplink().unwrap();
    let mut scene = scene;
    scene.node_before = scene.env.node.network_state().unwrap();
    refused(&scene, config(json!({"addresses": ["192.168.60.99/24"]})), 7, &["gateway"]);
}

#[test]
fn b05_the_master_is_the_interface_whose_subnet_has_the_address() {
    let scene = Scene::new();
    scene.env.second_uplink().unwrap();
    let plugin = scene.plugin(json!({"addresses": ["192.168.60.99/24"], "gateway": "192.168.60.1"}));
    let result = plugin.add().unwrap();
    scene.outside_sees("192.168.60.99");
    assert!(
        scene.pod.inside.sh("ip route get 192.168.60.2").unwrap().contains("dev eth0"),
        "its master is reached by the pods' network"
    );
    plugin.del(Some(&result)).unwrap();
    // Without a matching subnet, or with two, there is no fallback to the default route's interface.
    let nowhere = scene.plugin(json!({"addresses": ["198.18.0.9/24"]})).refused().unwrap();
    assert_eq!(nowhere.error_code(), Some(7), "{nowhere:#?}");
    assert!(nowhere.words().contains("uplink0") && nowhere.words().contains("192.168.50.2"), "{nowhere:#?}");
    scene.env.node.sh("ip addr add 192.168.60.3/24 dev uplink0").unwrap();
    let ambiguous = scene
        .plugin(json!({"addresses": ["192.168.60.99/24"], "gateway": "192.168.60.1"}))
        .refused()
        .unwrap();
    assert_eq!(ambiguous.error_code(), Some(7), "{ambiguous:#?}");
    assert!(ambiguous.words().contains("uplink0") && ambiguous.words().contains("uplink1"), "{ambiguous:#?}");
    assert_eq!(scene.changes(), Vec::<String>::new());
}

#[test]
fn b08_unlisted_destinations_are_unreachable_and_the_pod_does_not_forward() {
    let scene = Scene::new();
    let plugin = scene.plugin(
        json!({"addresses": ["192.168.50.99/24"], "destinations": ["203.0.113.9/32", "80 TCP 203.0.113.9"]}),
    );
    let result = plugin.add().unwrap();
    scene.outside_sees(OWN[0]);
    refused_at_once(&scene.pod.inside, Transport::Tcp, ELSEWHERE[0], PORT);
    // A host in the LAN uses the pod as a router into the cluster, and a pod uses it as a router to the outside.
    scene
        .env
        .outside
        .sh("ip route add 10.0.0.0/8 via 192.168.50.99; ip route add 172.30.0.0/16 via 192.168.50.99")
        .unwrap();
    for there in [REMOTE[0], SERVICE[0], &scene.pod.addresses[0]] {
        let (meeting, _) = scene.env.outside.meets(Transport::Tcp, there, PORT).unwrap();
        assert!(!matches!(meeting, Meeting::SeenAs(_)), "{there}: {meeting:?}");
    }
    let neighbour = scene.env.pod("neighbour").unwrap();
    neighbour.inside.sh(&format!("ip route replace default via {}", scene.pod.addresses[0])).unwrap();
    let (meeting, _) = neighbour.inside.meets(Transport::Tcp, OUTSIDE[0], PORT).unwrap();
    assert!(!matches!(meeting, Meeting::SeenAs(_)), "{meeting:?}");
    plugin.del(Some(&result)).unwrap();
    assert_eq!(scene.changes(), Vec::<String>::new());
}

#[test]
fn b09_the_fallback_address_is_used() {
    let scene = Scene::new();
    scene
        .plugin(json!({"addresses": ["192.168.50.99/24"], "gateway": "192.168.50.1", "destinations": ["81 TCP 203.0.113.10 80"], "fallbackIP": "203.0.113.9"}))
        .add()
        .unwrap();
    scene.env.node2.wait_seen_as(OWN[0], &scene.pod.addresses[0], 80).unwrap();
    scene.env.node2.wait_seen_as(OWN[0], &scene.pod.addresses[0], 81).unwrap();
}

#[test]
fn b10_ipv6_works_without_duplicate_address_detection() {
    let scene = Scene::new();
    let plugin = scene.plugin(json!({"addresses": ["2001:db8:50::99/64"], "destinations": ["8080 TCP 2001:db8:9::9 80", "2001:db8:9::/64"]}));
    plugin.add().unwrap();
    let addresses = scene.pod.inside.sh("ip -6 -o address show dev net1 scope global").unwrap();
    assert!(addresses.contains("nodad") && !addresses.contains("tentative"), "{addresses}");
    // A program can bind to the address immediately.
    scene
        .pod
        .inside
        .run(["socat", "-u", "/dev/null", "UDP6-SENDTO:[2001:db8:50::1]:9,bind=[2001:db8:50::99]"])
        .map(|output| assert!(output.success(), "{output:?}"))
        .unwrap();
    scene.outside_sees(OWN[1]);
    scene.env.node2.wait_seen_as(OWN[1], &scene.pod.addresses[1], 8080).unwrap();
}

#[test]
fn b11_the_pods_interface_may_have_any_name() {
    let scene = Scene::with_interface("ovn-k8s.mp0");
    let plugin = scene.plugin(json!({
        "addresses": ["192.168.50.99/24", "2001:db8:50::99/64"], "destinations": ["8080 TCP 203.0.113.9 80", "203.0.113.9/32", "::/0"],
    }));
    let result = plugin.add().unwrap();
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
    }
    scene.cluster_is_reached(0..2);
    scene.env.node2.wait_seen_as(OWN[0], &scene.pod.addresses[0], 8080).unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn b12_a_pod_can_have_two_attachments() {
    let scene = Scene::new();
    let first = scene.attachment(
        "net1",
        json!({"addresses": ["192.168.50.98/24"], "destinations": ["8081 TCP 203.0.113.9 80"]}),
    );
    let second = scene.attachment(
        "net2",
        json!({"addresses": ["192.168.50.99/24"], "destinations": ["8082 TCP 203.0.113.9 80"]}),
    );
    let results = [first.add().unwrap(), second.add().unwrap()];
    scene.env.node2.wait_seen_as("192.168.50.98", &scene.pod.addresses[0], 8081).unwrap();
    scene.env.node2.wait_seen_as("192.168.50.99", &scene.pod.addresses[0], 8082).unwrap();
    first.del(Some(&results[0])).unwrap();
    second.del(Some(&results[1])).unwrap();
    scene.restored();
}

#[test]
fn b17_other_nodes_services_and_the_own_node_stay_reachable() {
    let scene = Scene::new();
    // A strict reverse path filter must not drop the reply direction.
    scene.pod.inside.sh("for i in all eth0; do echo 1 >/proc/sys/net/ipv4/conf/$i/rp_filter; done").unwrap();
    let before = scene.pod.inside.network_state().unwrap();
    let plugin = scene.plugin(dual());
    let result = plugin.add().unwrap();
    scene.cluster_is_reached(0..2);
    // Clients on another node, with an address outside and inside of the cluster's networks.
    scene.is_reached_from(&scene.env.node2, "10.1.0.2");
    scene.is_reached_from(&scene.env.node2, "fd00:1::2");
    scene.env.node2.sh("ip route replace 10.244.1.0/24 via 10.1.0.1 src 10.244.2.5").unwrap();
    scene.is_reached_from(&scene.env.node2, REMOTE[0]);
    wait_until("a reply to a ping", || scene.env.node2.pings(&scene.pod.addresses[0])).unwrap();
    // External clients that come through the pods' network (a NodePort) get replies through it.
    scene.env.outside.sh("ip route add 10.244.1.0/24 via 192.168.50.2").unwrap();
    scene.is_reached_from(&scene.env.outside, GATEWAY[0]);
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
    }
    plugin.del(Some(&result)).unwrap();
    assert_eq!(before.changes(&scene.pod.inside.network_state().unwrap()), Vec::<String>::new());
}

#[test]
fn b19_the_pod_does_not_respond_to_arp_for_other_addresses() {
    let scene = Scene::new();
    scene
        .plugin(json!({"addresses": ["192.168.50.99/24"], "destinations": ["80 TCP 203.0.113.9"]}))
        .add()
        .unwrap();
    scene.outside_sees(OWN[0]);
    // A host in the LAN sends ARP requests for addresses that the pod has a route to.
    let neighbour = scene.env.pod("neighbour").unwrap();
    let others = [REMOTE[0], SERVICE[0], &neighbour.addresses[0]];
    for other in others {
        scene
            .env
            .outside
            .sh(&format!("ip route add {other}/32 dev lan0; ping -n -c3 -i0.3 -W1 {other} || true"))
            .unwrap();
        let entry = scene.env.outside.sh(&format!("ip neigh show {other} dev lan0")).unwrap();
        assert!(!entry.contains("lladdr"), "{entry}");
    }
}
