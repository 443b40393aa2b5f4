//! A node, a pod on it, another node, and a LAN with the Internet behind it: namespaces of the machine, whose own is the node.
//!
//! ```text
//!   lan   203.0.113.9 ── up1 192.168.50.1/24 ── up0 .2/24   node   cluster0 10.244.1.1/24 ── eth0 .10/24   pod
//!                                                             └── fabric0 10.1.0.1/24 ── 10.1.0.2, 10.244.2.5   far
//! ```

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::netns::wait_until;
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

use crate::egress_router_kernel::machine::PLUGIN;

/// A host behind the LAN's gateway.
pub const OUTSIDE: &str = "203.0.113.9";
/// The same by IPv6.
pub const OUTSIDE_6: &str = "2001:db8:9::9";
/// A pod on the other node.
pub const FAR: &str = "10.244.2.5";
const PORT: u16 = 80;
/// Deadline of a reply, which takes milliseconds. The machine is emulated, and its host may be busy.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
const CONTAINER: &str = "c0ffee";
const NAMESPACES: [&str; 3] = ["lan", "far", "pod"];

/// The namespaces. Dropped: gone.
pub struct TestEnv {
    /// Environment variables of the plugin, in addition to CNI's.
    pub environment: Vec<(&'static str, String)>,
}

impl TestEnv {
    /// The environment with a pod and without an attachment.
    pub fn new() -> Self {
        let env = TestEnv { environment: Vec::new() };
        run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        for namespace in NAMESPACES {
            run(&format!("ip netns add {namespace}"));
            run(&format!("ip -n {namespace} link set lo up"));
        }
        link(
            "up0",
            "lan",
            "up1",
            &["192.168.50.2/24", "2001:db8:50::2/64"],
            &["192.168.50.1/24", "2001:db8:50::1/64"],
        );
        link(
            "cluster0",
            "pod",
            "eth0",
            &["10.244.1.1/24", "fd00:244:1::1/64"],
            &["10.244.1.10/24", "fd00:244:1::10/64"],
        );
        link("fabric0", "far", "eth0", &["10.1.0.1/24"], &["10.1.0.2/24", "10.244.2.5/32"]);
        for command in [
            "ip -n lan address add 203.0.113.9/32 dev lo",
            "ip -n lan address add 2001:db8:9::9/128 dev lo",
            "ip route add default via 192.168.50.1",
            "ip -6 route add default via 2001:db8:50::1",
            "ip route add 10.244.2.0/24 via 10.1.0.2",
            "ip -n far route add default via 10.1.0.1",
            "ip -n pod route add default via 10.244.1.1",
            "ip -n pod -6 route add default via fd00:244:1::1",
        ] {
            run(command);
        }
        for place in ["lan", "far"] {
            within(place, || {
                let listener = TcpListener::bind(("::", PORT)).unwrap();
                std::thread::spawn(move || serve(&listener));
            });
        }
        // Waits for asynchronous changes of the kernel, which would count as changes of the plugin.
        let tentative = || run("ip netns exec pod ip address show tentative");
        wait_until("no tentative address of the pod", || Ok(tentative().is_empty())).unwrap();
        env
    }

    /// A call of the plugin, as a runtime makes it: its exit status and its result.
    pub fn call(&self, command: &str, config: &Value) -> (bool, Value) {
        let mut child = Command::new(PLUGIN)
            .env_clear()
            .envs([
                ("CNI_COMMAND", command),
                ("CNI_CONTAINERID", CONTAINER),
                ("CNI_NETNS", "/run/netns/pod"),
                ("CNI_IFNAME", "net1"),
                ("CNI_PATH", "/opt/cni/bin"),
                ("CNI_ARGS", "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"),
                ("PATH", "/nowhere"),
            ])
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let result = String::from_utf8(output.stdout).unwrap();
        let result = if result.is_empty() { Value::Null } else { serde_json::from_str(&result).unwrap() };
        (output.status.success(), result)
    }

