//! Packets through the driver `ovs`: openshift-sdn's tables in the userspace datapath of Open vSwitch, and some in the kernel's, four nodes
//! with VXLAN between them, and an outside. Needs root and the Debian packages openvswitch-switch, iptables, ethtool, conntrack.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, unsafe_code)]

#[path = "ovs_packets/kernel_datapath.rs"]
mod kernel_datapath;
#[path = "ovs_packets/lab.rs"]
mod lab;
#[path = "ovs_packets/load.rs"]
mod load;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, UdpSocket},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use cgw_controller::{
    agent::{
        datapath::{BoundPod, VipRoute},
        driver::Driver as _,
        ovs::{Config, Ovs, balance, plan::PortMode},
    },
    api::TunId,
};
use lab::{
    Counter, EXT, EXT_2, Lab, PORT, State, VIP_A, VIP_B, VNID_A, lab, lab_of, profiles, tables::of_pod, wait,
};
use load::Load;

/// The name of the pod and the client that it saw.
fn through(lab: &Lab, client: &str, vip: &str) -> Option<(String, String)> {
    let line = if client == "ext" { lab.ext.greeting(vip, 80) } else { lab.pod(client).greeting(vip, 80) }?;
    let (pod, seen) = line.split_once(' ')?;
    Some((pod.to_owned(), seen.to_owned()))
}

/// Runs `test` with the tables of each profile.
fn for_each_profile(test: impl Fn(&Lab)) {
    for profile in profiles() {
        eprintln!("profile {profile}");
        test(&lab_of(*profile));
    }
}

fn seen(source: &str) -> Option<String> {
    Some(source.to_owned())
}

