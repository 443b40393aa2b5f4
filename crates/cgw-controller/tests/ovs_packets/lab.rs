//! Nodes with openshift-sdn's bridge, in namespaces of this process. The userspace datapath of Open vSwitch, VXLAN between the nodes.
//!
//! Each node runs its own ovsdb-server and ovs-vswitchd, so that tun0, routes, iptables, conntrack and the lookup of the tunnel's route
//! are all in the node's namespace. The bridge has the tables of openshift-sdn 3.11 or 4.10 (ovs-multitenant).

#[path = "ns.rs"]
mod ns;
#[path = "tables.rs"]
pub mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use cgw_controller::{
    agent::{
        datapath::{BoundPod, Datapath, Networks, Node, Peer, Protocol, ServicePort, VipPath, VipRoute},
        driver::{Change, Driver as _},
        ovs::{
            Config, Ovs,
            plan::PortMode,
            profile::{self, Profile, V3_7},
        },
    },
    api::{TunId, TunMac},
};

pub use ns::{Ns, Open, fetch};

pub const CLUSTER: &str = "10.128.0.0/14";
pub const SERVICES: &str = "172.30.0.0/16";
pub const VIP_A: &str = "192.168.50.201";
pub const VIP_B: &str = "192.168.50.202";
pub const EXT: &str = "192.168.50.100";
/// A second address of the outside.
pub const EXT_2: &str = "192.168.50.101";
/// VNIDs of the namespaces.
pub const VNID_A: u32 = 0x003f_6450;
pub const VNID_B: u32 = 0x1234;
pub const VNID_C: u32 = 0x77;
/// The server of the outside.
pub const PORT: u16 = 9000;

/// The datapath that needs no kernel module.
const USERSPACE: &str = "netdev";

/// `datapath_type` of the bridges: `netdev`, or the kernel's, `system`, if `OVS_DATAPATH` says so.
pub fn datapath() -> String {
    std::env::var("OVS_DATAPATH").unwrap_or_else(|_| USERSPACE.to_owned())
}

/// The profiles that a test runs with. The datapath of the kernel does not depend on them: there, the seed's is enough.
pub fn profiles() -> &'static [Profile] {
    if datapath() == USERSPACE { &profile::ALL } else { &[V3_7] }
}

/// A node.
pub struct Member {
    pub ns: Ns,
    pub name: &'static str,
    pub ip: Ipv4Addr,
    pub subnet: &'static str,
    run_dir: PathBuf,
    driver: Mutex<Option<Ovs>>,
    candidate: bool,
}

impl Member {
    /// The address of tun0.
    pub fn gateway(&self) -> String {
        format!("{}.1", self.subnet)
    }

    pub fn ofctl(&self, arguments: &str) -> String {
        self.ns
            .sh(&format!("export OVS_RUNDIR={}; ovs-ofctl -O OpenFlow13 {arguments}", self.run_dir.display()))
    }

    pub fn vsctl(&self, arguments: &str) -> String {
        let db = self.run_dir.join("db.sock");
        self.ns.sh(&format!("ovs-vsctl --timeout=300 --db=unix:{} {arguments}", db.display()))
    }

    pub fn trace(&self, flow: &str) -> String {
        let pid = fs::read_to_string(self.run_dir.join("ovs-vswitchd.pid")).unwrap();
        let control = self.run_dir.join(format!("ovs-vswitchd.{}.ctl", pid.trim()));
        self.ns.sh(&format!("ovs-appctl -t {} ofproto/trace br0 '{flow}'", control.display()))
    }

    pub fn tun_mac(&self) -> TunMac {
        let link = self.ns.sh("ip -o link show tun0");
        link.split("link/ether ").nth(1).unwrap()[..17].parse().unwrap()
    }

