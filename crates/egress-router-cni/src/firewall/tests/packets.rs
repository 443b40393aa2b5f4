//! Tests of the table with packets.

mod frames;
mod lab;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::sys::isolated::ip;
use lab::{
    Lab, NO_REPLY_TIMEOUT, Network, TIMEOUT, attachment, connect, delete, failed_connect, install,
    pod_serves, send,
};

fn seen(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// The error of a datagram that is rejected. The kernel limits these errors per second, for all its namespaces
/// together: some may stay out.
fn send_error(from: &str, to: &str) -> ErrorKind {
    let rejected = || {
        let socket = send(from, to).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket.recv(&mut [0]).unwrap_err().kind()
    };
    (0..60).map(|_| rejected()).find(|kind| *kind != ErrorKind::WouldBlock).unwrap_or(ErrorKind::WouldBlock)
}

fn assert_refused(address: &str) {
    let error = connect(address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{address}: {error}");
}

fn redirects() -> Destinations {
    Destinations {
        redirects: vec![
            redirect(80, Protocol::Tcp, "203.0.113.1", Some(8080)),
            redirect(443, Protocol::Tcp, "2001:db8:2::1", None),
            redirect(53, Protocol::Udp, "203.0.113.1", None),
            redirect(53, Protocol::Udp, "2001:db8:2::1", Some(5353)),
        ],
        ..Destinations::default()
    }
}

#[test]
fn a_redirect_has_snat_and_its_replies_reach_another_node() {
    isolated(|| {
        let lab = Lab::new();
        let (cluster, outside) = (&lab.cluster, &lab.outside[0]);
        install(&attachment(1, redirects()));
        let (v4, v6) = (seen("192.168.51.10"), seen("2001:db8:51::10"));
        assert_eq!(outside.serves("203.0.113.1:8080", cluster.connects("10.244.1.5:80")).unwrap(), v4);
        assert_eq!(outside.serves("[2001:db8:2::1]:443", cluster.connects("[fd00:1::5]:443")).unwrap(), v6);
        assert_eq!(
            outside.serves_udp("203.0.113.1:53", cluster.sends("10.244.2.5", "10.244.1.5:53")).unwrap(),
            v4
        );
        assert_eq!(
            outside.serves_udp("[2001:db8:2::1]:5353", cluster.sends("fd00:2::5", "[fd00:1::5]:53")).unwrap(),
            v6
        );
        // The target's ICMP error (no listener) is forwarded to the client.
        for (from, to) in [("10.244.2.5", "10.244.1.5:53"), ("fd00:2::5", "[fd00:1::5]:53")] {
            assert_eq!(cluster.within(|| send_error(from, to)), ErrorKind::ConnectionRefused, "{to}");
        }
        // Ports without a redirect are delivered to the pod.
        let own = pod_serves("10.244.1.5:81", cluster.connects("10.244.1.5:81")).unwrap();
        assert_eq!(own, seen("10.244.2.5"));
        assert_eq!(
            cluster.within(|| connect("[fd00:1::5]:81")).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        // Packets to other destinations are not redirected.
        assert_ne!(cluster.within(|| failed_connect("198.51.100.1:80")), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_fallback_redirects_all_other_ports() {
    isolated(|| {
        let lab = Lab::new();
        let (cluster, outside) = (&lab.cluster, &lab.outside[0]);
        let fallback_v4 = Some("203.0.113.9".parse().unwrap());
        let fallback_v6 = Some("2001:db8:2::9".parse().unwrap());
        install(&attachment(1, Destinations { fallback_v4, fallback_v6, ..redirects() }));
        let (v4, v6) = (seen("192.168.51.10"), seen("2001:db8:51::10"));
        assert_eq!(outside.serves("203.0.113.1:8080", cluster.connects("10.244.1.5:80")).unwrap(), v4);
        assert_eq!(outside.serves("203.0.113.9:81", cluster.connects("10.244.1.5:81")).unwrap(), v4);
        assert_eq!(outside.serves("[2001:db8:2::9]:81", cluster.connects("[fd00:1::5]:81")).unwrap(), v6);
        let ping = cluster.within(|| ping("10.244.1.5"));
        assert!(ping, "what has no ports as well");
    });
}

/// Whether an echo request has a reply.
fn ping(address: &str) -> bool {
    let mut command = Command::new("ping");
    let command = command.args(["-c", "1", "-W", "5", "-q", address]);
    command.output().expect("this test needs the program ping (package iputils-ping)").status.success()
}

#[test]
fn replies_to_another_node_leave_by_the_primary_interface() {
    isolated(|| {
        let lab = Lab::new();
        let (cluster, outside) = (&lab.cluster, &lab.outside[0]);
        let ours = attachment(1, Destinations::default());
        // The control: without the table the reply leaves through net1 and is lost.
        assert_eq!(cluster.within(|| failed_connect("10.244.1.5:80")), ErrorKind::TimedOut);
        install(&ours);
        assert_eq!(
            pod_serves("10.244.1.5:81", cluster.connects("10.244.1.5:81")).unwrap(),
            seen("10.244.2.5")
        );
        assert_eq!(
            pod_serves("[fd00:1::5]:81", cluster.connects("[fd00:1::5]:81")).unwrap(),
            seen("fd00:2::5")
        );
        assert!(cluster.within(|| ping("10.244.1.5")));
        assert!(cluster.within(|| ping("fd00:1::5")));
        // Also errors and resets of the kernel.
        assert_eq!(
            cluster.within(|| connect("10.244.1.5:82")).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        for (from, to) in [("10.244.2.5", "10.244.1.5:82"), ("fd00:2::5", "[fd00:1::5]:82")] {
            assert_eq!(cluster.within(|| send_error(from, to)), ErrorKind::ConnectionRefused, "{to}");
        }
        // The pod's own connections, and replies to clients of the attachment, leave through the attachment.
        assert_eq!(
            outside.serves("203.0.113.1:80", || connect("203.0.113.1:80")).unwrap(),
            seen("192.168.51.10")
        );
        assert_eq!(
            pod_serves("192.168.51.10:83", outside.connects("192.168.51.10:83")).unwrap(),
            seen("192.168.51.1")
        );
        // A program that binds to the primary interface's address gets SNAT, because otherwise there would be no reply.
        let insisting = || send("10.244.1.5", "203.0.113.1:53");
        assert_eq!(outside.serves_udp("203.0.113.1:53", insisting).unwrap(), seen("192.168.51.10"));
    });
}

#[test]
fn each_family_has_its_own_primary_interface() {
    isolated(|| {
        let lab = Lab::new();
        let second = Network::new(
            "eth1",
            ["10.245.1.1/24", "fd02:1::1/64"],
            &["fd02:2::5/128"],
            ["10.245.1.5/24", "fd02:1::5/64"],
        );
        second.within(|| ip("-6 route add fd02:1::5 dev cable src fd02:2::5"));
        ip(&format!("-6 route replace default via fd02:1::1 table {}", names::primary_table(1)));
        let primary =
            [(Family::V4, "eth0"), (Family::V6, "eth1")].map(|(family, name)| (family, name.to_owned()));
        install(&Firewall { primary: primary.into(), ..attachment(1, redirects()) });
        let (cluster, outside) = (&lab.cluster, &lab.outside[0]);
        assert_eq!(
            pod_serves("10.244.1.5:81", cluster.connects("10.244.1.5:81")).unwrap(),
            seen("10.244.2.5")
        );
        assert_eq!(
            pod_serves("[fd02:1::5]:81", second.connects("[fd02:1::5]:81")).unwrap(),
            seen("fd02:2::5")
        );
        let (v4, v6) = (seen("192.168.51.10"), seen("2001:db8:51::10"));
        assert_eq!(outside.serves("203.0.113.1:8080", cluster.connects("10.244.1.5:80")).unwrap(), v4);
        assert_eq!(outside.serves("[2001:db8:2::1]:443", second.connects("[fd02:1::5]:443")).unwrap(), v6);
    });
}

/// Both ends of each connection receive data. The pod sends first, so that no incoming packet sets the mark.
fn go_on(pairs: &mut [(TcpStream, TcpStream)]) {
    for (ours, theirs) in pairs {
        for _ in 0..2 {
            ours.write_all(b"!").unwrap();
            theirs.read_exact(&mut [0]).unwrap();
            theirs.write_all(b"?").unwrap();
            ours.read_exact(&mut [0]).unwrap();
        }
    }
}

#[test]
fn older_connections_continue() {
    isolated(|| {
        let lab = Lab::new();
        lab.default_through_primary();
        let mut pairs = standing(&lab);
        install(&attachment(1, Destinations::default()));
        lab.default_through(1);
        go_on(&mut pairs);
        // New connections use the attachment.
        let outside = &lab.outside[0];
        assert_eq!(
            outside.serves("203.0.113.1:80", || connect("203.0.113.1:80")).unwrap(),
            seen("192.168.51.10")
        );
        // The control: without the chain they break.
        delete(&attachment(1, Destinations::default()));
        lab.default_through_primary();
        let mut pairs = standing(&lab);
        install(&attachment(1, Destinations::default()));
        nft(&["flush chain inet egress_router_net1 output_mark"]);
        lab.default_through(1);
        for (ours, theirs) in &mut pairs {
            ours.write_all(b"!").unwrap();
            theirs.set_read_timeout(Some(NO_REPLY_TIMEOUT)).unwrap();
            assert_eq!(theirs.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn older_connections_continue_and_do_not_extend_the_allow_list() {
    isolated(|| {
        let lab = Lab::new();
        lab.default_through_primary();
        let (mut pairs, mut lost) = (standing(&lab), standing(&lab));
        let list = || listed(&["203.0.113.0/24", "2001:db8:2::/48"]);
        install(&attachment(1, list()));
        lab.default_through(1);
        go_on(&mut pairs);
        // A second attachment does not break them either.
        install(&attachment(2, list()));
        lab.default_through(2);
        go_on(&mut pairs);
        delete(&attachment(2, list()));
        lab.default_through(1);
        go_on(&mut pairs);
        // New connections are restricted by the list.
        let outside = &lab.outside[0];
        assert_eq!(
            outside.serves("203.0.113.1:80", || connect("203.0.113.1:80")).unwrap(),
            seen("192.168.51.10")
        );
        assert_refused("198.51.100.1:80");
        assert_refused("[2001:db8:bad::1]:80");
        // Without a route through the primary interface, they do not leave through the attachment.
        for line in [
            "add table inet other",
            "add counter inet other out",
            "add chain inet other out { type filter hook postrouting priority 50; }",
            "add rule inet other out oifname net1 ip daddr 10.244.2.5 counter name out",
            "add rule inet other out oifname net1 ip6 daddr fd00:2::5 counter name out",
        ] {
            nft(&[line]);
        }
        ip(&format!("route del default table {}", names::primary_table(1)));
        ip(&format!("-6 route del default table {}", names::primary_table(1)));
        pairs.append(&mut lost);
        for (ours, theirs) in &mut pairs {
            ours.write_all(b"!").unwrap();
            theirs.set_read_timeout(Some(NO_REPLY_TIMEOUT)).unwrap();
            assert_eq!(theirs.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        let listed = nft(&["list", "counter", "inet", "other", "out"]);
        assert!(listed.contains("packets 0 "), "{listed}");
        // The control: without the chain they do.
        nft(&["flush chain inet egress_router_net1 postrouting_filter"]);
        for (ours, _) in &mut pairs {
            ours.write_all(b"!").unwrap();
        }
        let end = Instant::now() + TIMEOUT;
        while nft(&["list", "counter", "inet", "other", "out"]).contains("packets 0 ") {
            assert!(Instant::now() < end, "nothing leaves by net1");
        }
    });
}

/// Connections, of which the pod's end is the first, that a client on another node and the pod opened.
fn standing(lab: &Lab) -> Vec<(TcpStream, TcpStream)> {
    let bind = |address: &&str| TcpListener::bind(address).unwrap();
    let (ours, theirs) = (["10.244.1.5:0", "[fd00:1::5]:0"], ["10.244.2.5:0", "[fd00:2::5]:0"]);
    let (here, there) = (ours.each_ref().map(bind), lab.cluster.within(|| theirs.each_ref().map(bind)));
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let accepted = |listener: &TcpListener| listener.accept().unwrap().0;
    let inward = here.iter().map(|listener| {
        let client = lab.cluster.connects(&address(listener))().unwrap();
        (accepted(listener), client)
    });
    let mut pairs: Vec<_> = inward.collect();
    pairs.extend(there.iter().map(|listener| (connect(&address(listener)).unwrap(), accepted(listener))));
    for end in pairs.iter().flat_map(|(ours, theirs)| [ours, theirs]) {
        end.set_read_timeout(Some(TIMEOUT)).unwrap();
    }
    pairs
}

#[test]
fn foreign_bits_of_marks_are_kept() {
    isolated(|| {
        let lab = Lab::new();
        let cluster = &lab.cluster;
        install(&attachment(1, Destinations::default()));
        for line in [
            "add table inet other",
            "add counter inet other connection",
            "add counter inet other answer",
            "add chain inet other first { type filter hook prerouting priority -160; }",
            "add rule inet other first ct direction original ct mark set 0x00550005",
            "add chain inet other made { type filter hook output priority -160; }",
            "add rule inet other made ct direction reply meta mark set 0x00aa0009",
            "add chain inet other in { type filter hook input priority 0; }",
            "add rule inet other in ct mark 0x00010005 counter name connection",
            "add chain inet other out { type filter hook output priority 0; }",
            "add rule inet other out meta mark 0x00010009 counter name answer",
        ] {
            nft(&[line]);
        }
        assert_eq!(
            pod_serves("10.244.1.5:81", cluster.connects("10.244.1.5:81")).unwrap(),
            seen("10.244.2.5")
        );
        for counter in ["connection", "answer"] {
            let listed = nft(&["list", "counter", "inet", "other", counter]);
            assert!(!listed.contains("packets 0 "), "{listed}");
        }
    });
}

#[test]
fn only_listed_destinations_are_reached() {
    isolated(|| {
        let lab = Lab::new();
        let (cluster, outside) = (&lab.cluster, &lab.outside[0]);
        let list = listed(&["10.0.0.0/8", "2001:db8:1::/48"]);
        let redirects = vec![redirect(80, Protocol::Tcp, "203.0.113.1", Some(8080))];
        install(&attachment(1, Destinations { redirects, ..list }));
        let (v4, v6) = (seen("192.168.51.10"), seen("2001:db8:51::10"));
        let here = |to: &'static str| move || connect(to);
        assert_eq!(outside.serves("10.1.2.3:80", here("10.1.2.3:80")).unwrap(), v4);
        // Neighbour discovery of an unlisted gateway is accepted.
        assert_eq!(outside.serves("[2001:db8:1::1]:80", here("[2001:db8:1::1]:80")).unwrap(), v6);
        for unlisted in ["198.51.100.1:80", "192.168.51.1:80", "[2001:db8:bad::1]:80", "[2001:db8:51::1]:80"]
        {
            assert_refused(unlisted);
        }
        for (from, to) in [("0.0.0.0", "198.51.100.1:53"), ("::", "[2001:db8:bad::1]:53")] {
            assert_eq!(send(from, to).unwrap_err().kind(), ErrorKind::PermissionDenied, "{to}");
        }
        // The pod may connect to a redirect's target, only to its port.
        assert_eq!(outside.serves("203.0.113.1:8080", cluster.connects("10.244.1.5:80")).unwrap(), v4);
        assert_eq!(outside.serves("203.0.113.1:8080", here("203.0.113.1:8080")).unwrap(), v4);
        assert_refused("203.0.113.1:80");
        // Clients of the attachment get replies, listed or not, including errors.
        assert_eq!(
            pod_serves("192.168.51.10:83", outside.connects("192.168.51.10:83")).unwrap(),
            seen("192.168.51.1")
        );
        for (from, to) in [("192.168.51.1", "192.168.51.10:84"), ("2001:db8:51::1", "[2001:db8:51::10]:84")] {
            assert_eq!(outside.within(|| send_error(from, to)), ErrorKind::ConnectionRefused, "{to}");
        }
        // The list does not apply to the primary interface.
        let primary = cluster.serves("10.244.1.1:80", here("10.244.1.1:80")).unwrap();
        assert_eq!(primary, seen("10.244.1.5"));
    });
}

#[test]
fn an_empty_list_allows_nothing() {
    isolated(|| {
        let _lab = Lab::new();
        install(&attachment(1, listed(&[])));
        for unlisted in ["198.51.100.1:80", "10.1.2.3:80", "[2001:db8:1::1]:80"] {
            assert_refused(unlisted);
        }
    });
}

#[test]
fn the_pod_is_no_router() {
    isolated(|| {
        let lab = Lab::new();
        let (cluster, outside) = (&lab.cluster, &lab.outside[0]);
        for destinations in [Destinations::default(), redirects(), listed(&["0.0.0.0/0", "::/0"])] {
            let ours = attachment(1, destinations);
            install(&ours);
            for (to, kind) in [
                ("198.51.100.1:80", ErrorKind::HostUnreachable),
                ("[2001:db8:bad::1]:80", ErrorKind::PermissionDenied),
            ] {
                assert_eq!(cluster.within(|| connect(to)).unwrap_err().kind(), kind, "{to} from the cluster");
            }
            for to in ["10.244.1.1:80", "[fd00:1::1]:80"] {
                assert_eq!(outside.within(|| failed_connect(to)), ErrorKind::TimedOut, "{to} from outside");
            }
            delete(&ours);
        }
        // The control: without the table the packet is routed, and the target has no listener.
        assert_eq!(
            outside.within(|| connect("10.244.1.1:80")).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(
            outside.within(|| connect("[fd00:1::1]:80")).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn each_of_two_attachments_has_its_own_redirects() {
    isolated(|| {
        let lab = Lab::new();
        let (cluster, [first, second]) = (&lab.cluster, &lab.outside);
        let to = |port| Destinations {
            redirects: vec![
                redirect(port, Protocol::Tcp, "203.0.113.1", Some(80)),
                redirect(port, Protocol::Tcp, "2001:db8:2::1", Some(80)),
            ],
            ..Destinations::default()
        };
        install(&attachment(1, to(8081)));
        install(&attachment(2, to(8082)));
        lab.default_through(2);
        // The same target through both attachments.
        for (client, network, slot) in [("8081", first, 1), ("8082", second, 2)] {
            let (v4, v6) = (format!("10.244.1.5:{client}"), format!("[fd00:1::5]:{client}"));
            let served = network.serves("203.0.113.1:80", cluster.connects(&v4)).unwrap();
            assert_eq!(served, seen(&format!("192.168.5{slot}.10")));
            let served = network.serves("[2001:db8:2::1]:80", cluster.connects(&v6)).unwrap();
            assert_eq!(served, seen(&format!("2001:db8:5{slot}::10")));
        }
        // Replies are routed correctly, whichever of them remains.
        assert_eq!(
            pod_serves("10.244.1.5:81", cluster.connects("10.244.1.5:81")).unwrap(),
            seen("10.244.2.5")
        );
        delete(&attachment(1, to(8081)));
        assert_eq!(
            pod_serves("10.244.1.5:81", cluster.connects("10.244.1.5:81")).unwrap(),
            seen("10.244.2.5")
        );
    });
}