    /// The same, which must succeed.
    pub fn succeed(&self, command: &str, config: &Value) -> Value {
        let (succeeded, result) = self.call(command, config);
        assert!(succeeded, "{command}: {result}");
        result
    }

    /// CHECK, with what ADD answered.
    pub fn check(&self, config: &Value, result: &Value) {
        self.succeed("CHECK", &with(config, "prevResult", result.clone()));
    }

    /// The pod's source address at that host; none without a reply.
    pub fn seen_by(&self, host: &str) -> Option<String> {
        let to = SocketAddr::new(host.parse().unwrap(), PORT);
        within("pod", move || {
            let mut stream = TcpStream::connect_timeout(&to, RESPONSE_TIMEOUT).ok()?;
            let mut text = String::new();
            stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).unwrap();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        })
    }

    /// The state of the pod that an attachment could change.
    pub fn state(&self) -> String {
        [
            "ip -d link show",
            "ip address show",
            "ip route show table all",
            "ip -6 route show table all",
            "ip rule show",
            "ip -6 rule show",
            "nft list ruleset",
        ]
        .map(|command| run(&format!("ip netns exec pod {command}")))
        .into_iter()
        .chain([within("pod", sysctls)])
        .collect::<Vec<_>>()
        .join("\n")
    }

    /// Waits until the pod has this state, because the kernel completes the deletion of a link asynchronously.
    pub fn until_state(&self, expected: &str) {
        let reached = wait_until("the pod's state", || Ok(self.state() == expected));
        let now = self.state();
        let differences = |a: &str, b: &str| {
            let b: Vec<&str> = b.lines().collect();
            a.lines().filter(|line| !b.contains(line)).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(
            reached.is_ok(),
            "new: {:#?}\ngone: {:#?}",
            differences(&now, expected),
            differences(expected, &now)
        );
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        for namespace in NAMESPACES {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).status();
        }
        // A namespace that is used by a connection keeps its links for a while.
        for link in ["up0", "cluster0", "fabric0"] {
            let _ = Command::new("ip").args(["link", "delete", link]).stderr(Stdio::null()).status();
        }
    }
}

/// A network configuration with these additional keys.
pub fn config(more: Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "outside", "type": "egress-router", "clusterNetworks": ["10.244.0.0/16"],
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

/// The same with one key more.
pub fn with(config: &Value, key: &str, value: Value) -> Value {
    let mut config = config.clone();
    config[key] = value;
    config
}

/// Runs a command of the machine: what it printed.
pub fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {text}");
    String::from_utf8(output.stdout).unwrap()
}

/// Does something in a namespace, on a thread of its own.
pub fn within<T: Send + 'static>(namespace: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        act()
    })
    .join()
    .unwrap()
}

/// Those of all interfaces, and the one that would reset them. A few cannot be read before they are written.
fn sysctls() -> String {
    let read = |file: &Path| {
        let value = std::fs::read_to_string(file).unwrap_or_default();
        format!("{} = {}", file.display(), value.trim())
    };
    let mut lines = vec![read("/proc/sys/net/ipv4/ip_forward".as_ref())];
    for family in ["ipv4", "ipv6"] {
        for interface in std::fs::read_dir(format!("/proc/sys/net/{family}/conf")).unwrap() {
            let files = std::fs::read_dir(interface.unwrap().path()).unwrap();
            lines.extend(files.map(|file| read(&file.unwrap().path())));
        }
    }
    lines.sort();
    lines.join("\n")
}

fn link(here: &str, namespace: &str, there: &str, our: &[&str], their: &[&str]) {
    run(&format!("ip link add {here} type veth peer name {there} netns {namespace}"));
    for (at, interface, addresses) in [("", here, our), (&*format!("-n {namespace} "), there, their)] {
        for address in addresses {
            let flag = if address.contains(':') { " nodad" } else { "" };
            run(&format!("ip {at}address add {address} dev {interface}{flag}"));
        }
        run(&format!("ip {at}link set {interface} up"));
    }
}

fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        let client = stream.peer_addr().map(|client| client.ip().to_canonical().to_string());
        let _ = stream.write_all(client.unwrap_or_default().as_bytes());
    }
}
