//! Labs of network namespaces: nodes, links between them, and real packets.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use e2e::netns::{Lab, Port};
//! let lab = Lab::new()?;
//! let (a, b) = (lab.node("a")?, lab.node("b")?);
//! lab.link(Port::new(&a, "eth0", &["10.0.0.1/24"]), Port::new(&b, "eth0", &["10.0.0.2/24"]))?;
//! let _server = b.listen("10.0.0.2", 80)?;
//! assert_eq!(a.seen_by("10.0.0.2", 80)?.as_deref(), Some("10.0.0.1"));
//! # Ok(()) }
//! ```
//!
//! Nothing outlives the process that created it. Each node has a holder process that waits for the end of its standard input, a pipe of this
//! process. When this process ends, also by SIGKILL, the pipe is closed and the holder exits. As the holder is the first process of a PID
//! namespace, all processes of the node are killed with it. No name is left in `ip netns`.
//!
//! Root is not needed if the kernel allows users to create namespaces: all nodes of a lab are then in one user namespace.

mod network;
mod node;
pub(crate) mod snapshot;
mod traffic;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::slots::{self, Slot};
use crate::wait::TIMEOUT;

pub use network::{PrivateNetwork, Server};
pub use node::{Iptables, Node, Output, Process};
pub use snapshot::Snapshot;
pub use traffic::{Listener, Meeting, Transport};

/// Enters namespaces. With a path, std starts it by `posix_spawn`. A name that it has to look for in another `PATH` makes it fork, which copies
/// the page tables of a process with two hundred threads: a seventh of the processor time of all tests.
pub(crate) const NSENTER: &str = "/usr/bin/nsenter";
/// Makes namespaces.
const UNSHARE: &str = "/usr/bin/unshare";
/// `PATH` of everything that a lab runs: the programs of a node's administrator, wherever the test's own `PATH` leads.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Required programs, with their Debian packages.
const PROGRAMS: [(&str, &str); 9] = [
    ("bash", "bash"),
    ("chroot", "coreutils"),
    ("hostname", "hostname"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("ping", "iputils-ping"),
    ("socat", "socat"),
    ("unshare", "util-linux"),
];

/// A set of nodes that can be linked to one another.
#[derive(Debug)]
pub struct Lab {
    owner: Option<Arc<Holder>>,
    // Last, so that the slot is free after all else is removed.
    _slot: Slot,
}

/// One end of a link.
#[derive(Debug, Clone, Copy)]
pub struct Port<'a> {
    node: &'a Node,
    interface: &'a str,
    addresses: &'a [&'a str],
}

impl<'a> Port<'a> {
    /// `interface` (at most 15 characters) will be made in `node`, with `addresses` (`10.0.0.1/24`).
    pub fn new(node: &'a Node, interface: &'a str, addresses: &'a [&'a str]) -> Self {
        Self { node, interface, addresses }
    }
}

impl Lab {
    /// An empty lab, one of a few at a time.
    ///
    /// # Errors
    /// A sentence that names what is missing: a program and its package, or the right to make namespaces.
    pub fn new() -> anyhow::Result<Self> {
        let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| !installed(program)).collect();
        ensure!(
            missing.is_empty(),
            "network labs need programs that are not installed; the Debian packages are: {}",
            missing.iter().map(|(_, package)| *package).collect::<Vec<_>>().join(" ")
        );
        let _slot = slots::LABS.take();
        if nix::unistd::geteuid().is_root() {
            return Ok(Self { owner: None, _slot });
        }
        let mut command = Command::new(UNSHARE);
        command.args(["--user", "--map-root-user", "bash", "-euc", "echo ready $$; exec cat >/dev/null"]);
        let owner = Holder::start(command).context(
            "network labs need root, or a kernel that lets users make user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0, \
             kernel.apparmor_restrict_unprivileged_userns=0)",
        )?;
        Ok(Self { owner: Some(Arc::new(owner)), _slot })
    }

    /// A new node: network, mount, PID and host-name namespaces of its own. `/run` and `/usr/local/sbin` are empty and
    /// private, `/etc` is a private copy (links to the host's entries) without netplan, and the switches that a network
    /// namespace inherits from the host are set to fixed values: no forwarding, no rp_filter.
    ///
    /// # Errors
    /// When the kernel refuses a namespace; the message carries its words.
    pub fn node(&self, name: &str) -> anyhow::Result<Node> {
        Node::start(name, self.owner.clone()).with_context(|| format!("cannot make the network node {name}"))
    }

    /// A cable between two nodes: a veth pair, both ends up, with their addresses.
    ///
    /// # Errors
    /// When a name or an address is not accepted.
    pub fn link(&self, a: Port<'_>, b: Port<'_>) -> anyhow::Result<()> {
        let addresses = |port: &Port<'_>| -> String {
            let name = port.interface;
            let lines = port.addresses.iter().map(|address| format!("addr add {address} dev {name}\n"));
            lines.chain([format!("link set {name} up\n")]).collect()
        };
        let (near, far, holder) = (a.interface, b.interface, b.node.pid());
        let pair = format!("link add {near} type veth peer name {far} netns {holder}\n");
        // The far end first: when the near end comes up, the cable is whole.
        let make = a.node.ip_batch(&pair);
        make.and_then(|()| b.node.ip_batch(&addresses(&b)))
            .and_then(|()| a.node.ip_batch(&addresses(&a)))
            .with_context(|| format!("cannot link {} {near} to {} {far}", a.node.name(), b.node.name()))
    }
}