#[test]
#[ignore = "full: Open vSwitch"]
fn egress_has_the_vip_and_unbound_pods_have_their_node() {
    for_each_profile(|lab| {
        lab.reset(&State::new("g1", "g1"));
        for (pod, source) in [
            ("a1", VIP_A),
            ("a2", VIP_A),
            ("a3", VIP_A),
            ("b1", VIP_B),
            ("c1", "192.168.50.11"),
            ("c3", "192.168.50.21"),
        ] {
            assert_eq!(lab.pod(pod).seen(EXT, PORT), seen(source), "TCP of {pod}");
            assert_eq!(lab.pod(pod).seen_udp(EXT, PORT), seen(source), "UDP of {pod}");
            lab.ext.sh(&format!("iptables -t raw -F; iptables -t raw -A PREROUTING -s {source} -p icmp -j ACCEPT; iptables -t raw -A PREROUTING -p icmp -j DROP"));
            // More than one attempt, because a busy machine delays a reply.
            lab.pod(pod)
                .sh(&format!("for try in {{1..20}}; do ping -c1 -W2 {EXT} >/dev/null && exit; done; exit 1"));
            lab.ext.sh("iptables -t raw -F");
        }
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn ingress_keeps_the_client_and_both_candidates_choose_the_same_backend() {
    for_each_profile(|lab| {
        for gateway in ["g1", "g2"] {
            lab.reset(&State::new(gateway, gateway));
            let mut hit = BTreeSet::new();
            for _ in 0..24 {
                let open = lab.ext.connect(VIP_A, 80).unwrap();
                let index = balance::hash(EXT.parse().unwrap(), Some(open.local_port)) as usize % 3;
                assert_eq!(open.greeting, format!("{} {EXT}", ["a1", "a2", "a3"][index]), "{gateway}");
                hit.insert(index);
            }
            assert_eq!(hit.len(), 3);
            assert_eq!(through(lab, "ext", VIP_B), Some(("b1".into(), EXT.into())));
            assert_eq!(lab.ext.seen_udp(VIP_B, 80), seen(EXT));
        }
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn hairpin_has_the_vip_of_the_client() {
    for_each_profile(|lab| {
        // One gateway, and two.
        for state in [State::new("g1", "g1"), State::new("g1", "g2"), State::new("g2", "g1")] {
            lab.reset(&state);
            for pod in ["a1", "a2", "a3"] {
                assert_eq!(
                    through(lab, pod, VIP_B),
                    Some(("b1".into(), VIP_A.into())),
                    "{pod} {:?} {:?}",
                    state.a,
                    state.b
                );
            }
            assert_eq!(lab.pod("b1").seen(VIP_A, 80), seen(VIP_B));
            assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
            assert_eq!(lab.pod("b1").seen(EXT, PORT), seen(VIP_B));
            assert_eq!(lab.ext.seen(VIP_A, 80), seen(EXT));
            assert_eq!(lab.ext.seen(VIP_B, 80), seen(EXT));
            // A pod reaches its own VIP, also itself behind it.
            let own: BTreeSet<_> =
                (0..12).map(|_| through(lab, "a1", VIP_A).expect("a1 reaches its VIP")).collect();
            assert!(own.iter().all(|(_, source)| source == VIP_A), "{own:?}");
            assert!(own.iter().any(|(pod, _)| pod == "a1"), "{own:?}");
        }
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn unbound_pods_reach_a_vip_with_the_address_of_their_node() {
    for_each_profile(|lab| {
        lab.reset(&State::new("g1", "g1"));
        assert_eq!(through(lab, "c1", VIP_B), Some(("b1".into(), "192.168.50.11".into())));
        // On the gateway itself: the address of tun0.
        assert_eq!(through(lab, "c3", VIP_B), Some(("b1".into(), "10.130.0.1".into())));
        // A process of the gateway.
        let line = lab.nodes["g1"].ns.greeting(VIP_B, 80).expect("the gateway reaches the VIP");
        assert!(line.starts_with("b1 192.168.50."), "{line}");
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn namespaces_stay_isolated() {
    for_each_profile(|lab| {
        lab.reset(&State::new("g1", "g1"));
        assert_eq!(lab.pod("a1").fetch("10.129.0.20", 8080), None);
        assert_eq!(lab.pod("a1").seen("10.129.0.10", 8080), seen("10.128.0.10"));
        assert_eq!(lab.pod("a1").seen("10.130.0.10", 8080), seen("10.128.0.10"));
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn bound_pods_without_a_gateway_are_dropped() {
    for_each_profile(|lab| {
        lab.reset(&State { a: None, ..State::new("g1", "g1") });
        for pod in ["a1", "a2", "a3"] {
            assert_eq!(lab.pod(pod).fetch(EXT, PORT), None, "{pod}");
            assert_eq!(lab.pod(pod).fetch_udp(EXT, PORT), None, "{pod}");
        }
        assert_eq!(lab.pod("b1").seen(EXT, PORT), seen(VIP_B));
        assert_eq!(lab.pod("c1").seen(EXT, PORT), seen("192.168.50.11"));
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn pods_that_an_agent_has_not_read_are_dropped() {
    for_each_profile(|lab| {
        // a2 has no tag on n2, and no SNAT on the candidates.
        lab.reset(&State { unread: vec!["a2"], ..State::new("g1", "g1") });
        assert_eq!(lab.pod("a2").fetch(EXT, PORT), None);
        // Its node has read it, the gateway has not: it must not leave with the address of the gateway, nor reach a VIP.
        lab.nodes["n2"].apply(lab.datapath("n2", &State::new("g1", "g1")));
        assert_eq!(lab.pod("a2").fetch(EXT, PORT), None);
        assert_eq!(lab.pod("a2").fetch_udp(EXT, PORT), None);
        assert_eq!(lab.pod("a2").fetch(VIP_B, 80), None);
        lab.nodes["g1"].apply(lab.datapath("g1", &State::new("g1", "g1")));
        assert_eq!(lab.pod("a2").seen(EXT, PORT), seen(VIP_A));
        assert_eq!(lab.pod("a2").seen(VIP_B, 80), seen(VIP_A));
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn vxlan_from_an_address_that_is_no_node_is_dropped() {
    let lab = lab();
    lab.reset(&State::new("g1", "g1"));
    lab.ext.sh("iptables -t raw -F; iptables -t raw -A PREROUTING -p udp -m udp --dport 7 -j ACCEPT");
    let count = || {
        let text = lab.ext.sh("iptables-save -c -t raw | grep -- '--dport 7 '");
        text[1..].split(':').next().unwrap().parse::<u64>().unwrap()
    };
    let packet = vxlan(&lab);
    let send = |ns: &lab::Ns| {
        let packet = packet.clone();
        ns.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(&packet, "192.168.50.21:4789").unwrap();
        });
    };
    // The same packet from a node arrives: the test would see it.
    wait("a packet of a node arrives", || {
        send(&lab.nodes["n1"].ns);
        thread::sleep(Duration::from_millis(20));
        count() > 0
    });
    lab.ext.sh("iptables -t raw -Z");
    for _ in 0..5 {
        send(&lab.ext);
    }
    // A later connection by the same way has arrived, so these packets had the time.
    assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
    assert_eq!(count(), 0);
    lab.ext.sh("iptables -t raw -F");
}

/// VXLAN with VNID A: a UDP packet of a1 to port 7 of the outside.
fn vxlan(lab: &Lab) -> Vec<u8> {
    let mut packet = vec![8, 0, 0, 0];
    packet.extend((VNID_A << 8).to_be_bytes());
    packet.extend(lab.nodes["g1"].tun_mac().octets());
    packet.extend([0x0a, 0x58, 10, 128, 0, 10, 8, 0]);
    let mut header = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 128, 0, 10, 192, 168, 50, 100];
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(header);
    packet.extend([0x12, 0x34, 0, 7, 0, 12, 0, 0]);
    packet.extend(*b"test");
    packet
}

#[test]
#[ignore = "full: Open vSwitch"]
fn hairpin_works_when_the_gateway_does_not_know_the_pod_yet() {
    let lab = lab();
    let state = State::new("g1", "g1");
    lab.reset(&state);
    let g1 = &lab.nodes["g1"];
    assert_eq!(g1.ns.sh("cat /proc/sys/net/ipv4/conf/tun0/arp_announce").trim(), "2");
    g1.ns.sh("ip neigh flush dev tun0");
    assert_eq!(lab.pod("a1").seen(VIP_B, 80), seen(VIP_A));
    // openshift-sdn drops the ARP packet with the VIP as its sender.
    g1.ns.sh("sysctl -qw net.ipv4.conf.tun0.arp_announce=0; ip neigh flush dev tun0");
    assert_eq!(lab.pod("a1").fetch(VIP_B, 80), None);
    let changes = g1.apply(lab.datapath("g1", &state));
    assert_eq!(
        changes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["sysctl: net.ipv4.conf.tun0.arp_announce: 0 -> 2"]
    );
    g1.ns.sh("ip neigh flush dev tun0");
    assert_eq!(lab.pod("a1").seen(VIP_B, 80), seen(VIP_A));
}

#[test]
#[ignore = "full: Open vSwitch"]
fn stale_mac_address_of_the_gateway_does_no_harm() {
    let lab = lab();
    let stale = State { mac: Some("02:00:00:00:00:99".parse().unwrap()), ..State::new("g1", "g1") };
    lab.reset(&stale);
    assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
    assert_eq!(lab.pod("a1").seen(VIP_B, 80), seen(VIP_A));
    // The flows that rewrite the address are the reason.
    lab.nodes["g1"].ofctl(
        "--strict del-flows br0 table=0,priority=210,in_port=1,tun_src=192.168.50.11,ip,nw_src=10.128.0.0/14",
    );
    assert_eq!(lab.pod("a1").fetch(EXT, PORT), None);
    let changes = lab.nodes["g1"].apply(lab.datapath("g1", &stale));
    assert!(changes.len() == 1 && changes[0].is_repair, "{changes:?}");
    assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
}

#[test]
#[ignore = "full: Open vSwitch"]
fn drift_is_repaired_and_leaks_nothing() {
    let lab = lab();
    let state = State::new("g1", "g1");
    lab.reset(&state);
    // openshift-sdn updates the pod: it deletes the flows with its address in all tables.
    let n1 = &lab.nodes["n1"];
    n1.ofctl("del-flows br0 ip,nw_src=10.128.0.10");
    for flow in of_pod(&lab.profile, &lab.pods["a1"]) {
        n1.ofctl(&format!("add-flow br0 '{flow}'"));
    }
    assert_eq!(
        lab.pod("a1").fetch(EXT, PORT),
        None,
        "a pod without its tag does not leave with the address of its node"
    );
    let changes = n1.apply(lab.datapath("n1", &state));
    assert!(changes.len() == 1 && changes[0].is_repair && changes[0].object == "flow", "{changes:?}");
    assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
    // kube-proxy and openshift-sdn insert their jumps before the driver's, and another program removes one.
    let g1 = &lab.nodes["g1"];
    g1.ns.sh("iptables -t nat -I POSTROUTING 1 -j OPENSHIFT-MASQUERADE; iptables -t mangle -D FORWARD -i tun0 -j CGW-FORWARD");
    let changes = g1.apply(lab.datapath("g1", &state));
    assert_eq!(
        changes.iter().map(|change| (change.to_string(), change.is_repair)).collect::<Vec<_>>(),
        [
            (
                "iptables: chain mangle FORWARD: insert \"-i tun0 -j CGW-FORWARD\" at position 1".to_owned(),
                true
            ),
            ("iptables: chain nat POSTROUTING: remove \"-j CGW-POSTROUTING\"".to_owned(), true),
            ("iptables: chain nat POSTROUTING: insert \"-j CGW-POSTROUTING\" at position 1".to_owned(), true),
        ]
    );
    assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
    assert_eq!(lab.ext.seen(VIP_A, 80), seen(EXT));
    g1.ns.sh("iptables -t nat -D POSTROUTING -j OPENSHIFT-MASQUERADE");
    // tun0 is re-created.
    g1.ns.sh("ip link set tun0 address 02:00:00:00:00:77");
    let datapath = lab.datapath("g1", &state);
    wait("OVSDB has the new MAC address", || {
        g1.vsctl("get interface tun0 mac_in_use").contains("02:00:00:00:00:77")
    });
    assert_eq!(g1.apply(datapath).len(), 3, "one flow for each other node");
    assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A), "n1 still writes the old MAC address");
}

#[test]
#[ignore = "full: Open vSwitch"]
fn steady_state_and_restart_write_nothing() {
    for_each_profile(|lab| {
        let state =
            State { excluded: vec!["192.168.50.101/32", "192.168.50.12/32"], ..State::new("g1", "g2") };
        lab.reset(&state);
        let begin = Instant::now();
        assert_eq!(lab.apply(&state), []);
        eprintln!("apply of four nodes without a change: {:?}", begin.elapsed());
        lab.restart();
        assert_eq!(lab.apply(&state), []);
        let preview = {
            let datapath = lab.datapath("g1", &State::new("g2", "g2"));
            lab.nodes["g1"].with_driver(move |driver| driver.preview(&datapath)).unwrap()
        };
        assert!(!preview.is_empty());
        assert_eq!(lab.apply(&state), []);
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn excluded_destinations_see_the_node() {
    for_each_profile(|lab| {
        let state = State { excluded: vec!["192.168.50.100/32"], ..State::new("g1", "g1") };
        lab.reset(&state);
        for (pod, source) in [("a2", "192.168.50.12"), ("b1", "192.168.50.12"), ("a3", "192.168.50.21")] {
            assert_eq!(lab.pod(pod).seen(EXT, PORT), seen(source), "{pod}");
        }
        assert_eq!(lab.pod("b1").seen(EXT_2, PORT), seen(VIP_B));
        assert_eq!(lab.pod("a1").seen(VIP_B, 80), seen(VIP_A));
        // Clients of the VIP may be excluded as well: their replies take the gateway. Nodes are excluded by default.
        for _ in 0..6 {
            assert_eq!(lab.ext.seen(VIP_A, 80), seen(EXT));
        }
        assert_eq!(lab.ext.seen_udp(VIP_B, 80), seen(EXT));
        lab.reset(&State {
            excluded: vec!["192.168.50.11/32", "192.168.50.12/32", "192.168.50.21/32"],
            ..State::new("g1", "g1")
        });
        assert_eq!(lab.pod("c1").seen(VIP_B, 80), seen("192.168.50.11"));
        assert_eq!(lab.nodes["n1"].ns.seen(VIP_B, 80), seen("192.168.50.11"));
        assert_eq!(lab.nodes["n2"].ns.seen(VIP_A, 80), seen("192.168.50.12"));
        assert!(lab.nodes["g1"].ns.seen(VIP_B, 80).is_some());
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn network_policy_of_the_gateway_and_multicast_keep_the_vnid() {
    let lab = lab();
    lab.reset(&State::new("g1", "g1"));
    // EgressNetworkPolicy of namespace A denies the second address.
    for pod in ["a1", "a3"] {
        assert_eq!(lab.pod(pod).fetch(EXT_2, PORT), None, "{pod}");
    }
    assert_eq!(lab.pod("b1").seen(EXT_2, PORT), seen(VIP_B));
    let sent = lab.nodes["n1"]
        .trace("in_port=3,tcp,nw_src=10.128.0.10,nw_dst=192.168.50.100,dl_src=0a:58:0a:80:00:0a");
    assert!(sent.contains("NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31]"), "{sent}");
    let multicast = lab.nodes["g1"].trace(
        "in_port=1,tun_src=192.168.50.11,tun_dst=192.168.50.21,tun_id=0x3f6450,udp,nw_src=10.128.0.10,nw_dst=224.0.0.9",
    );
    assert!(multicast.contains("120. "), "{multicast}");
    // A client has one mark: 0x2 outside of the cluster, 0x4 inside.
    let g1 = &lab.nodes["g1"];
    g1.ns.sh("iptables -t mangle -A POSTROUTING -d 10.128.0.0/14 -m mark --mark 0x6/0x6 -j DROP");
    let both = (lab.ext.seen(VIP_B, 80), lab.pod("a1").seen(VIP_B, 80));
    g1.ns.sh("iptables -t mangle -D POSTROUTING -d 10.128.0.0/14 -m mark --mark 0x6/0x6 -j DROP");
    assert_eq!(both, (seen(EXT), seen(VIP_A)));
}

/// DNAT by kube-proxy, because the VIP is an address of the Service.
#[test]
#[ignore = "full: Open vSwitch"]
fn kube_proxy_translates_and_the_driver_marks() {
    let lab = lab();
    let state = State::new("g1", "g1");
    lab.reset(&state);
    let g1 = &lab.nodes["g1"];
    g1.restart(lab.profile, PortMode::KubeProxy);
    g1.apply(lab.datapath("g1", &state));
    let rules = g1.ns.sh("iptables-save -t nat");
    assert!(!rules.contains("CGW-SVC-"), "{rules}");
    g1.ns.sh(&format!(
        "iptables -t nat -N KUBE-SERVICES; iptables -t nat -I PREROUTING 1 -j KUBE-SERVICES
         iptables -t nat -A KUBE-SERVICES -d {VIP_A}/32 -p tcp --dport 80 -j MARK --set-xmark 0x1/0x1
         iptables -t nat -A KUBE-SERVICES -d {VIP_A}/32 -p tcp --dport 80 -j DNAT --to 10.128.0.10:8080
         iptables -t nat -A KUBE-SERVICES -d {VIP_B}/32 -p tcp --dport 80 -j MARK --set-xmark 0x1/0x1
         iptables -t nat -A KUBE-SERVICES -d {VIP_B}/32 -p tcp --dport 80 -j DNAT --to 10.129.0.20:8080"
    ));
    // The jump of kube-proxy is before the driver's: openshift-sdn masquerades the client.
    assert_eq!(through(&lab, "ext", VIP_A), Some(("a1".into(), "10.130.0.1".into())));
    assert!(g1.apply(lab.datapath("g1", &state)).iter().all(|change| change.is_repair));
    assert_eq!(through(&lab, "ext", VIP_A), Some(("a1".into(), EXT.into())));
    assert_eq!(through(&lab, "a2", VIP_B), Some(("b1".into(), VIP_A.into())));
    // Sources are compared before kube-proxy translates.
    let restricted = State { sources: BTreeMap::from([("b", vec!["192.168.50.100/32"])]), ..state };
    g1.apply(lab.datapath("g1", &restricted));
    assert_eq!(through(&lab, "ext", VIP_B), Some(("b1".into(), EXT.into())));
    assert_eq!(lab.pod("a2").fetch(VIP_B, 80), None);
    g1.ns.sh("iptables -t nat -D PREROUTING -j KUBE-SERVICES; iptables -t nat -F KUBE-SERVICES; iptables -t nat -X KUBE-SERVICES");
}

#[test]
#[ignore = "full: Open vSwitch"]
fn a_vip_admits_the_sources_of_its_service() {
    let lab = lab();
    for gateway in ["g1", "g2"] {
        let mut state = State::new("g1", gateway);
        lab.reset(&state);
        let mut open = lab.ext.connect(VIP_B, 80).unwrap();
        // A bound pod is its VIP, and its own address is nothing. An unbound pod has the address of its node.
        let lists: [(Vec<&str>, &[&str]); 7] = [
            (vec!["192.168.50.100/32"], &["ext"]),
            (vec!["192.168.50.201/32", "203.0.113.0/24"], &["a1", "a3"]),
            (vec!["192.168.50.202/32"], &["b1", gateway]),
            (vec![lab::CLUSTER], &[]),
            (vec!["192.168.50.11/32"], &["c1", "n1"]),
            (vec![if gateway == "g1" { "192.168.50.21/32" } else { "192.168.50.22/32" }], &[gateway]),
            (vec![], &[]),
        ];
        for (list, admitted) in lists {
            state.sources.insert("b", list);
            lab.apply(&state);
            let clients = ["ext", "a1", "a3", "b1", "c1", "n1", gateway];
            let reached: Vec<&str> = thread::scope(|scope| {
                let attempts = clients.map(|client| {
                    let ns = match client {
                        "ext" => &lab.ext,
                        name => lab.nodes.get(name).map_or_else(|| lab.pod(name), |member| &member.ns),
                    };
                    let is_admitted = admitted.contains(&client);
                    let attempt =
                        move || if is_admitted { ns.greeting(VIP_B, 80) } else { ns.fetch(VIP_B, 80) };
                    (client, scope.spawn(attempt))
                });
                let reached = attempts.into_iter().filter_map(|(client, attempt)| {
                    attempt.join().unwrap().is_some_and(|line| line.starts_with("b1 ")).then_some(client)
                });
                reached.collect()
            });
            assert_eq!(reached, admitted, "{gateway}: {:?}", state.sources);
            assert!(open.works(), "an open connection");
            assert!(through(&lab, "ext", VIP_A).is_some(), "another VIP");
        }
        assert_eq!(lab.apply(&state), []);
    }
}

/// The gateway moves six times while pods and clients connect all the time. The order of the nodes is never the same.
#[test]
#[ignore = "full: Open vSwitch"]
fn gateway_moves_under_load_and_no_packet_has_a_wrong_source() {
    let lab = lab();
    lab.reset(&State::new("g1", "g1"));
    let sources: [IpAddr; 2] = [VIP_A.parse().unwrap(), VIP_B.parse().unwrap()];
    let counter = Counter::new(&lab.ext, PORT, &sources);
    let load = Load::start(&lab, &[("a1", VIP_A), ("a2", VIP_A), ("a3", VIP_A), ("b1", VIP_B)]);
    let orders = [
        ["n1", "n2", "g1", "g2"],
        ["g2", "g1", "n2", "n1"],
        ["g1", "n2", "g2", "n1"],
        ["n2", "g2", "n1", "g1"],
        ["g1", "g2", "n1", "n2"],
        ["n1", "g1", "g2", "n2"],
    ];
    let mut longest = Duration::ZERO;
    for (index, order) in orders.iter().enumerate() {
        let gateway = if index % 2 == 0 { "g2" } else { "g1" };
        let state = State::new(gateway, gateway);
        // The address moves before, between, or after the flows.
        for (position, node) in order.iter().enumerate() {
            if position == index % 4 {
                lab.move_vips(&state);
            }
            let datapath = lab.datapath(node, &state);
            let begin = Instant::now();
            lab.nodes[node].apply(datapath);
            longest = longest.max(begin.elapsed());
        }
        load.succeeds();
    }
    let (connected, failed) = load.stop();
    let packets = counter.packets();
    lab.ext.sh("iptables -t raw -F");
    eprintln!(
        "{connected} connections, {failed} failed; packets with VIP A {}, VIP B {}, other sources {}; longest apply {longest:?}",
        packets[0], packets[1], packets[2]
    );
    assert!(packets[0] > 100 && packets[1] > 30, "{packets:?}");
    assert_eq!(packets[2], 0, "{packets:?}");
}

#[test]
#[ignore = "full: Open vSwitch"]
fn connections_survive_a_planned_change_of_the_gateway() {
    for_each_profile(|lab| {
        lab.reset(&State::new("g1", "g1"));
        let mut egress: Vec<_> =
            ["a1", "a2", "b1"].map(|pod| lab.pod(pod).connect(EXT, PORT).unwrap()).into();
        let mut ingress: Vec<_> = (0..8).map(|_| lab.ext.connect(VIP_A, 80).unwrap()).collect();
        let mut hairpin: Vec<_> = ["a1", "a2"].map(|pod| lab.pod(pod).connect(VIP_B, 80).unwrap()).into();
        for gateway in ["g2", "g1"] {
            lab.apply(&State::new(gateway, gateway));
            // Without a copy of the conntrack entries.
            lab.nodes[if gateway == "g1" { "g2" } else { "g1" }].ns.sh("conntrack -F 2>/dev/null");
            let alive = |list: &mut Vec<lab::Open>| {
                list.iter_mut().map(|open| usize::from(open.works())).sum::<usize>()
            };
            let alive = (alive(&mut egress), alive(&mut ingress), alive(&mut hairpin));
            eprintln!(
                "to {gateway}: egress {} of 3, ingress {} of 8, hairpin {} of 2",
                alive.0, alive.1, alive.2
            );
            assert_eq!(alive, (3, 8, 2));
        }
    });
}

/// nat translates only the first packet of a connection.
#[test]
#[ignore = "full: Open vSwitch"]
fn a_connection_from_before_a_bind_does_not_leave_with_another_source() {
    for_each_profile(|lab| {
        let unbound = State { unbound: vec!["a3"], ..State::new("g1", "g1") };
        let bound = State::new("g1", "g1");
        lab.reset(&unbound);
        for (state, source) in [(&bound, VIP_A), (&unbound, "192.168.50.21")] {
            let mut open = lab.pod("a3").connect(EXT, PORT).unwrap();
            assert!(open.works());
            lab.apply(state);
            assert!(open.is_broken(), "it would leave with its earlier source");
            assert_eq!(lab.pod("a3").seen(EXT, PORT), seen(source));
        }
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn guards_are_written_before_the_bridge_can_be_read() {
    let lab = lab();
    lab.reset(&State::new("g1", "g1"));
    let n2 = &lab.nodes["n2"];
    n2.with_driver(|driver| driver.uninstall()).unwrap();
    let datapath = lab.datapath("n2", &State::new("g1", "g1"));
    let config = Config { run_dir: "/nonexistent".into(), ..Config::default() };
    let error = n2.ns.run(move || Ovs::new(config).apply(&datapath)).unwrap_err();
    assert_eq!(error.operation, "reading the flows of br0");
    assert!(error.cause.contains("br0 is not a bridge or a socket") && !error.is_permanent, "{error}");
    for pod in ["a2", "b1"] {
        assert_eq!(lab.pod(pod).fetch(EXT, PORT), None, "{pod}");
    }
}

#[test]
#[ignore = "full: Open vSwitch"]
fn uninstall_leaves_nothing() {
    for_each_profile(|lab| {
        for member in lab.nodes.values() {
            member.with_driver(|driver| driver.uninstall()).unwrap();
        }
        let before: Vec<_> = lab.nodes.values().map(lab::Member::state).collect();
        assert!(before.iter().all(
            |(flows, rules)| !flows.iter().any(|flow| flow.contains("0xc6e")) && !rules.contains("CGW-")
        ));
        lab.reset(&State { excluded: vec!["192.168.50.101/32"], ..State::new("g1", "g2") });
        assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
        for member in lab.nodes.values() {
            // As by another process: nothing is known of the desired state.
            member.restart(lab.profile, PortMode::Own);
            assert!(!member.with_driver(|driver| driver.uninstall()).unwrap().is_empty());
            assert_eq!(member.with_driver(|driver| driver.uninstall()).unwrap(), []);
        }
        let after: Vec<_> = lab.nodes.values().map(lab::Member::state).collect();
        assert_eq!(after, before);
        for (pod, source) in [("a1", "192.168.50.11"), ("a2", "192.168.50.12"), ("a3", "192.168.50.21")] {
            assert_eq!(lab.pod(pod).seen(EXT, PORT), seen(source), "{pod} leaves as without the driver");
        }
    });
}

#[test]
#[ignore = "full: Open vSwitch"]
fn first_installation_leaks_no_address_of_a_gateway() {
    let lab = lab();
    for member in lab.nodes.values() {
        member.with_driver(|driver| driver.uninstall()).unwrap();
    }
    let state = State::new("g1", "g1");
    lab.move_vips(&state);
    // The nodes are first; the gateway has flows and chains last.
    lab.nodes["g1"].restart(lab.profile, PortMode::Own);
    let addresses: [IpAddr; 1] = [VIP_A.parse().unwrap()];
    lab.nodes["g1"].apply(lab.datapath("g1", &State { unread: vec!["a1"], ..state.clone() }));
    let counter = Counter::of_connections(&lab.ext, PORT, &addresses);
    lab.nodes["n1"].apply(lab.datapath("n1", &state));
    assert_eq!(lab.pod("a1").fetch(EXT, PORT), None);
    assert_eq!(counter.packets(), [0, 0]);
    lab.nodes["g1"].apply(lab.datapath("g1", &state));
    assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
    assert_eq!(counter.packets()[1], 0);
    lab.ext.sh("iptables -t raw -F");
}

#[test]
#[ignore = "full: Open vSwitch"]
fn port_without_backends_is_refused_by_the_gateway() {
    let lab = lab();
    let state = State { unread: vec!["b1"], ..State::new("g1", "g1") };
    lab.reset(&state);
    // A process of the gateway that listens on every address is no backend.
    let gateway = &lab.nodes["g1"];
    let listener = gateway.ns.run(|| {
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "socat", "TCP-LISTEN:80,fork,reuseaddr", "SYSTEM:echo gateway"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    });
    wait("the process listens", || gateway.ns.fetch("127.0.0.1", 80).is_some());
    let response = lab.ext.fetch(VIP_B, 80);
    let mut listener = listener;
    listener.kill().unwrap();
    listener.wait().unwrap();
    assert_eq!(response, None);
}

/// More than 256 pods: the rules are split by network.
#[test]
#[ignore = "full: Open vSwitch"]
fn many_pods_are_translated() {
    many(60);
}

/// Numbers of a large cluster; prints them.
#[test]
#[ignore = "full: a measurement"]
fn very_many_pods_are_translated() {
    many(2_000);
}

fn many(vips: u32) {
    let lab = lab();
    lab.reset(&State::new("g1", "g1"));
    let g1 = &lab.nodes["g1"];
    let mut datapath = lab.datapath("g1", &State::new("g1", "g1"));
    let path = datapath.vips.values().next().unwrap().clone();
    let node_ip = lab.nodes["n1"].ip;
    for vip in 0..vips {
        let mut path = path.clone();
        path.tun_id = TunId::new(0x1_0000 + vip).unwrap();
        path.pods = (0..5_u32)
            .map(|pod| {
                (
                    Ipv4Addr::from_bits(0x0a83_0000 + vip * 5 + pod),
                    BoundPod { name: "ns/pod".into(), node_ip },
                )
            })
            .collect();
        path.ports.truncate(1);
        for port in &mut path.ports {
            port.backends = path.pods.keys().map(|address| (*address, 8080)).collect();
        }
        datapath.vips.insert(Ipv4Addr::from_bits(0x0a0a_0000 + vip), path);
    }
    let mut flipped = datapath.clone();
    for path in flipped.vips.values_mut() {
        path.route = VipRoute::Remote { node_ip: lab.nodes["g2"].ip, tun_mac: lab.nodes["g2"].tun_mac() };
    }
    for (name, datapath) in
        [("first", &datapath), ("steady", &datapath), ("flip", &flipped), ("flip", &datapath)]
    {
        let begin = Instant::now();
        let changes = g1.apply(datapath.clone()).len();
        eprintln!("{name}: {vips} VIPs, {} pods: {changes} changes in {:?}", vips * 5, begin.elapsed());
    }
    let begin = Instant::now();
    wait("a1 leaves", || lab.pod("a1").seen(EXT, PORT) == seen(VIP_A));
    eprintln!("first connection: {:?}", begin.elapsed());
    let begin = Instant::now();
    for _ in 0..50 {
        assert_eq!(lab.pod("a1").seen(EXT, PORT), seen(VIP_A));
    }
    eprintln!("50 connections: {:?}", begin.elapsed());
    // A pod of these networks that is not bound.
    let mut unread = datapath.clone();
    unread.vips.get_mut(&VIP_A.parse().unwrap()).unwrap().pods.remove(&lab.pods["a1"].ip);
    g1.apply(unread);
    assert_eq!(lab.pod("a1").fetch(EXT, PORT), None);
    lab.reset(&State::new("g1", "g1"));
}