    /// A driver that has not read anything, as after a restart of the agent.
    pub fn restart(&self, profile: Profile, ports: PortMode) {
        let config = Config {
            profile,
            run_dir: self.run_dir.clone(),
            timeout: Duration::from_secs(60),
            ports,
            ..Config::default()
        };
        *lock(&self.driver) = Some(Ovs::new(config));
    }

    pub fn with_driver<T: Send + 'static>(&self, f: impl FnOnce(&mut Ovs) -> T + Send + 'static) -> T {
        let mut driver = lock(&self.driver).take().unwrap();
        let (result, driver) = self.ns.run(move || (f(&mut driver), driver));
        *lock(&self.driver) = Some(driver);
        result
    }

    pub fn apply(&self, datapath: Datapath) -> Vec<Change> {
        self.with_driver(move |driver| driver.apply(&datapath)).unwrap()
    }

    /// Everything that the driver could have changed.
    pub fn state(&self) -> (BTreeSet<String>, String) {
        let flows = self.ofctl("--no-stats dump-flows br0");
        let rules = self.ns.sh(
            "iptables-save | grep -v '^#' | sed 's/\\[.*\\]//'; cat /proc/sys/net/ipv4/conf/tun0/arp_announce",
        );
        (flows.lines().filter(|line| !line.contains("reply")).map(ToOwned::to_owned).collect(), rules)
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pod.
pub struct Pod {
    pub ns: Ns,
    pub node: &'static str,
    pub ip: Ipv4Addr,
    pub port: u32,
    pub vnid: u32,
}

/// All nodes, pods, and the outside.
pub struct Lab {
    /// The release of openshift-sdn.
    pub profile: Profile,
    pub ext: Ns,
    pub nodes: BTreeMap<&'static str, Member>,
    pub pods: BTreeMap<&'static str, Pod>,
    fabric: Ns,
    _folder: tempfile::TempDir,
}

/// The part of the datapath that a test changes.
#[derive(Clone)]
pub struct State {
    /// Gateways of the two VIPs.
    pub a: Option<&'static str>,
    pub b: Option<&'static str>,
    /// Instead of the MAC address of the gateway's tun0.
    pub mac: Option<TunMac>,
    /// Pods that the agents have not read.
    pub unread: Vec<&'static str>,
    /// Pods that are not behind their Service.
    pub unbound: Vec<&'static str>,
    /// Destinations that leave with the address of the node.
    pub excluded: Vec<&'static str>,
    /// Clients that the ports of `a` and `b` admit; all of a name that is not in it.
    pub sources: BTreeMap<&'static str, Vec<&'static str>>,
}

impl State {
    pub fn new(a: &'static str, b: &'static str) -> State {
        State {
            a: Some(a),
            b: Some(b),
            mac: None,
            unread: Vec::new(),
            unbound: Vec::new(),
            excluded: Vec::new(),
            sources: BTreeMap::new(),
        }
    }
}

const NODES: [(&str, u8, &str, bool); 4] = [
    ("n1", 11, "10.128.0", false),
    ("n2", 12, "10.129.0", false),
    ("g1", 21, "10.130.0", true),
    ("g2", 22, "10.131.0", true),
];

/// Pods a* are behind Service A, b1 behind B. The others are not bound.
const PODS: [(&str, &str, &str, u32, u32); 6] = [
    ("a1", "n1", "10.128.0.10", 3, VNID_A),
    ("c1", "n1", "10.128.0.30", 4, VNID_C),
    ("a2", "n2", "10.129.0.10", 3, VNID_A),
    ("b1", "n2", "10.129.0.20", 4, VNID_B),
    ("a3", "g1", "10.130.0.10", 3, VNID_A),
    ("c3", "g1", "10.130.0.30", 4, VNID_C),
];

/// The lab of this process. Tests use it one after another.
pub fn lab() -> MutexGuard<'static, Lab> {
    lab_of(V3_7)
}