/// Polls until a condition is met; an error ends it immediately.
///
/// # Errors
/// It is not met within [`TIMEOUT`]; or what the poll failed with.
pub fn wait_until(what: &str, mut met: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let end = Instant::now() + TIMEOUT;
    while !met()? {
        ensure!(Instant::now() < end, "still waiting for {what} after {TIMEOUT:?}");
        // Short compared with what is waited for (processes, neighbour entries), long compared with the cost of a poll.
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn installed(program: &str) -> bool {
    PATH.split(':').any(|folder| Path::new(folder).join(program).exists())
}

/// A process that keeps namespaces alive until this value, or the process that has it, is gone.
#[derive(Debug)]
struct Holder {
    child: Child,
    pid: u32,
}

impl Holder {
    /// `command` must print `ready <its pid>` and then wait for the end of its standard input.
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let Some(pid) = line.strip_prefix("ready ").and_then(|pid| pid.trim().parse().ok()) else {
            let output = child.wait_with_output()?;
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        };
        Ok(Self { child, pid })
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The result is not needed: the child has ended in both cases.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Owner;

    #[test]
    fn packets_cross_a_link_and_the_server_sees_who_came() {
        let lab = Lab::new().unwrap();
        let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
        let (left, right) = (&["10.0.0.1/24", "10.0.0.7/24"], &["10.0.0.2/24"]);
        lab.link(Port::new(&a, "eth0", left), Port::new(&b, "eth0", right)).unwrap();
        // A link takes a moment to come up.
        wait_until("the link is up", || a.pings("10.0.0.2")).unwrap();
        assert!(!a.pings("10.0.0.3").unwrap(), "no node has this address");
        assert_eq!(a.seen_by("10.0.0.2", 80).unwrap(), None, "there is no listener");
        let server = b.listen("10.0.0.2", 80).unwrap();
        a.wait_seen_as("10.0.0.1", "10.0.0.2", 80).unwrap();
        drop(server);
        wait_until("the server is gone", || Ok(a.seen_by("10.0.0.2", 80)?.is_none())).unwrap();
    }

    #[test]
    fn a_snapshot_shows_each_kind_of_change() {
        let lab = Lab::new().unwrap();
        let node = lab.node("a").unwrap();
        let before = node.snapshot().unwrap();
        assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new());
        for change in [
            "ip link add eth7 type veth peer eth8",
            "ip addr add 10.9.0.1/32 dev lo",
            "ip route add unreachable 10.8.0.0/16",
            "ip rule add from 10.9.0.1 lookup 100",
            "xtables-nft-multi iptables -t nat -A POSTROUTING -s 10.0.0.0/8 -j ACCEPT",
            "xtables-nft-multi iptables -P FORWARD DROP",
            "xtables-legacy-multi iptables -N MINE",
            "echo 1 >/proc/sys/net/ipv4/ip_forward",
            "mkdir -p /etc/netplan; echo x >/etc/netplan/1.yaml",
        ] {
            let before = node.snapshot().unwrap();
            node.sh(change).unwrap();
            assert_ne!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new(), "{change}");
        }
    }

    #[test]
    fn nodes_share_neither_files_nor_switches() {
        let lab = Lab::new().unwrap();
        let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
        a.sh("echo mine >/run/x; mkdir /etc/netplan; echo 1 >/proc/sys/net/ipv4/ip_forward").unwrap();
        assert_eq!(b.sh("ls /run/x /etc/netplan 2>/dev/null || true").unwrap(), "");
        assert_eq!(b.sh("cat /proc/sys/net/ipv4/ip_forward").unwrap(), "0\n");
        assert_eq!(a.sh("cat /proc/sys/kernel/hostname").unwrap(), "a\n");
        a.hide("ping").unwrap();
        assert!(a.sh("command -v ping").is_err());
        assert!(b.sh("command -v ping").is_ok());
        a.unhide("ping").unwrap();
        assert!(a.sh("command -v ping").is_ok());
    }

    /// The lab of a process that is killed. The test starts itself again as that process.
    #[test]
    fn a_killed_process_leaves_nothing_behind() {
        if Owner::is_this() {
            let lab = Lab::new().unwrap();
            let node = lab.node("doomed").unwrap();
            let _server = node.listen("127.0.0.1", 80).unwrap();
            return Owner::hold(node.sh("readlink /proc/self/ns/net").unwrap().trim_end());
        }
        let (owner, namespace) =
            Owner::start("netns::tests::a_killed_process_leaves_nothing_behind").unwrap();
        assert!(namespace.starts_with("net:["), "{namespace}");
        let inside = || -> anyhow::Result<bool> {
            let processes = std::fs::read_dir("/proc")?.filter_map(Result::ok);
            let links = processes.filter_map(|entry| std::fs::read_link(entry.path().join("ns/net")).ok());
            Ok(links.into_iter().any(|link| link.to_string_lossy() == namespace))
        };
        assert!(inside().unwrap(), "the child's processes are visible to this test");
        owner.kill().unwrap();
        wait_until("no process is left in the namespace", || Ok(!inside()?)).unwrap();
    }
}
