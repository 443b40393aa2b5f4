//! Packets through the driver `vxlan`: two workers, two gateways and a host outside, each a network namespace on one bridge, with pods behind a
//! bridge and a masquerade rule as a CNI plugin writes it. Needs root, iproute2 and nftables.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cgw_controller::agent::datapath::{
    BoundPod, Datapath, Networks, Node, Peer, Protocol, ServicePort, VipPath, VipRoute,
};
use cgw_controller::agent::driver::Driver;
use cgw_controller::agent::vxlan::plan::mac_of;
use cgw_controller::agent::vxlan::{Config, Vxlan};
use cgw_controller::api::{TunId, TunMac};
use common::netlink::isolated::{enter, run};

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 100);
const A: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 201);
const B: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 202);
/// Name, last octet of the address, number of the pod network, candidate.
const NODES: [(&str, u8, u8, bool); 4] =
    [("w1", 11, 1, false), ("w2", 12, 2, false), ("g1", 21, 3, true), ("g2", 22, 4, true)];
/// Name, node, last octet. a: VIP A. b: VIP B. c: not bound. u: the agents have not read it.
const PODS: [(&str, &str, u8); 10] = [
    ("a1", "w1", 10),
    ("a2", "w2", 10),
    ("a3", "g1", 10),
    ("a4", "g2", 10),
    ("b1", "w2", 20),
    ("b2", "g1", 20),
    ("c1", "w1", 30),
    ("c2", "w2", 30),
    ("c3", "g1", 30),
    ("u1", "w1", 40),
];
/// The longest wait for a response, on a machine that is busy.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The wait for a response that must not come, or that a changing gateway may lose.
const SILENCE: Duration = Duration::from_secs(2);

fn node(name: &str) -> (Ipv4Addr, u8, bool) {
    let (_, octet, network, candidate) = NODES.into_iter().find(|node| node.0 == name).unwrap();
    (Ipv4Addr::new(192, 168, 50, octet), network, candidate)
}

fn pod(name: &str) -> Ipv4Addr {
    let (_, on, octet) = PODS.into_iter().find(|pod| pod.0 == name).unwrap();
    Ipv4Addr::new(10, 244, node(on).1, octet)
}

/// The namespaces, which are deleted with it, and the drivers of the nodes.
struct Lab {
    prefix: String,
    drivers: BTreeMap<&'static str, Vxlan>,
}

impl Lab {
    fn new() -> Lab {
        let lab = Lab { prefix: format!("cgwt{}", std::process::id()), drivers: BTreeMap::new() };
        lab.add("ul");
        lab.ip("ul", "link add ul type bridge");
        lab.ip("ul", "link set ul up");
        lab.attach("ext", OUTSIDE);
        for (name, _, network, _) in NODES {
            lab.attach(name, node(name).0);
            lab.ip(name, &format!("route add default via {OUTSIDE}"));
            for setting in
                ["ip_forward=1", "conf.all.rp_filter=1", "conf.eth0.rp_filter=1", "conf.default.rp_filter=1"]
            {
                lab.run(name, &format!("sysctl -qw net.ipv4.{setting}"));
            }
            lab.ip(name, "link add cni0 type bridge");
            lab.ip(name, &format!("address add 10.244.{network}.1/24 dev cni0"));
            lab.ip(name, "link set cni0 up");
            for (_, octet, other, _) in NODES.into_iter().filter(|other| other.0 != name) {
                lab.ip(name, &format!("route add 10.244.{other}.0/24 via 192.168.50.{octet}"));
            }
            lab.run(name, "nft add table ip cni");
            lab.run(name, "nft add chain ip cni post { type nat hook postrouting priority 100 ; }");
            let rule = format!("ip saddr 10.244.{network}.0/24 ip daddr != 10.244.0.0/16 masquerade");
            lab.run(name, &format!("nft add rule ip cni post {rule}"));
        }
        // A gateway keeps the port of a pod if it is free. One that takes over knows no connections: of two pods with the same port, the first
        // to send gets it, and the other's connection ends.
        for ((name, on, _), ports) in PODS.into_iter().zip((10_000_u16..).step_by(5_000)) {
            lab.add(name);
            lab.run(name, &format!("sysctl -qw net.ipv4.ip_local_port_range={ports}\t{}", ports + 4_999));
            let (ns, on_ns) = (lab.ns(name), lab.ns(on));
            run(
                "ip",
                format!("link add eth0 netns {ns} type veth peer name v-{name} netns {on_ns}").split(' '),
            );
            lab.ip(on, &format!("link set v-{name} master cni0 up"));
            lab.ip(on, &format!("link set v-{name} type bridge_slave hairpin on"));
            lab.ip(name, &format!("address add {}/24 dev eth0", pod(name)));
            lab.ip(name, "link set eth0 up");
            lab.ip(name, &format!("route add default via 10.244.{}.1", node(on).1));
        }
        lab
    }

