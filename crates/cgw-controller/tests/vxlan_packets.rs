//! Packets through the driver `vxlan`: two workers, two gateways and a host outside, each a network namespace on one bridge, with pods behind a
//! bridge and a masquerade rule as a CNI plugin writes it. Needs root, iproute2 and nftables.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "vxlan_packets/lab.rs"]
mod lab;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{A, B, Lab, OUTSIDE, PODS, SILENCE, TIMEOUT, node, pod, tcp};

/// The gateway of each VIP.
type Gateways = BTreeMap<Ipv4Addr, Option<&'static str>>;

#[test]
fn packets_of_bound_pods_leave_and_arrive_with_their_vip() {
    let mut lab = Lab::new();
    lab.serve("ext", 80);
    for (name, ..) in PODS {
        lab.serve(name, 8080);
    }
    // NodePorts with externalTrafficPolicy Local, as kube-proxy translates them.
    for (name, to) in [("w2", "b1"), ("g1", "a3")] {
        lab.run(name, "nft add table ip np");
        lab.run(name, "nft add chain ip np pre { type nat hook prerouting priority -100 ; }");
        let rule = format!("ip daddr {} tcp dport 30080 dnat to {}:8080", node(name).0, pod(to));
        lab.run(name, &format!("nft add rule ip np pre {rule}"));
    }
    lab.place(A, "g1");
    lab.place(B, "g1");
    let mut gateways = Gateways::from([(A, Some("g1")), (B, Some("g1"))]);
    println!("first apply: {:?}", lab.apply(&gateways));

    for layout in ["one gateway", "two gateways", "two gateways, and kube-proxy translates VIPs"] {
        match layout {
            "one gateway" => {}
            "two gateways" => {
                lab.place(B, "g2");
                gateways.insert(B, Some("g2"));
                lab.apply(&gateways);
            }
            _ => lab.translate_vips(),
        }
        let both = |from: &str, to, port| [lab.tcp(from, to, port), lab.udp(from, to, port)];
        for name in ["a1", "a2", "a3", "a4"] {
            assert_eq!(
                both(name, OUTSIDE, 80),
                [format!("ext {A}"), format!("ext {A}")],
                "{layout}: {name} to the outside"
            );
            // Where A is an address of the backend's own node, a reply to it would not return to the gateway of B.
            let on_g1 = if layout == "one gateway" { A } else { B };
            let expected = [format!("b1 {A}"), format!("b2 {on_g1}")];
            let mut servers = BTreeSet::new();
            while servers.len() < expected.len() {
                for response in both(name, B, 80) {
                    assert!(expected.contains(&response), "{layout}: {name} to the other VIP: {response}");
                    servers.insert(response);
                }
            }
        }
        for _ in 0..4 {
            for response in both("ext", A, 80).into_iter().chain(
                both("a1", A, 80).into_iter().map(|own| own.replace(&A.to_string(), &OUTSIDE.to_string())),
            ) {
                assert!(
                    response.starts_with('a') && response.ends_with(&OUTSIDE.to_string()),
                    "{layout}: {response}"
                );
            }
        }
        for name in ["b1", "b2"] {
            assert_eq!(both(name, OUTSIDE, 80), [format!("ext {B}"), format!("ext {B}")]);
        }
        for response in both("ext", B, 80) {
            assert!(response.starts_with('b') && response.ends_with(&OUTSIDE.to_string()), "{response}");
        }
        // Pods that are not bound, on a worker, on the pod's node and on a gateway; hosts.
        assert_eq!(lab.tcp("c1", OUTSIDE, 80), format!("ext {}", node("w1").0));
        assert_eq!(lab.tcp("c3", OUTSIDE, 80), format!("ext {}", node("g1").0));
        for client in ["c1", "c2", "c3", "w1", "w2", "g1", "g2"] {
            assert!(lab.tcp(client, B, 80).starts_with('b'), "{layout}: {client} to a VIP");
        }
        assert_eq!(lab.tcp("a1", pod("c2"), 8080), format!("c2 {}", pod("a1")));
        assert_eq!(lab.tcp("a1", pod("b1"), 8080), format!("b1 {}", pod("a1")));
        assert_eq!(lab.tcp("ext", node("w2").0, 30080), format!("b1 {OUTSIDE}"));
        assert_eq!(lab.tcp("ext", node("g1").0, 30080), format!("a3 {OUTSIDE}"));
        assert_eq!(lab.tcp("ext", B, 81), "ConnectionRefused");
        assert_eq!(lab.tcp("a1", B, 81), "ConnectionRefused");
        assert_eq!(lab.tcp("ext", B, 22), "ConnectionRefused");
        admit_sources(&mut lab, layout, &gateways);
    }
    // The agent has not read this pod.
    lab.assert_dropped("u1", OUTSIDE, 80);
    // No gateway.
    lab.apply(&BTreeMap::from([(A, None), (B, Some("g2"))]));
    for name in ["a1", "a3", "a4"] {
        lab.assert_dropped(name, OUTSIDE, 80);
    }
    assert_eq!(lab.tcp("c1", OUTSIDE, 80), format!("ext {}", node("w1").0));
    change_under_load(&mut lab);
}

