//! Two gateway nodes and a node that is their network.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use e2e::netns::{Lab, Node, Port, wait_until};
use e2e::program::Program;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::standin::{self, Standin};

/// The VIPs of the virtual router at first.
pub const VIPS: [&str; 3] = ["10.9.0.201", "10.9.0.202", "fd00::201"];

/// The port of the status server of virtual router 51.
const STATUS: u16 = 63_051;

/// Limit of a poll of the status server, for a busy machine. No test polls a keeper that is stopped.
const POLL: Duration = Duration::from_secs(60);

/// The environment.
pub struct Gateways {
    keepers: [Option<Program>; 2],
    guards: Vec<Program>,
    /// The API server and the controller.
    pub standin: Standin,
    nodes: [Node; 2],
    lan: Node,
    folder: TempDir,
    program: PathBuf,
    _lab: Lab,
}

/// Runs `act` in the network of `node`.
pub fn within<T: Send + 'static>(
    node: &Node,
    act: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let network = File::open(format!("/proc/{}/ns/net", node.pid())).unwrap();
    std::thread::spawn(move || {
        setns(&network, CloneFlags::CLONE_NEWNET).unwrap();
        act()
    })
}

/// Panics, and names what is missing, where a keeper cannot run with a keepalived.
pub fn require_keepalived() {
    assert!(nix::unistd::geteuid().is_root(), "keepalived's check script needs root: run this test as root");
    assert!(
        Path::new("/usr/sbin/keepalived").exists(),
        "keepalived is not installed; the Debian package is: keepalived"
    );
}

