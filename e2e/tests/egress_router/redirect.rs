//! Redirects (DNAT and SNAT), as cluster-network-operator configures them.

use e2e::egress_router::ELSEWHERE;
use e2e::netns::{Port, wait_until};

use super::*;

/// cluster-network-operator's configuration (its template for macvlan in redirect mode), without the log, which it writes to the node's /tmp.
fn operators(destinations: Value) -> Value {
    json!({
        "cniVersion": "0.4.0", "type": "egress-router", "name": "egress-router-cni-nad",
        "ip": {"addresses": ["192.168.50.99/24"], "destinations": destinations, "gateway": "192.168.50.1"},
        "log_file": "/var/log/egress-router-log", "log_level": "debug",
    })
}

#[test]
fn tcp_and_udp_are_redirected_with_the_pods_address_as_source() {
    let scene = Scene::new();
    let plugin = scene
        .env
        .plugin(
            &scene.pod,
            "net1",
            operators(json!([
                "80 TCP 203.0.113.9",
                "8080 TCP 203.0.113.10 80",
                "53 UDP 203.0.113.9",
                "5353 udp 203.0.113.10 53",
            ])),
        )
        .unwrap();
    let result = plugin.add().unwrap();
    assert_eq!(result["cniVersion"], "0.4.0");
    assert_eq!(result["ips"][0]["version"], "4", "{result}");
    let client = scene.env.pod("client").unwrap();
    let pod = &scene.pod.addresses[0];
    let _dns: Vec<_> = [OUTSIDE[0], ELSEWHERE[0]]
        .map(|address| scene.env.outside.listen_by(Transport::Udp, address, 53).unwrap())
        .into();
    // From another pod, from the node, and from another node.
    for who in [&client.inside, &scene.env.node, &scene.env.node2] {
        for (transport, port) in
            [(Transport::Tcp, 80), (Transport::Tcp, 8080), (Transport::Udp, 53), (Transport::Udp, 5353)]
        {
            who.wait_seen_by(transport, OWN[0], pod, port).unwrap();
        }
    }
    // The second host received the connections to 8080.
    refused_at_once(&client.inside, Transport::Tcp, pod, 81);
    scene.outside_sees(OWN[0]);
    scene.cluster_is_reached(0..1);
    // A redirect applies to clients in the pods' network, not in the LAN.
    let (meeting, _) = scene.env.outside.meets(Transport::Tcp, OWN[0], 80).unwrap();
    assert!(!matches!(meeting, Meeting::SeenAs(_)), "{meeting:?}");
    plugin.del(Some(&result)).unwrap();
    assert_eq!(scene.changes(), Vec::<String>::new());
}

