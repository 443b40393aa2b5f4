//! The namespaces, and the driver of each node.

#[path = "report.rs"]
mod report;

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
use ipnet::Ipv4Net;

pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 100);
pub const A: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 201);
pub const B: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 202);
/// Name, last octet of the address, number of the pod network, candidate.
const NODES: [(&str, u8, u8, bool); 4] =
    [("w1", 11, 1, false), ("w2", 12, 2, false), ("g1", 21, 3, true), ("g2", 22, 4, true)];
/// Name, node, last octet. a: VIP A. b: VIP B. c: not bound. u: the agents have not read it.
pub const PODS: [(&str, &str, u8); 10] = [
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
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// The wait for a response that must not come, or that a changing gateway may lose.
pub const SILENCE: Duration = Duration::from_secs(2);

pub fn node(name: &str) -> (Ipv4Addr, u8, bool) {
    let (_, octet, network, candidate) = NODES.into_iter().find(|node| node.0 == name).unwrap();
    (Ipv4Addr::new(192, 168, 50, octet), network, candidate)
}

pub fn pod(name: &str) -> Ipv4Addr {
    let (_, on, octet) = PODS.into_iter().find(|pod| pod.0 == name).unwrap();
    Ipv4Addr::new(10, 244, node(on).1, octet)
}

/// The namespaces, which are deleted with it, and the drivers of the nodes.
pub struct Lab {
    prefix: String,
    drivers: BTreeMap<&'static str, Vxlan>,
    /// The clients that the ports of a VIP admit; all of a VIP that is not in it.
    pub sources: BTreeMap<Ipv4Addr, Vec<Ipv4Net>>,
}

impl Lab {
    pub fn new() -> Lab {
        let prefix = format!("cgwt{}", std::process::id());
        let lab = Lab { prefix, drivers: BTreeMap::new(), sources: BTreeMap::new() };
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

    pub fn run(&self, name: &str, line: &str) -> String {
        let ns = self.ns(name);
        run("ip", ["netns", "exec", &ns].into_iter().chain(line.split(' ')))
    }

    /// Runs in a thread in the namespace.
    pub fn inside<T: Send + 'static>(
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
    pub fn serve(&self, name: &'static str, port: u16) {
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
    pub fn tcp(&self, from: &str, to: Ipv4Addr, port: u16) -> String {
        self.inside(from, move || tcp(to, port, TIMEOUT)).join().unwrap()
    }

    /// That no response comes.
    pub fn assert_dropped(&self, from: &str, to: Ipv4Addr, port: u16) {
        let response = self.inside(from, move || tcp(to, port, SILENCE)).join().unwrap();
        assert!(["TimedOut", "WouldBlock"].contains(&response.as_str()), "{from} to {to}: {response}");
    }

    pub fn udp(&self, from: &str, to: Ipv4Addr, port: u16) -> String {
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
    pub fn echo(&self, from: &str, to: Ipv4Addr) -> Echo {
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
    pub fn place(&self, vip: Ipv4Addr, gateway: &str) {
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

    /// Translates VIPs on every node, as kube-proxy does for addresses of `status.loadBalancer` and `spec.externalIPs`.
    pub fn translate_vips(&self) {
        for (name, ..) in NODES {
            self.run(name, "nft add table ip kube-proxy");
            for hook in ["prerouting", "output"] {
                let chain =
                    format!("add chain ip kube-proxy {hook} {{ type nat hook {hook} priority -100 ; }}");
                self.run(name, &format!("nft {chain}"));
                for ((vip, backend), protocol) in [(A, "a1"), (B, "b1")]
                    .into_iter()
                    .flat_map(|one| ["tcp", "udp"].map(|protocol| (one, protocol)))
                {
                    let rule = format!("ip daddr {vip} {protocol} dport 80 dnat to {}:8080", pod(backend));
                    self.run(name, &format!("nft add rule ip kube-proxy {hook} {rule}"));
                }
            }
        }
    }

    /// Applies the datapath on all nodes, gateways first. Returns the longest duration.
    pub fn apply(&mut self, gateways: &BTreeMap<Ipv4Addr, Option<&'static str>>) -> Duration {
        let mut longest = Duration::ZERO;
        for (name, ..) in NODES.into_iter().rev() {
            let mut datapath = datapath(name, gateways);
            for (vip, path) in &mut datapath.vips {
                path.ports.iter_mut().for_each(|port| port.sources = self.sources.get(vip).cloned());
            }
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
pub struct Echo {
    pub name: String,
    pub server: String,
    pub lines: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    pub thread: thread::JoinHandle<()>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if thread::panicking() {
            self.report();
        }
        let names = ["ul", "ext"]
            .into_iter()
            .chain(NODES.iter().map(|node| node.0))
            .chain(PODS.iter().map(|pod| pod.0));
        for name in names {
            let _ = std::process::Command::new("ip").args(["netns", "delete", &self.ns(name)]).output();
        }
    }
}

pub fn tcp(to: Ipv4Addr, port: u16, timeout: Duration) -> String {
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
            sources: None,
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