    fn ns(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    fn add(&self, name: &str) {
        run("ip", ["netns", "add", &self.ns(name)]);
        self.ip(name, "link set lo up");
    }

    fn attach(&self, name: &str, address: Ipv4Addr) {
        self.add(name);
        let (ns, ul) = (self.ns(name), self.ns("ul"));
        run("ip", format!("link add eth0 netns {ns} type veth peer name u-{name} netns {ul}").split(' '));
        self.ip("ul", &format!("link set u-{name} master ul up"));
        self.ip(name, &format!("address add {address}/24 dev eth0"));
        self.ip(name, "link set eth0 up");
    }

    fn ip(&self, name: &str, line: &str) {
        self.run(name, &format!("ip {line}"));
    }

    fn run(&self, name: &str, line: &str) -> String {
        let ns = self.ns(name);
        run("ip", ["netns", "exec", &ns].into_iter().chain(line.split(' ')))
    }

    /// Runs in a thread in the namespace.
    fn inside<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let namespace = File::open(format!("/run/netns/{}", self.ns(name))).unwrap();
        thread::spawn(move || {
            enter(&namespace.into()).unwrap();
            work()
        })
    }

    /// Serves TCP and UDP: the response is the server's name and the client's address.
    fn serve(&self, name: &'static str, port: u16) {
        let (ready, wait) = mpsc::channel();
        self.inside(name, move || {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
            ready.send(()).unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 2000];
                while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(format!("{name} {}\n", peer.ip()).as_bytes(), peer);
                }
            });
            thread::spawn(move || {
                while let Ok((mut stream, peer)) = listener.accept() {
                    thread::spawn(move || {
                        let _ = stream.write_all(format!("{name} {}\n", peer.ip()).as_bytes());
                        let mut lines = BufReader::new(stream.try_clone().unwrap());
                        let mut line = String::new();
                        while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                            if stream.write_all(line.as_bytes()).is_err() {
                                return;
                            }
                            line.clear();
                        }
                    });
                }
            });
        });
        wait.recv_timeout(TIMEOUT).unwrap();
    }

    /// The response to a client, or the kind of the error.
    fn tcp(&self, from: &str, to: Ipv4Addr, port: u16) -> String {
        self.inside(from, move || tcp(to, port, TIMEOUT)).join().unwrap()
    }

    /// That no response comes.
    fn assert_dropped(&self, from: &str, to: Ipv4Addr, port: u16) {
        let response = self.inside(from, move || tcp(to, port, SILENCE)).join().unwrap();
        assert!(["TimedOut", "WouldBlock"].contains(&response.as_str()), "{from} to {to}: {response}");
    }

    fn udp(&self, from: &str, to: Ipv4Addr, port: u16) -> String {
        let work = move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket.send_to(b"ping", (to, port)).unwrap();
            let mut buffer = [0; 200];
            match socket.recv_from(&mut buffer) {
                Ok((length, _)) => String::from_utf8_lossy(&buffer[..length]).trim().to_owned(),
                Err(error) => format!("{:?}", error.kind()),
            }
        };
        self.inside(from, work).join().unwrap()
    }

    /// Opens a connection that sends lines and receives them again until it is dropped. It sends also while it waits: a new gateway learns
    /// of a connection from what the pod sends.
    fn echo(&self, from: &str, to: Ipv4Addr) -> Echo {
        let (lines, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (ready, wait) = mpsc::channel();
        let (count, stop) = (lines.clone(), over.clone());
        let thread = self.inside(from, move || {
            let mut stream =
                TcpStream::connect_timeout(&SocketAddr::new(IpAddr::V4(to), 80), TIMEOUT).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            ready.send(line.split(' ').next().unwrap().to_owned()).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            line.clear();
            while !stop.load(Ordering::Relaxed) {
                stream.write_all(b"ping\n").unwrap();
                match reader.read_line(&mut line) {
                    Ok(_) => {
                        assert_eq!(line, "ping\n");
                        line.clear();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        });
        let server = wait.recv_timeout(TIMEOUT).unwrap();
        Echo { name: format!("{from} to {server}"), server, lines, over, thread }
    }

    /// The gateway's NIC has the VIP, as keepalived does it.
    fn place(&self, vip: Ipv4Addr, gateway: &str) {
        for (name, ..) in NODES.into_iter().filter(|node| node.3) {
            if name == gateway {
                self.ip(name, &format!("address replace {vip}/32 dev eth0"));
            } else {
                let addresses = self.run(name, "ip address show dev eth0");
                if addresses.contains(&format!("{vip}/32")) {
                    self.ip(name, &format!("address delete {vip}/32 dev eth0"));
                }
            }
        }
        self.run("ext", "ip neighbour flush dev eth0");
        for (name, ..) in NODES {
            self.run(name, "ip neighbour flush dev eth0");
        }
    }

    /// Applies the datapath on all nodes, gateways first. Returns the longest duration.
    fn apply(&mut self, gateways: &BTreeMap<Ipv4Addr, Option<&'static str>>) -> Duration {
        let mut longest = Duration::ZERO;
        for (name, ..) in NODES.into_iter().rev() {
            let datapath = datapath(name, gateways);
            let driver = self.drivers.remove(name);
            let work = move || {
                let mut driver = driver.unwrap_or_else(|| Vxlan::new(Config::default()).unwrap());
                let start = Instant::now();
                driver.apply(&datapath).unwrap();
                let duration = start.elapsed();
                assert_eq!(driver.apply(&datapath), Ok(vec![]));
                (driver, duration)
            };
            let (driver, duration) = self.inside(name, work).join().unwrap();
            longest = longest.max(duration);
            self.drivers.insert(name, driver);
        }
        longest
    }
}

/// An open connection.
struct Echo {
    name: String,
    server: String,
    lines: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let names = ["ul", "ext"]
            .into_iter()
            .chain(NODES.iter().map(|node| node.0))
            .chain(PODS.iter().map(|pod| pod.0));
        for name in names {
            let _ = std::process::Command::new("ip").args(["netns", "delete", &self.ns(name)]).output();
        }
    }
}

fn tcp(to: Ipv4Addr, port: u16, timeout: Duration) -> String {
    let response =
        TcpStream::connect_timeout(&SocketAddr::new(IpAddr::V4(to), port), timeout).and_then(|stream| {
            stream.set_read_timeout(Some(timeout))?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            Ok(line.trim().to_owned())
        });
    response.unwrap_or_else(|error| format!("{:?}", error.kind()))
}

fn datapath(name: &str, gateways: &BTreeMap<Ipv4Addr, Option<&'static str>>) -> Datapath {
    let (ip, network, candidate) = node(name);
    let path = |vip: Ipv4Addr, letter: char, number| {
        let pods: Vec<_> = PODS.into_iter().filter(|pod| pod.0.starts_with(letter)).collect();
        let port = |protocol| ServicePort {
            service: "default/service".to_owned(),
            name: String::new(),
            protocol,
            port: 80,
            backends: pods.iter().map(|(name, ..)| (pod(name), 8080)).collect(),
            affinity: None,
        };
        let closed = ServicePort { port: 81, backends: vec![(pod("b1"), 9)], ..port(Protocol::Tcp) };
        VipPath {
            tun_id: TunId::new(number).unwrap(),
            route: match gateways[&vip] {
                None => VipRoute::Drop,
                Some(gateway) if gateway == name => VipRoute::Local,
                Some(gateway) => {
                    let node_ip = node(gateway).0;
                    VipRoute::Remote { node_ip, tun_mac: TunMac::new(mac_of(node_ip)).unwrap() }
                }
            },
            pods: pods
                .iter()
                .map(|(name, on, _)| (pod(name), BoundPod { name: (*name).to_owned(), node_ip: node(on).0 }))
                .collect(),
            ports: vec![port(Protocol::Tcp), port(Protocol::Udp), closed],
        }
    };
    let peers = NODES.into_iter().filter(|node| node.0 != name);
    let unbound = PODS.into_iter().filter(|pod| pod.1 == name && pod.0.starts_with('c'));
    Datapath {
        node: Node {
            name: name.to_owned(),
            ip,
            pod_cidrs: vec![format!("10.244.{network}.0/24").parse().unwrap()],
            candidate,
        },
        peers: peers
            .map(|(name, ..)| (node(name).0, Peer { name: name.to_owned(), candidate: node(name).2 }))
            .collect(),
        networks: Networks {
            pods: vec!["10.244.0.0/16".parse().unwrap()],
            services: vec!["10.96.0.0/12".parse().unwrap()],
            excluded: NODES.map(|(name, ..)| node(name).0.into()).to_vec(),
        },
        vips: BTreeMap::from([(A, path(A, 'a', 1)), (B, path(B, 'b', 2))]),
        unbound_pods: unbound.map(|(name, ..)| pod(name)).collect::<BTreeSet<_>>(),
    }
}

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
    let gateways = BTreeMap::from([(A, Some("g1")), (B, Some("g1"))]);
    println!("first apply: {:?}", lab.apply(&gateways));

    for layout in ["one gateway", "two gateways"] {
        if layout == "two gateways" {
            lab.place(B, "g2");
            lab.apply(&BTreeMap::from([(A, Some("g1")), (B, Some("g2"))]));
        }
        let both = |from: &str, to, port| [lab.tcp(from, to, port), lab.udp(from, to, port)];
        for name in ["a1", "a2", "a3", "a4"] {
            assert_eq!(
                both(name, OUTSIDE, 80),
                [format!("ext {A}"), format!("ext {A}")],
                "{layout}: {name} to the outside"
            );
            // Where A is an address of the backend's own node, a reply to it would not return to the gateway of B.
            let on_g1 = if layout == "two gateways" { B } else { A };
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
        let goal = good.load(Ordering::Relaxed) + 40;
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
