//! Unusual nodes, pods and runtimes.

use e2e::egress_router::UPLINK;
use e2e::netns::wait_until;

use super::*;

/// A configuration with a master.
fn on(master: &str, ip: Value) -> Value {
    let mut config = config(ip);
    config["interfaceArgs"] = json!({"master": master});
    config
}

/// The node's state, which must not change.
fn now(mut scene: Scene) -> Scene {
    scene.node_before = scene.env.node.network_state().unwrap();
    scene.pod_before = scene.pod.inside.network_state().unwrap();
    scene
}

#[test]
fn an_interface_with_addresses_of_services_is_not_a_candidate_for_the_master() {
    let scene = Scene::new();
    // kube-proxy in IPVS mode keeps addresses of load balancers in the node's network on such an interface.
    scene
        .env
        .node
        .sh("ip link add kube-ipvs0 type bridge; ip addr add 192.168.50.200/32 dev kube-ipvs0")
        .unwrap();
    let scene = now(scene);
    let plugin = scene.plugin(v4());
    let result = plugin.add().unwrap();
    assert_eq!(result["ips"][0]["gateway"], GATEWAY[0], "{result}");
    scene.outside_sees(OWN[0]);
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn the_gateway_of_a_multipath_default_route_is_inferred() {
    let scene = Scene::new();
    scene
        .env
        .node
        .sh(&format!(
            "ip route replace default nexthop via 10.1.0.2 dev fabric0 nexthop via {} dev {UPLINK}",
            GATEWAY[0]
        ))
        .unwrap();
    let scene = now(scene);
    let plugin = scene.plugin(v4());
    let result = plugin.add().unwrap();
    assert_eq!(result["ips"][0]["gateway"], GATEWAY[0], "{result}");
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn a_master_is_found_by_each_of_its_names() {
    let scene = Scene::new();
    scene
        .env
        .node
        .sh(&format!(
            "ip link property add dev {UPLINK} altname lan-side altname enp193s0f1np1d1x9; ip link set {UPLINK} alias \"$(printf 'caf\\351')\""
        ))
        .unwrap();
    let scene = now(scene);
    // With a gateway only the master is read, without one the whole node.
    let gateway = json!({"addresses": ["192.168.50.99/24"], "gateway": GATEWAY[0]});
    for (name, ip) in [
        ("lan-side", v4()),
        ("lan-side", gateway.clone()),
        // An interface's own name has 15 bytes.
        ("enp193s0f1np1d1x9", v4()),
        ("enp193s0f1np1d1x9", gateway),
    ] {
        let plugin = scene.env.plugin(&scene.pod, "net1", on(name, ip)).unwrap();
        let result = plugin.add().unwrap();
        scene.outside_sees(OWN[0]);
        plugin.del(Some(&result)).unwrap();
        scene.restored();
    }
}

#[test]
fn a_macvlan_may_be_the_master() {
    let scene = Scene::new();
    // The node may itself be a container of a macvlan network.
    scene
        .env
        .node
        .sh(&format!("ip link add mv0 link {UPLINK} type macvlan mode bridge; ip link set mv0 up"))
        .unwrap();
    let scene = now(scene);
    let ip = json!({"addresses": ["192.168.50.99/24"], "gateway": GATEWAY[0]});
    let plugin = scene.env.plugin(&scene.pod, "net1", on("mv0", ip)).unwrap();
    let result = plugin.add().unwrap();
    scene.outside_sees(OWN[0]);
    plugin.check_succeeds(&result).unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

/// A configuration whose MTU exceeds that of the inferred master.
fn long() -> Value {
    let mut config = config(v4());
    config["interfaceArgs"] = json!({"mtu": 9000});
    config
}

#[test]
fn an_mtu_above_the_masters_is_refused_before_the_pod_is_changed() {
    let scene = Scene::new();
    let output = scene.env.plugin(&scene.pod, "net1", long()).unwrap().refused().unwrap();
    assert_eq!(output.error_code(), Some(7), "{output:#?}");
    assert!(output.words().contains(&format!("interfaceArgs.mtu is 9000: its master {UPLINK} has 1500")));
    scene.restored();
}

#[test]
fn default_routes_that_differ_only_in_their_next_hop_are_restored_in_order() {
    let scene = Scene::new();
    scene
        .pod
        .inside
        .sh("ip route append default via 10.244.1.3; ip route append default via 10.244.1.4
             ip -6 route append default via fd00:244:1::3 proto 99")
        .unwrap();
    let scene = now(scene);
    let order = || scene.pod.inside.sh("ip route show default; ip -6 route show default").unwrap();
    let before = order();
    let (first, second) = (
        scene.attachment("net1", dual()),
        scene.attachment("net2", json!({"addresses": ["192.168.50.98/24"]})),
    );
    let results = [first.add().unwrap(), second.add().unwrap()];
    scene.outside_sees("192.168.50.98");
    scene.outside_sees(OWN[1]);
    first.del(Some(&results[0])).unwrap();
    second.del(Some(&results[1])).unwrap();
    assert_eq!(order(), before);
    scene.restored();
}

/// The bridge of the pods' network advertises itself as a router with high preference (RFC 4191) for half an hour. Returns when the pod has
/// processed the advertisement.
fn advertise(scene: &Scene) {
    let message = r"\206\0\0\0\100\010\007\010\0\0\0\0\0\0\0\0";
    // IPPROTO_IPV6, IPV6_MULTICAST_HOPS: hosts only accept advertisements with hop limit 255.
    let to = "IP6-SENDTO:[ff02::1%cluster0]:58,setsockopt-int=41:18:255";
    let heard = || {
        let count = "awk '/^Icmp6InRouterAdvertisements/ { print $2 }' /proc/net/dev_snmp6/eth0";
        Ok::<u64, anyhow::Error>(scene.pod.inside.sh(count)?.trim().parse()?)
    };
    let before = heard().unwrap();
    // The kernel counts an advertisement before it processes it: when the second is counted, the first is processed.
    wait_until("the pod receives the advertisement", || {
        scene.env.node.sh(&format!("printf '{message}' | socat -u - '{to}'"))?;
        Ok(heard()? > before + 1)
    })
    .unwrap();
}

#[test]
fn a_repeated_router_advertisement_does_not_bypass_the_attachment() {
    let scene = Scene::new();
    scene.pod.inside.sh("echo 1 >/proc/sys/net/ipv6/conf/eth0/accept_ra; ip -6 route del default").unwrap();
    advertise(&scene);
    let scene = now(scene);
    let default = || scene.pod.inside.sh("ip -6 route show default").unwrap();
    assert!(default().contains("dev eth0 proto ra"), "{}", default());
    let plugin = scene.plugin(v6());
    let result = plugin.add().unwrap();
    scene.outside_sees(OWN[1]);
    advertise(&scene);
    assert!(default().lines().count() == 1 && default().contains("dev net1"), "{}", default());
    scene.outside_sees(OWN[1]);
    scene.cluster_is_reached(1..2);
    plugin.check_succeeds(&result).unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.outside_sees(NODE[1]);
    scene.restored();
}

#[test]
fn a_first_router_advertisement_after_add_does_not_bypass_the_attachment() {
    let scene = Scene::new();
    scene.pod.inside.sh("echo 1 >/proc/sys/net/ipv6/conf/eth0/accept_ra; ip -6 route del default").unwrap();
    let plugin = scene.plugin(v6());
    let result = plugin.add().unwrap();
    scene.outside_sees(OWN[1]);
    advertise(&scene);
    let defaults = scene.pod.inside.sh("ip -6 route show default").unwrap();
    assert!(defaults.contains("dev eth0 proto ra"), "{defaults}");
    scene.outside_sees(OWN[1]);
    plugin.check_succeeds(&result).unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.outside_sees(NODE[1]);
}

#[test]
fn a_cluster_network_may_equal_the_attachments_network() {
    let scene = Scene::new();
    let mut config = config(dual());
    config["clusterNetworks"] = json!(["192.168.50.0/24", "2001:db8:50::/64"]);
    let plugin = scene.env.plugin(&scene.pod, "net1", config).unwrap();
    let result = plugin.add().unwrap();
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
        scene.pod.inside.wait_seen_as(OWN[family], GATEWAY[family], PORT).unwrap();
    }
    scene.cluster_is_reached(0..2);
    plugin.check_succeeds(&result).unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn a_default_route_for_a_tos_does_not_bypass_the_attachment_and_is_restored() {
    for plain in ["ip route add default via 10.244.1.1 metric 100", "true"] {
        let scene = Scene::new();
        let tos = "ip route add default via 10.244.1.1 tos 0x10";
        scene.pod.inside.sh(&format!("ip route del default; {plain}; {tos}")).unwrap();
        let scene = now(scene);
        let seen_with_it_as = |expected: &str| {
            let to = format!("TCP4:{}:{PORT},tos=16,connect-timeout=1", OUTSIDE[0]);
            let seen =
                || Ok(scene.pod.inside.run(["socat", "-T1", "-u", &to, "-"])?.stdout.trim() == expected);
            wait_until(expected, seen).unwrap();
        };
        seen_with_it_as(NODE[0]);
        let plugin = scene.plugin(v4());
        let result = plugin.add().unwrap();
        scene.outside_sees(OWN[0]);
        seen_with_it_as(OWN[0]);
        scene.cluster_is_reached(0..1);
        plugin.check_succeeds(&result).unwrap();
        plugin.del(Some(&result)).unwrap();
        seen_with_it_as(NODE[0]);
        scene.restored();
    }
}

#[test]
fn it_works_after_a_plugin_that_does_not_report_the_pods_interface() {
    let scene = Scene::new();
    let mut config = config(v4());
    // Calico's result: only the node's end, and addresses without an interface.
    config["prevResult"] = json!({
        "cniVersion": "1.1.0", "interfaces": [{"name": "cali0"}],
        "ips": [{"address": format!("{}/32", scene.pod.addresses[0])}],
    });
    let plugin = scene.env.plugin(&scene.pod, "eth0", config).unwrap();
    let result = plugin.add().unwrap();
    assert_eq!(result["interfaces"][1]["name"], "egress0", "{result}");
    scene.outside_sees(OWN[0]);
    scene.cluster_is_reached(0..1);
    plugin.check_succeeds(&result).unwrap();
    // DEL does not need the interface's name.
    let mut renamed = plugin.config.clone();
    renamed["interfaceArgs"] = json!({"name": "wan0"});
    let check = plugin.with(renamed).check(&result).unwrap();
    assert_eq!(check.code, Some(0), "{check:#?}");
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn the_nodes_own_namespace_is_refused() {
    let scene = Scene::new();
    let plugin = scene.plugin(v4()).env("CNI_NETNS", "/proc/self/ns/net");
    let refusal = plugin.refused().unwrap();
    assert_eq!(refusal.error_code(), Some(8), "{refusal:#?}");
    // DEL succeeds, because nothing was created there, and the runtime would retry a refused DEL for ever.
    plugin.del(None).unwrap();
    scene.restored();
}

/// A runtime that has lost the path of a namespace gives none. The pod may run on.
#[test]
fn a_del_without_a_namespace_uses_the_recorded_one() {
    let scene = Scene::new();
    let plugin = scene.plugin(v4());
    let result = plugin.add().unwrap();
    plugin.env("CNI_NETNS", "").del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn an_interface_in_another_namespace_with_the_same_path_stays() {
    let scene = Scene::new();
    let other = scene.env.pod("other").unwrap();
    let plugin = scene.plugin(v4());
    plugin.add().unwrap();
    // The pod is gone. Its path belongs to another namespace with a similar interface.
    let (path, node) = (&scene.pod.netns, &scene.env.node);
    node.sh(&format!("umount {path}; mount --bind {} {path}", other.netns)).unwrap();
    node.sh(&format!("ip link add net1 link {UPLINK} netns {path} type macvlan mode bridge")).unwrap();
    let before = other.inside.network_state().unwrap();
    plugin.del(None).unwrap();
    assert_eq!(before.changes(&other.inside.network_state().unwrap()), Vec::<String>::new());
    let left = "find /run/egress-router/attachments -type f";
    assert_eq!(node.sh(left).unwrap(), "", "its record is of no use any more");
}

#[test]
fn a_kernel_without_nf_tables_is_reported_and_del_succeeds() {
    let scene = Scene::new();
    // Netlink sockets in the order of creation: the node's, the pod's for routes, the pod's for nf_tables, which such a kernel does not have.
    let inject = "inject=socket:error=EPROTONOSUPPORT:when=3+";
    let words = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=socket", "-e", inject];
    let plugin = scene.plugin(v4()).wrapped(words);
    let refusal = plugin.refused().unwrap();
    assert_eq!(refusal.error_code(), Some(100), "{refusal:#?}");
    assert!(refusal.words().contains("nf_tables"), "{refusal:#?}");
    plugin.del(None).unwrap();
    scene.restored();
}

#[test]
fn check_reports_a_change_of_a_sysctl_that_add_did_not_change() {
    let scene = Scene::new();
    scene.pod.inside.sh("echo 1 >/proc/sys/net/ipv4/conf/eth0/forwarding").unwrap();
    let scene = now(scene);
    let plugin =
        scene.plugin(json!({"addresses": ["192.168.50.99/24"], "destinations": ["80 TCP 203.0.113.9"]}));
    let result = plugin.add().unwrap();
    plugin.check_succeeds(&result).unwrap();
    scene.pod.inside.sh("echo 0 >/proc/sys/net/ipv4/conf/eth0/forwarding").unwrap();
    let check = plugin.check(&result).unwrap().refusal().unwrap();
    assert!(check.words().contains("net.ipv4.conf.eth0.forwarding is 0, not 1"), "{check:#?}");
}

#[test]
fn status_reports_the_errors_of_an_add() {
    let scene = Scene::new();
    let status = |config: Value| {
        let plugin = scene.env.plugin(&scene.pod, "net1", config).unwrap();
        plugin.call("STATUS", &plugin.config.to_string()).unwrap()
    };
    let well = status(on(UPLINK, v4()));
    assert_eq!((well.code, well.stdout.as_str()), (Some(0), ""), "{well:#?}");
    let table = json!({"*": {"addresses": ["192.168.50.99/24"]}});
    let mut of_pods = without_ip("podIP", table);
    of_pods["interfaceArgs"] = json!({"master": "nosuch0"});
    let mut long_of_pods = of_pods.clone();
    long_of_pods["interfaceArgs"] = json!({"master": UPLINK, "mtu": 9000});
    for (config, word) in [
        (on("nosuch0", v4()), "nosuch0"),
        (of_pods, "nosuch0"),
        (long(), "interfaceArgs.mtu is 9000"),
        (long_of_pods, "interfaceArgs.mtu is 9000"),
        (config(json!({"addresses": ["198.18.0.9/24"]})), "no interface of this node"),
        (config(json!({"addresses": ["192.168.50.2/24"]})), "an address of the node itself"),
        (without_ip("ipConfig", json!({"name": "a"})), "kubeconfig"),
    ] {
        let output = status(config).refusal().unwrap();
        assert_eq!(output.error_code(), Some(50), "{output:#?}");
        assert!(output.words().contains(word), "{output:#?}");
    }
    scene.env.node.sh("rm -rf /run/egress-router; touch /run/egress-router").unwrap();
    let output = status(on(UPLINK, v4())).refusal().unwrap();
    assert!(output.words().contains("/run/egress-router"), "{output:#?}");
}