/// The lab with the tables of this profile.
pub fn lab_of(profile: Profile) -> MutexGuard<'static, Lab> {
    static LAB: OnceLock<Mutex<Lab>> = OnceLock::new();
    let mut lab = lock(LAB.get_or_init(|| Mutex::new(Lab::new())));
    if lab.profile != profile {
        lab.profile = profile;
        lab.nodes.values().for_each(|member| member.base(&lab));
        lab.restart();
    }
    lab
}

impl Lab {
    fn new() -> Lab {
        let missing: Vec<&str> = [
            "ovs-vswitchd",
            "ovsdb-server",
            "ovs-vsctl",
            "ovs-ofctl",
            "iptables-restore",
            "ethtool",
            "conntrack",
        ]
        .into_iter()
        .filter(|name| {
            let found = Command::new("bash")
                .args(["-c", &format!("command -v {name}")])
                .stdout(Stdio::null())
                .status();
            !found.is_ok_and(|status| status.success())
        })
        .collect();
        assert!(
            missing.is_empty(),
            "{missing:?} are missing; the Debian packages are: openvswitch-switch iptables ethtool conntrack"
        );
        let folder = tempfile::tempdir().unwrap();
        let fabric = Ns::new();
        fabric.sh("ip link add ul type bridge mcast_snooping 0; ip link set ul up");
        let ext = Ns::new();
        cable(&fabric, &ext, "ext", "eth0");
        ext.sh(&format!("ip addr add {EXT}/24 dev eth0; ip addr add {EXT_2}/24 dev eth0"));
        ext.serve("ext", &[PORT]);
        let (nodes, pods) = (BTreeMap::new(), BTreeMap::new());
        let mut lab = Lab { profile: V3_7, ext, nodes, pods, fabric, _folder: folder };
        for (name, last, subnet, candidate) in NODES {
            let run_dir = lab._folder.path().join(name);
            fs::create_dir(&run_dir).unwrap();
            let ns = Ns::new();
            cable(&lab.fabric, &ns, name, "eth0");
            let member = Member {
                ns,
                name,
                ip: Ipv4Addr::new(192, 168, 50, last),
                subnet,
                run_dir,
                driver: Mutex::new(None),
                candidate,
            };
            member.set_up();
            member.restart(V3_7, PortMode::Own);
            lab.nodes.insert(name, member);
        }
        for (name, node, ip, port, vnid) in PODS {
            let ns = Ns::new();
            let member = &lab.nodes[node];
            let ip: Ipv4Addr = ip.parse().unwrap();
            let veth = format!("v{name}");
            member.ns.sh(&format!("ip link add {veth} type veth peer name eth0 netns {}", ns.path));
            member.ns.sh(&format!(
                "sysctl -qw net.ipv4.conf.{veth}.arp_ignore=8; ip link set {veth} up; ethtool -K {veth} tx off >/dev/null"
            ));
            let mac = pod_mac(ip);
            ns.sh(&format!(
                "ethtool -K eth0 tx off >/dev/null; ip link set eth0 address {mac} mtu 1450 up; ip addr add {ip}/23 dev eth0; \
                 ip route add {CLUSTER} dev eth0; ip route add default via {}",
                member.gateway()
            ));
            member.vsctl(&format!(
                "add-port br0 {veth} -- set interface {veth} ofport_request={port} external_ids:ip='\"{ip}\"' external_ids:sandbox={name}"
            ));
            ns.serve(name, &[8080]);
            lab.pods.insert(name, Pod { ns, node, ip, port, vnid });
        }
        for member in lab.nodes.values() {
            member.base(&lab);
        }
        lab.warm();
        lab
    }

    /// Resolves the neighbours of the tunnels: Open vSwitch drops a packet to a node whose MAC address it does not know yet.
    fn warm(&self) {
        for member in self.nodes.values() {
            for other in self.nodes.values().filter(|other| other.name != member.name) {
                wait(&format!("{} reaches {}", member.name, other.name), || {
                    let target = other.gateway();
                    member.ns.run(move || {
                        Command::new("ping")
                            .args(["-c1", "-W1", &target])
                            .stdout(Stdio::null())
                            .status()
                            .unwrap()
                            .success()
                    })
                });
            }
        }
    }