/// The clients of a VIP with a list of sources: a bound pod is its VIP in every layout, its own address is nothing.
fn admit_sources(lab: &mut Lab, layout: &str, gateways: &Gateways) {
    let gateway = gateways[&B].unwrap();
    let mut clients = vec!["ext", "a1", "a2", "a3", "a4", "b1"];
    // Where kube-proxy translates the VIP, packets of the others do not reach the gateway.
    if !layout.contains("kube-proxy") {
        clients.extend(["c1", "w1", "w2", "g1", "g2"]);
    }
    // The address of an unbound pod is that of its node.
    let nodes = [node("w1").0, node(gateway).0].map(|node| format!("{node}/32")).join(",");
    let open = lab.echo("ext", B);
    for (list, admitted) in [
        (format!("{OUTSIDE}/32"), vec!["ext"]),
        (format!("{A}/32,203.0.113.0/24"), vec!["a1", "a2", "a3", "a4"]),
        (format!("{B}/32"), vec!["b1", gateway]),
        ("10.244.0.0/16".to_owned(), vec![]),
        (nodes, vec!["c1", "w1", gateway]),
        (format!("{OUTSIDE}/31,{A}/32"), vec!["ext", "a1", "a2", "a3", "a4"]),
        (String::new(), vec![]),
    ] {
        let networks = list.split(',').filter(|network| !network.is_empty());
        lab.sources.insert(B, networks.map(|network| network.parse().unwrap()).collect());
        lab.apply(gateways);
        let attempts: Vec<_> = clients
            .iter()
            .map(|client| {
                let timeout = if admitted.contains(client) { TIMEOUT } else { SILENCE };
                (client, lab.inside(client, move || tcp(B, 80, timeout)))
            })
            .collect();
        for (client, attempt) in attempts {
            let response = attempt.join().unwrap();
            let is_expected = match admitted.contains(client) {
                true => response.starts_with('b'),
                false => response == "TimedOut",
            };
            assert!(is_expected, "{layout}: {client} to a VIP that admits {list:?}: {response}");
        }
        assert!(lab.tcp("ext", A, 80).starts_with('a'), "{layout}: another VIP");
        assert_eq!(lab.tcp("ext", B, 22), "ConnectionRefused", "{layout}: no port of the list");
        let goal = open.lines.load(Ordering::Relaxed) + 2;
        until("an open connection", || open.lines.load(Ordering::Relaxed) >= goal);
    }
    let listed = lab.run(gateway, "nft list chain ip cgw sources");
    assert_eq!(
        listed.matches("counter packets 0 ").count(),
        0,
        "{layout}: refused packets are counted: {listed}"
    );
    lab.sources.clear();
    lab.apply(gateways);
    assert!(lab.tcp("ext", B, 80).starts_with('b'), "{layout}: a VIP without a list");
}

/// New and open connections while the VIP moves: the outside sees no other address, and the open ones stay.
fn change_under_load(lab: &mut Lab) {
    let gateways = |a| BTreeMap::from([(A, Some(a)), (B, Some("g1"))]);
    lab.place(A, "g1");
    lab.apply(&gateways("g1"));
    // All clients are pods of A from here on.
    lab.run("ext", "nft add table ip seen");
    lab.run("ext", "nft add chain ip seen in { type filter hook prerouting priority -300 ; }");
    for source in [format!("ip saddr {A}"), "meta l4proto { tcp, udp }".to_owned()] {
        lab.run("ext", &format!("nft add rule ip seen in {source} counter accept"));
    }
    let (over, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = ["a1", "a2", "a3", "a4"].map(|name| {
        let (over, good) = (over.clone(), good.clone());
        lab.inside(name, move || {
            while !over.load(Ordering::Relaxed) {
                let response = tcp(OUTSIDE, 80, SILENCE);
                if response.starts_with("ext") {
                    assert_eq!(response, format!("ext {A}"));
                    good.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    let mut open: Vec<_> = ["a1", "a2", "a3", "a4"].map(|name| lab.echo(name, OUTSIDE)).into();
    // One connection to each pod: on a worker, on the old and on the new gateway.
    let mut servers = BTreeSet::new();
    while servers.len() < 4 {
        let echo = lab.echo("ext", A);
        if servers.insert(echo.server.clone()) {
            open.push(echo);
        }
    }
    // The order of a failover, and the other one: the datapath knows the gateway before the gateway has the VIP.
    for (gateway, vip_first) in [("g2", true), ("g1", true), ("g2", false), ("g1", false)] {
        if vip_first {
            lab.place(A, gateway);
            // A moved address makes the agents of both gateways apply what they know.
            lab.apply(&gateways(if gateway == "g1" { "g2" } else { "g1" }));
        }
        let duration = lab.apply(&gateways(gateway));
        println!("a change of the gateway: all done after {duration:?} on the slowest node");
        if !vip_first {
            lab.place(A, gateway);
            lab.apply(&gateways(gateway));
        }
        // So many that the counter below has its packets without those of a slow apply.
        let goal = good.load(Ordering::Relaxed) + 80;
        until("new connections", || good.load(Ordering::Relaxed) >= goal);
        for echo in &open {
            let goal = echo.lines.load(Ordering::Relaxed) + 5;
            until(&echo.name, || echo.lines.load(Ordering::Relaxed) >= goal || echo.thread.is_finished());
            assert!(!echo.thread.is_finished(), "{} ended", echo.name);
        }
    }
    over.store(true, Ordering::Relaxed);
    for client in load {
        client.join().unwrap();
    }
    let seen = lab.run("ext", "nft list table ip seen");
    let packets: Vec<u64> = seen
        .split("counter packets ")
        .skip(1)
        .map(|rest| rest.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(packets[0] > 1000 && packets[1] == 0, "packets from the VIP, and from elsewhere: {packets:?}");
}

fn until(subject: &str, is_reached: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_reached() {
        assert!(Instant::now() < deadline, "{subject}: nothing arrives");
        thread::sleep(Duration::from_millis(1));
    }
}