impl Gateways {
    pub fn new() -> Gateways {
        require_keepalived();
        let lab = Lab::new().unwrap();
        let lan = lab.node("lan").unwrap();
        let nodes = [lab.node("g0").unwrap(), lab.node("g1").unwrap()];
        for (node, address) in nodes.iter().zip(["10.9.0.1/24", "10.9.0.2/24"]) {
            let addresses = [address];
            lab.link(Port::new(&lan, node.name(), &[]), Port::new(node, "eth0", &addresses)).unwrap();
        }
        lan.sh("ip link add br0 type bridge; ip link set g0 master br0; ip link set g1 master br0; ip link set br0 up; ip addr add 10.9.0.254/24 dev br0").unwrap();
        for node in &nodes {
            // As if the agent had programmed the node.
            node.sh("nft 'add table ip cgw; add chain ip cgw postrouting-filter'").unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        // keepalived runs scripts of root only, and a checkout may belong to another user.
        let program = folder.path().join("cgw");
        e2e::program::copy(&e2e::program::built("cgw").unwrap(), &program).unwrap();
        let standin = Standin::start(&lan, folder.path());
        let lab = Gateways {
            keepers: [None, None],
            guards: Vec::new(),
            standin,
            nodes,
            lan,
            folder,
            program,
            _lab: lab,
        };
        lab.configure("[10.9.0.201-10.9.0.202, 'fd00::201']");
        (0..2).for_each(|index| lab.tunnel(index));
        lab
    }

    /// Makes the tunnel interface: the keeper does not use it, so any device with a MAC address can be it.
    pub fn tunnel(&self, index: usize) {
        let mac = format!("02:63:0a:09:00:0{}", index + 1);
        let script = format!("ip link add cgw0 address {mac} type bridge; ip link set cgw0 up");
        self.nodes[index].sh(&script).unwrap();
    }

    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    pub fn lan(&self) -> &Node {
        &self.lan
    }

    pub fn address(&self, index: usize) -> String {
        format!("10.9.0.{}", index + 1)
    }

    /// Replaces the configuration.
    pub fn configure(&self, vips: &str) {
        let text = format!("vrid: 51\ninterface: eth0\nvips: {vips}\npeers: [10.9.0.1, 10.9.0.2]\n");
        let next = self.folder.path().join("router.yaml.next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.folder.path().join("router.yaml")).unwrap();
    }

    fn run_dir(&self, index: usize) -> PathBuf {
        self.folder.path().join(self.nodes[index].name())
    }

    fn start(&self, index: usize, role: &str, args: Vec<String>) -> Program {
        let node = &self.nodes[index];
        // nsenter becomes the program, so signals reach it.
        Program::at("/usr/bin/nsenter")
            .name(format!("{} {role}", node.name()))
            .args(["--target", &node.pid().to_string(), "--net", "--"])
            .arg(&self.program)
            .arg(role)
            .args(["--run-dir".into(), self.run_dir(index).display().to_string()])
            .args(args)
            .start()
            .unwrap()
    }

    pub fn start_keeper(&mut self, index: usize) {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let flags = [
            ("--config", file("router.yaml")),
            ("--node-name", self.nodes[index].name().to_owned()),
            ("--node-ip", self.address(index)),
            ("--controller-url", format!("https://{}", standin::CONTROLLER)),
            ("--controller-ca", file("ca.crt")),
            ("--token-file", file("token")),
            ("--kubeconfig", file("kubeconfig")),
            ("--admin-address", "127.0.0.1:8080".to_owned()),
            ("--log-format", "plain".to_owned()),
        ];
        let args = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        self.keepers[index] = Some(self.start(index, "keeper", args));
    }

    pub fn start_guard(&mut self, index: usize) {
        let guard = self.start(index, "keeper-guard", Vec::new());
        self.guards.push(guard);
    }

    pub fn keeper(&self, index: usize) -> &Program {
        self.keepers[index].as_ref().unwrap()
    }

    /// Waits for a line of the keeper.
    pub fn keeper_line(&self, index: usize, text: &str) {
        let keeper = self.keeper(index);
        wait_until(text, || Ok(keeper.output().lines().iter().any(|line| line.contains(text)))).unwrap();
    }

    pub fn wait_exit(&self, index: usize) -> ExitStatus {
        let keeper = self.keeper(index);
        wait_until("the end of the keeper", || Ok(keeper.exited()?.is_some())).unwrap();
        keeper.exited().unwrap().unwrap()
    }

    /// Sends a signal to the process whose ID keepalived has written to `file`.
    pub fn signal_keepalived(&self, index: usize, file: &str, signal: Signal) {
        let path = self.run_dir(index).join(file);
        let pid = || std::fs::read_to_string(&path).ok()?.trim().parse().ok();
        wait_until("keepalived's process", || Ok(pid().is_some())).unwrap();
        kill(Pid::from_raw(pid().unwrap()), signal).unwrap();
    }

    /// The response of the keeper's status server.
    pub fn status(&self, index: usize, path: &str) -> Option<Value> {
        let address: IpAddr = self.address(index).parse().unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: keeper\r\n\r\n");
        let exchange = move || {
            let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, STATUS), POLL).ok()?;
            stream.set_read_timeout(Some(POLL)).ok()?;
            stream.write_all(request.as_bytes()).ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
        };
        // From the node itself: its link may be cut.
        within(&self.nodes[index], exchange).join().unwrap()
    }

    pub fn state(&self, index: usize) -> Option<String> {
        Some(self.status(index, "/status")?["state"].as_str()?.to_owned())
    }

    pub fn wait_state(&self, index: usize, state: &str) {
        let what = format!("{} to be {state}", self.nodes[index].name());
        wait_until(&what, || Ok(self.state(index).as_deref() == Some(state))).unwrap();
    }

    /// Waits until the node is MASTER with all its VIPs.
    pub fn wait_master(&self, index: usize) {
        self.wait_state(index, "MASTER");
        wait_until("the VIPs", || Ok(self.vips(index).len() >= VIPS.len())).unwrap();
    }

    /// The VIPs on the node, and the anchor.
    pub fn vips(&self, index: usize) -> Vec<String> {
        let lines = self.nodes[index].sh("ip -o addr show dev eth0").unwrap();
        let addresses = lines.lines().filter_map(|line| line.split_whitespace().nth(3));
        let single =
            addresses.filter_map(|address| address.strip_suffix("/32").or(address.strip_suffix("/128")));
        single.map(str::to_owned).collect()
    }

    /// Waits until no VIP is on the node, and returns how long it took.
    pub fn wait_stripped(&self, index: usize, limit: Duration) -> Duration {
        let begin = Instant::now();
        wait_until("a node without VIPs", || Ok(self.vips(index).is_empty())).unwrap();
        let took = begin.elapsed();
        assert!(took < limit, "{} had VIPs for {took:?}", self.nodes[index].name());
        took
    }
}