#[test]
fn ipv6_is_redirected_to_another_port() {
    let scene = Scene::new();
    let plugin = scene
        .plugin(json!({"addresses": ["2001:db8:50::99/64"], "destinations": ["8080 tcp 2001:db8:9::9 80"]}));
    let result = plugin.add().unwrap();
    scene.env.node2.wait_seen_as(OWN[1], &scene.pod.addresses[1], 8080).unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn the_fallback_redirects_every_other_port() {
    for fallback in [
        json!({"addresses": ["192.168.50.99/24"], "destinations": ["80 TCP 203.0.113.9", "203.0.113.10"]}),
        json!({"addresses": ["192.168.50.99/24"], "destinations": ["80 TCP 203.0.113.9"], "fallbackIP": "203.0.113.10"}),
    ] {
        let scene = Scene::new();
        let plugin = scene.plugin(fallback);
        let result = plugin.add().unwrap();
        let pod = &scene.pod.addresses[0];
        // Port 80 goes to the first host, all others to the second, which alone listens on 7777.
        let _other = scene.env.outside.listen(ELSEWHERE[0], 7777).unwrap();
        scene.env.node2.wait_seen_as(OWN[0], pod, 7777).unwrap();
        scene.env.node2.wait_seen_as(OWN[0], pod, 80).unwrap();
        plugin.del(Some(&result)).unwrap();
        scene.restored();
    }
}

#[test]
fn redirects_are_allowed_with_an_allow_list() {
    let scene = Scene::new();
    scene
        .plugin(json!({"addresses": ["192.168.50.99/24"], "destinations": ["203.0.113.9/32", "8080 TCP 203.0.113.10 80"]}))
        .add()
        .unwrap();
    scene.env.node2.wait_seen_as(OWN[0], &scene.pod.addresses[0], 8080).unwrap();
    scene.outside_sees(OWN[0]);
}

#[test]
fn redirects_do_not_enable_forwarding_to_a_third_interface() {
    let mut scene = Scene::new();
    let third = scene.env.lab.node("third").unwrap();
    let theirs = ["192.168.70.1/24", "2001:db8:70::1/64 nodad", "fe80::1/64 nodad"];
    let ours = ["192.168.70.9/24", "2001:db8:70::9/64 nodad", "fe80::9/64 nodad"];
    let (there, here) = (Port::new(&third, "lan0", &theirs), Port::new(&scene.pod.inside, "net0", &ours));
    scene.env.lab.link(there, here).unwrap();
    // The kernel's link-local address is part of the state, and is added some time after the link.
    let settled = "until ip -6 -o addr show dev net0 scope link | grep -v fe80::9/ | grep -qv tentative; do sleep 0.05; done";
    scene.pod.inside.sh(settled).unwrap();
    let neighbour = scene.env.pod("neighbour").unwrap();
    let pod = scene.pod.addresses.clone();
    neighbour
        .inside
        .sh(&format!(
            "ip route add 192.168.70.0/24 via {}; ip -6 route add 2001:db8:70::/64 via {}",
            pod[0], pod[1]
        ))
        .unwrap();
    third
        .sh("ip route add 10.244.1.0/24 via 192.168.70.9; ip -6 route add fd00:244:1::/64 via 2001:db8:70::9")
        .unwrap();
    let addresses = ["192.168.70.1", "2001:db8:70::1"];
    let _servers = addresses.map(|address| third.listen(address, PORT).unwrap());
    // The pod reaches it as soon as its addresses are usable.
    scene.pod.inside.wait_seen_as("192.168.70.9", addresses[0], PORT).unwrap();
    scene.pod.inside.wait_seen_as("2001:db8:70::9", addresses[1], PORT).unwrap();
    let both = json!({
        "addresses": ["192.168.50.99/24", "2001:db8:50::99/64"], "destinations": ["8080 TCP 203.0.113.9 80", "8080 TCP 2001:db8:9::9 80"],
    });
    for forwards in [false, true] {
        if forwards {
            let words = "cd /proc/sys/net; echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding";
            scene.pod.inside.sh(words).unwrap();
        }
        scene.pod_before = scene.pod.inside.network_state().unwrap();
        let plugin = scene.plugin(both.clone());
        let result = plugin.add().unwrap();
        for family in 0..2 {
            scene.env.node2.wait_seen_as(OWN[family], &pod[family], 8080).unwrap();
            if forwards {
                // The control: a pod that was a router remains one.
                let seen = &neighbour.addresses[family];
                neighbour.inside.wait_seen_as(seen, addresses[family], PORT).unwrap();
            } else {
                let (meeting, _) = neighbour.inside.meets(Transport::Tcp, addresses[family], PORT).unwrap();
                assert!(!matches!(meeting, Meeting::SeenAs(_)), "{meeting:?}");
            }
        }
        plugin.del(Some(&result)).unwrap();
        assert_eq!(scene.changes(), Vec::<String>::new());
    }
}

/// The kernel may have no SCTP sockets; forwarding does not need them. The test sends an INIT packet (RFC 9260, 3.3.2) with a valid checksum.
#[test]
fn sctp_is_redirected() {
    let scene = Scene::new();
    scene
        .plugin(json!({"addresses": ["192.168.50.99/24"], "destinations": ["3868 SCTP 203.0.113.9 3869"]}))
        .add()
        .unwrap();
    let echo = "echo $SOCAT_PEERADDR >&2; od -An -tu2 --endian=big -j2 -N2 >&2";
    let address = format!("IP4-RECVFROM:132,bind={},fork", OUTSIDE[0]);
    let server = scene.env.outside.start_process(["socat", &address, &format!("SYSTEM:{echo}")]).unwrap();
    let mut packet: Vec<u8> = [5000u16, 3868].iter().flat_map(|port| port.to_be_bytes()).collect();
    packet.extend([0; 8]); // verification tag 0, checksum
    packet.extend([1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let sum = crc32c(&packet).to_le_bytes();
    packet[8..12].copy_from_slice(&sum);
    let bytes: String = packet.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    wait_until("the packet arrives at the other port with the pod's address as source", || {
        scene
            .env
            .node2
            .sh(&format!("printf '{bytes}' | socat -u - IP4-SENDTO:{}:132", scene.pod.addresses[0]))?;
        let printed = server.printed();
        Ok(printed.contains(OWN[0]) && printed.contains("3869"))
    })
    .unwrap();
}

/// CRC32c, as in RFC 9260 (appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82f6_3b78 * (sum & 1)))
    })
}