    pub fn datapath(&self, node: &str, state: &State) -> Datapath {
        let own = &self.nodes[node];
        let route = |gateway: Option<&'static str>| match gateway {
            None => VipRoute::Drop,
            Some(gateway) if gateway == node => VipRoute::Local,
            Some(gateway) => {
                let gateway = &self.nodes[gateway];
                VipRoute::Remote {
                    node_ip: gateway.ip,
                    tun_mac: state.mac.unwrap_or_else(|| gateway.tun_mac()),
                }
            }
        };
        let read: Vec<(&&str, &Pod)> =
            self.pods.iter().filter(|(name, _)| !state.unread.contains(name)).collect();
        let bound: Vec<_> = read.iter().filter(|(name, _)| !state.unbound.contains(name)).collect();
        let path = |prefix: &str, tun_id: u32, gateway| VipPath {
            tun_id: TunId::new(tun_id).unwrap(),
            route: route(gateway),
            pods: bound
                .iter()
                .filter(|(name, _)| name.starts_with(prefix))
                .map(|(name, pod)| {
                    (pod.ip, BoundPod { name: format!("ns/{name}"), node_ip: self.nodes[pod.node].ip })
                })
                .collect(),
            ports: [Protocol::Tcp, Protocol::Udp]
                .map(|protocol| ServicePort {
                    service: format!("ns-{prefix}/svc-{prefix}"),
                    name: "http".into(),
                    protocol,
                    port: 80,
                    backends: bound
                        .iter()
                        .filter(|(name, _)| name.starts_with(prefix))
                        .map(|(_, pod)| (pod.ip, 8080))
                        .collect(),
                    affinity: None,
                    sources: state
                        .sources
                        .get(prefix)
                        .map(|list| list.iter().map(|network| network.parse().unwrap()).collect()),
                })
                .into(),
        };
        Datapath {
            node: Node { name: node.into(), ip: own.ip, pod_cidrs: Vec::new(), candidate: own.candidate },
            peers: self
                .nodes
                .values()
                .filter(|other| other.name != node)
                .map(|other| (other.ip, Peer { name: other.name.into(), candidate: other.candidate }))
                .collect(),
            networks: Networks {
                pods: vec![CLUSTER.parse().unwrap()],
                services: vec![SERVICES.parse().unwrap()],
                excluded: state.excluded.iter().map(|network| network.parse().unwrap()).collect(),
            },
            vips: BTreeMap::from([
                (VIP_A.parse().unwrap(), path("a", 0xaabb, state.a)),
                (VIP_B.parse().unwrap(), path("b", 0xccdd, state.b)),
            ]),
            unbound_pods: read
                .iter()
                .filter(|(name, pod)| {
                    pod.node == node && (name.starts_with('c') || state.unbound.contains(name))
                })
                .map(|(_, pod)| pod.ip)
                .collect(),
        }
    }

    /// VIPs move to the gateways, as keepalived does it, and clients learn the new MAC address.
    pub fn move_vips(&self, state: &State) {
        for (vip, gateway) in [(VIP_A, state.a), (VIP_B, state.b)] {
            for member in self.nodes.values() {
                let verb = if gateway == Some(member.name) { "replace" } else { "del" };
                member.ns.sh(&format!("ip addr {verb} {vip}/32 dev br-ex 2>/dev/null || true"));
            }
            // Gratuitous ARP.
            for ns in self.nodes.values().map(|member| &member.ns).chain([&self.ext]) {
                ns.sh(&format!("ip neigh flush to {vip}"));
            }
        }
    }

    /// All nodes in this order, and the VIPs. Returns the changes.
    pub fn apply(&self, state: &State) -> Vec<Change> {
        self.move_vips(state);
        let changes = ["g1", "g2", "n1", "n2"].map(|name| self.nodes[name].apply(self.datapath(name, state)));
        changes.concat()
    }

    /// All agents, as after a restart.
    pub fn restart(&self) {
        self.nodes.values().for_each(|member| member.restart(self.profile, PortMode::Own));
    }

    /// Every test begins with this.
    pub fn reset(&self, state: &State) {
        self.restart();
        self.apply(state);
        for ns in self.nodes.values().map(|member| &member.ns) {
            ns.sh("conntrack -F 2>/dev/null");
        }
        for pod in self.pods.values() {
            pod.ns.sh("ip neigh flush dev eth0");
        }
    }

    pub fn pod(&self, name: &str) -> &Ns {
        &self.pods[name].ns
    }
}

