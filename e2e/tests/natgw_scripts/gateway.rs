//! The effects of a gateway on packets: SNAT, forwarding and MSS clamping.

use e2e::netns::{Iptables, Port, wait_until};

use super::*;

with_both! {
    a_private_client_is_seen_as_the_floating_ip
    the_gateways_own_traffic_keeps_its_own_address
    setup_needs_no_sbin_in_its_path
    connection_from_outside_is_not_forwarded
    forward_stays_drop_for_all_others
    private_destinations_are_not_translated
    pods_are_translated_when_their_range_is_named
    segments_are_clamped_to_the_smaller_mtu
    the_client_follows_the_route_to_another_gateway
    a_late_teardown_of_the_old_ip_leaves_the_new_one_working
    after_a_teardown_the_client_is_cut_off
}

fn a_private_client_is_seen_as_the_floating_ip(kind: Iptables) {
    let env = TestEnv::new(kind);
    env.client_is_cut_off();
    let node = &env.gateway.node;
    assert_eq!(node.sh("cat /proc/sys/net/ipv4/ip_forward").unwrap(), "0\n");
    assert_eq!(node.sh("cat /proc/sys/net/ipv4/conf/{all,eth0,ens10}/rp_filter").unwrap(), "1\n1\n1\n");
    assert_eq!(node.sh("iptables -S FORWARD").unwrap(), "-P FORWARD DROP\n");
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);
    wait_until("a reply to a ping", || env.client.node.pings(env.network.host())).unwrap();
    assert_eq!(node.sh("cat /proc/sys/net/ipv4/conf/{all,eth0,ens10}/rp_filter").unwrap(), "2\n2\n2\n");
}

fn the_gateways_own_traffic_keeps_its_own_address(kind: Iptables) {
    let env = TestEnv::new(kind);
    setup(&env.gateway, FIRST);
    env.network.wait_sees(&env.gateway.node, OWN[0]).unwrap();
    teardown(&env.gateway, FIRST);
    env.network.wait_sees(&env.gateway.node, OWN[0]).unwrap();
}

fn setup_needs_no_sbin_in_its_path(kind: Iptables) {
    let env = TestEnv::new(kind);
    let mut environment = environment(&env.gateway, FIRST);
    environment.push(("PATH", "/nowhere"));
    run(&env.gateway.node, SETUP, &environment);
    env.client_is_seen_as(FIRST);
    run(&env.gateway.node, TEARDOWN, &environment);
    assert_eq!(rules(&env.gateway.node), Vec::<String>::new());
}

fn connection_from_outside_is_not_forwarded(kind: Iptables) {
    let env = TestEnv::new(kind);
    setup(&env.gateway, FIRST);
    let _server = env.client.node.listen("10.0.1.4", 22).unwrap();
    // A neighbour on the public side sends to the private address.
    let internet = &env.network.internet;
    internet.sh(&format!("ip route add 10.0.1.4 via {} dev gw1 onlink", OWN[0])).unwrap();
    assert_eq!(internet.seen_by("10.0.1.4", 22).unwrap(), None);
    // The same packets reach it when the filter lets them: the path itself is whole.
    env.gateway.node.sh("iptables -I FORWARD -i eth0 -o ens10 -j ACCEPT").unwrap();
    internet.wait_seen_as("172.31.1.1", "10.0.1.4", 22).unwrap();
}

fn forward_stays_drop_for_all_others(kind: Iptables) {
    let env = TestEnv::new(kind);
    setup(&env.gateway, FIRST);
    assert_eq!(env.gateway.node.sh("iptables -S FORWARD | head -1").unwrap(), "-P FORWARD DROP\n");
    // A machine in the private network with an address outside of its range. The Internet counts its packets.
    env.client.node.sh("ip addr add 10.77.0.1/32 dev lo").unwrap();
    env.network.internet.sh("iptables-nft -t raw -A PREROUTING -s 10.77.0.1").unwrap();
    let arrived = || {
        let call = ["socat", "-T1", "-u", "TCP4:203.0.113.9:80,bind=10.77.0.1,connect-timeout=1", "-"];
        assert!(!env.client.node.run(call).unwrap().success(), "no answer finds its way");
        let counted = env.network.internet.sh("iptables-nft -t raw -vnxL PREROUTING | tail -1").unwrap();
        counted.split_whitespace().next().unwrap() != "0"
    };
    env.gateway.node.sh("for i in all ens10; do echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter; done").unwrap();
    assert!(!arrived());
    env.client_is_seen_as(FIRST);
    // The same packets arrive when the filter lets them: the path itself is whole.
    env.gateway.node.sh("iptables -I FORWARD -s 10.77.0.1 -j ACCEPT").unwrap();
    assert!(arrived());
}