/// A veth pair from the fabric's bridge. Checksums are computed before the packet is sent, because Open vSwitch reads it as it is.
fn cable(fabric: &Ns, ns: &Ns, name: &str, far: &str) {
    fabric.sh(&format!("ip link add {name} type veth peer name {far} netns {}", ns.path));
    fabric.sh(&format!("ip link set {name} master ul up; ethtool -K {name} tx off >/dev/null"));
    ns.sh(&format!("ip link set {far} up; ethtool -K {far} tx off >/dev/null"));
}

pub fn pod_mac(ip: Ipv4Addr) -> String {
    let [a, b, c, d] = ip.octets();
    format!("0a:58:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

pub fn wait(condition: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !met() {
        assert!(Instant::now() < deadline, "{condition}: not within 300 s");
        thread::sleep(Duration::from_millis(20));
    }
}

impl Member {
    /// Open vSwitch, br-ex with the node's address, br0 with vxlan0 and tun0.
    fn set_up(&self) {
        let folder = self.run_dir.display().to_string();
        // Beside the userspace datapath, the kernel sees the frames of eth0 and of the pods' interfaces; it must not respond to them.
        if datapath() == USERSPACE {
            self.ns.sh("sysctl -qw net.ipv4.conf.eth0.arp_ignore=8
                 iptables -t raw -A PREROUTING -i eth0 -j DROP; iptables -t raw -A PREROUTING -i v+ -j DROP");
        }
        self.ns.sh(&format!("ovsdb-tool create {folder}/conf.db /usr/share/openvswitch/vswitch.ovsschema"));
        self.daemon(
            "ovsdb-server",
            vec![format!("{folder}/conf.db"), format!("--remote=punix:{folder}/db.sock")],
        );
        wait("ovsdb-server listens", || self.run_dir.join("db.sock").exists());
        self.vsctl("--no-wait init");
        self.start_switch();
        let datapath = datapath();
        self.vsctl(&format!(
            "add-br br-ex -- set bridge br-ex datapath_type={datapath} -- add-port br-ex eth0 \
             -- add-br br0 -- set bridge br0 datapath_type={datapath} fail_mode=secure protocols=OpenFlow13 \
             -- add-port br0 vxlan0 -- set interface vxlan0 type=vxlan options:remote_ip=flow options:key=flow ofport_request=1 \
             -- add-port br0 tun0 -- set interface tun0 type=internal ofport_request=2",
        ));
        self.ns.sh(&format!(
            "ip link set br-ex up; ip addr add {}/24 dev br-ex; ip link set tun0 mtu 1450 up; ip addr add {}/23 dev tun0; \
             ip route add {CLUSTER} dev tun0; ip route add {SERVICES} dev tun0; sysctl -qw net.ipv4.ip_forward=1",
            self.ip,
            self.gateway()
        ));
        // openshift-sdn's own.
        self.ns.sh(&format!(
            "iptables -t nat -N OPENSHIFT-MASQUERADE; iptables -t nat -N OPENSHIFT-MASQUERADE-2
             iptables -t nat -A POSTROUTING -j OPENSHIFT-MASQUERADE
             iptables -t nat -A OPENSHIFT-MASQUERADE -m mark --mark 0x1/0x1 -j MASQUERADE
             iptables -t nat -A OPENSHIFT-MASQUERADE -s {CLUSTER} -j OPENSHIFT-MASQUERADE-2
             iptables -t nat -A OPENSHIFT-MASQUERADE-2 -d {CLUSTER} -j RETURN
             iptables -t nat -A OPENSHIFT-MASQUERADE-2 -j MASQUERADE
             iptables -t mangle -S >/dev/null; iptables -S >/dev/null"
        ));
    }

    /// Starts a daemon of Open vSwitch, which ends with this process, by a signal.
    #[allow(clippy::zombie_processes)]
    fn daemon(&self, program: &'static str, arguments: Vec<String>) {
        let folder = self.run_dir.display().to_string();
        self.ns.run(move || {
            Command::new("setpriv")
                .args(["--pdeathsig", "KILL", program])
                .args(arguments)
                .args([
                    format!("--log-file={folder}/{program}.log"),
                    format!("--pidfile={folder}/{program}.pid"),
                    "-vconsole:off".into(),
                ])
                .env("OVS_RUNDIR", &folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
        });
    }

    fn start_switch(&self) {
        self.daemon("ovs-vswitchd", vec![format!("unix:{}/db.sock", self.run_dir.display())]);
    }

    /// Kills ovs-vswitchd, and starts it again as its monitor does. The bridge has no flows then.
    pub fn restart_switch(&self) {
        let pid = fs::read_to_string(self.run_dir.join("ovs-vswitchd.pid")).unwrap();
        let pid = pid.trim().parse().unwrap();
        // SAFETY: both take no pointers that they use; the process is a child of this one.
        let ended = unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0)
        };
        assert_eq!(ended, pid);
        let socket = self.run_dir.join("br0.mgmt");
        fs::remove_file(&socket).unwrap();
        self.start_switch();
        wait("ovs-vswitchd has the bridge again", || socket.exists());
    }

    /// Replaces all flows by those of openshift-sdn.
    pub fn base(&self, lab: &Lab) {
        let file = self.run_dir.join("base");
        fs::write(&file, tables::base(&lab.profile, lab, self).join("\n")).unwrap();
        self.ofctl("del-flows br0");
        self.ofctl(&format!("add-flows br0 {}", file.display()));
    }
}

/// Packets from clients that connect all the time, counted by source where they arrive.
pub struct Counter<'a> {
    ext: &'a Ns,
    port: u16,
}

impl<'a> Counter<'a> {
    /// Counts packets to a port of the outside, by source.
    pub fn new(ext: &'a Ns, port: u16, sources: &[IpAddr]) -> Counter<'a> {
        Self::with(ext, port, sources, "")
    }

    /// Counts attempts to connect, by source: pods of earlier tests may still repeat the last packets of their connections.
    pub fn of_connections(ext: &'a Ns, port: u16, sources: &[IpAddr]) -> Counter<'a> {
        Self::with(ext, port, sources, "--syn")
    }

    fn with(ext: &'a Ns, port: u16, sources: &[IpAddr], flags: &str) -> Counter<'a> {
        ext.sh("iptables -t raw -F PREROUTING");
        for source in sources {
            ext.sh(&format!(
                "iptables -t raw -A PREROUTING -s {source}/32 -p tcp -m tcp --dport {port} {flags} -j ACCEPT"
            ));
        }
        ext.sh(&format!("iptables -t raw -A PREROUTING -p tcp -m tcp --dport {port} {flags} -j ACCEPT"));
        Counter { ext, port }
    }

    /// Packets of the sources in order, and last of all others.
    pub fn packets(&self) -> Vec<u64> {
        let text = self.ext.sh("iptables-save -c -t raw");
        let dport = format!("--dport {}", self.port);
        let lines = text.lines().filter(|line| line.contains(&dport));
        lines.map(|line| line[1..].split(':').next().unwrap().parse().unwrap()).collect()
    }
}