fn private_destinations_are_not_translated(kind: Iptables) {
    let env = TestEnv::new(kind);
    setup(&env.gateway, FIRST);
    // A private range behind the gateway's public side, as a tunnel or a vSwitch would be.
    let internet = &env.network.internet;
    internet
        .sh(&format!(
            "ip addr add 172.16.9.9/32 dev lo; ip route add 10.0.0.0/16 via {} dev gw1 onlink",
            OWN[0]
        ))
        .unwrap();
    let _server = internet.listen("172.16.9.9", 80).unwrap();
    env.client.node.wait_seen_as("10.0.1.4", "172.16.9.9", 80).unwrap();
    env.client_is_seen_as(FIRST);
}

fn pods_are_translated_when_their_range_is_named(kind: Iptables) {
    let env = TestEnv::new(kind);
    let (lab, node) = (&env.network.lab, &env.gateway.node);
    let pod = lab.node("pod").unwrap();
    lab.link(Port::new(&pod, "eth0", &["10.244.1.5/24"]), Port::new(node, "cni0", &["10.244.1.1/24"]))
        .unwrap();
    pod.sh("ip route add default via 10.244.1.1").unwrap();
    // As a CNI does: forwarding for its Pods, and masquerading, hooked before natgw came.
    node.sh("iptables -A FORWARD -i cni0 -j ACCEPT; iptables -A FORWARD -o cni0 -j ACCEPT").unwrap();
    node.sh("iptables -t nat -A POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE").unwrap();
    setup(&env.gateway, FIRST);
    env.network.wait_sees(&pod, OWN[0]).unwrap();
    for list in ["10.0.0.0/16 10.244.0.0/16", "10.0.0.0/16,10.244.0.0/16", " 10.244.0.0/16,  10.0.0.0/16 "] {
        let mut environment = environment(&env.gateway, FIRST);
        environment.push(("SNAT_SOURCES", list));
        run(node, SETUP, &environment);
        env.network.wait_sees(&pod, FIRST).unwrap();
        env.client_is_seen_as(FIRST);
    }
    // Without the CNI's permission they stay where they are: its policies are not ours to overrule.
    node.sh("iptables -D FORWARD -i cni0 -j ACCEPT").unwrap();
    assert_eq!(env.network.sees(&pod).unwrap(), None);
}

fn segments_are_clamped_to_the_smaller_mtu(kind: Iptables) {
    let env = TestEnv::new(kind);
    // The private network's MTU at Hetzner; the client assumes 1500 and would offer 1460.
    env.gateway.node.sh("ip link set ens10 mtu 1450").unwrap();
    env.network.router.sh("ip link set gw1 mtu 1450").unwrap();
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);
    let internet = &env.network.internet;
    let _server = internet.start_process(["socat", "TCP4-LISTEN:81,reuseaddr", "SYSTEM:cat"]).unwrap();
    let ready = || Ok(!internet.sh("ss -Hltn sport = :81")?.is_empty());
    wait_until("the second server listens", ready).unwrap();
    let _connection = env.client.node.start_process(["socat", "TCP4:203.0.113.9:81", "SYSTEM:cat"]).unwrap();
    let mut offered = 0;
    wait_until("the connection stands", || {
        let sockets = internet.sh("ss -Htin state established sport = :81")?;
        offered = sockets
            .split_once(" mss:")
            .map_or(0, |(_, rest)| rest.split(' ').next().unwrap().parse().unwrap());
        Ok(offered > 0)
    })
    .unwrap();
    // 1450 less 40 for the headers, less 12 for the time stamps that the socket counts too.
    assert!((1390..=1410).contains(&offered), "the server may send segments of {offered}");
}

fn the_client_follows_the_route_to_another_gateway(kind: Iptables) {
    let env = TestEnv::new(kind);
    let second = env.second_gateway();
    setup(&env.gateway, FIRST);
    setup(&second, SECOND);
    env.client_is_seen_as(FIRST);
    env.network.route_default_to(&second).unwrap();
    env.client_is_seen_as(SECOND);
    env.network.route_default_to(&env.gateway).unwrap();
    env.client_is_seen_as(FIRST);
}

fn a_late_teardown_of_the_old_ip_leaves_the_new_one_working(kind: Iptables) {
    let env = TestEnv::new(kind);
    let before = env.gateway.node.snapshot().unwrap();
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);
    env.network.assign(SECOND, &env.gateway).unwrap();
    setup(&env.gateway, SECOND);
    env.client_is_seen_as(SECOND);
    let with_both = rules(&env.gateway.node).len();
    teardown(&env.gateway, FIRST);
    assert_eq!(rules(&env.gateway.node).len() * 2, with_both);
    env.client_is_seen_as(SECOND);
    teardown(&env.gateway, SECOND);
    assert_eq!(left_over(&env.gateway.node, &before), Vec::<String>::new());
}

fn after_a_teardown_the_client_is_cut_off(kind: Iptables) {
    let env = TestEnv::new(kind);
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);
    teardown(&env.gateway, FIRST);
    env.client_is_cut_off();
    assert!(!env.network.internet.pings(FIRST).unwrap(), "no machine responds for the address");
}
