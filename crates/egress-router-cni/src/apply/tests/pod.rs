//! A node with an uplink, a pod with its primary interface, and snapshots of both.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use common::netlink::socket::{Protocol, Socket, Sockets};

use crate::nftables;
use crate::observe::{self, Pod};
use crate::plan::undo::Undo;
use crate::sys::Namespace;
use crate::sys::isolated::{advertise_router, ip, new_namespace};

/// Far longer than anything takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The calling thread is in the pod's namespace, like the plugin; the node is another namespace.
pub struct Place {
    node: Namespace,
    pod: Namespace,
    host: Socket,
    sockets: Sockets,
    master: u32,
    /// The recorded attachments.
    pub attachments: BTreeMap<String, Undo>,
}

/// A snapshot: name and text.
pub type Seen = BTreeMap<String, String>;

/// Runs `ip` in the pod.
pub fn ip_in(_: &Place, line: &str) -> String {
    ip(line)
}

impl Place {
    /// The calling thread's namespace, which must be empty, becomes the node.
    pub fn new() -> Self {
        let (node, pod) = (Namespace::current().unwrap(), new_namespace());
        let file = format!("/proc/{}/fd/{}", std::process::id(), pod.descriptor());
        for line in [
            "link set lo up",
            "link add u0 type veth peer name u1",
            // Waits for asynchronous changes of the kernel.
            "link set u0 addrgenmode none",
            "link set u1 addrgenmode none",
            "link set u0 up",
            "link set u1 up",
            "addr add 192.168.50.2/24 dev u0",
            "addr add fd50::2/64 dev u0 nodad",
            "link add vp0 type veth peer name eth0",
            "link set vp0 addrgenmode none",
            &format!("link set eth0 netns {file}"),
            "link set vp0 up",
        ] {
            ip(line);
        }
        let mut host = Socket::open(Protocol::Route).unwrap();
        let master = host.link_by_name("u0").unwrap().unwrap().index;
        pod.enter().unwrap();
        for line in [
            "link set lo up",
            "link set eth0 addrgenmode none",
            "link set eth0 up",
            "addr add 10.244.1.2/24 dev eth0",
            "addr add fd44::2/64 dev eth0 nodad",
            "route add default via 10.244.1.1 mtu 1450",
            "-6 route add default via fd44::1",
            // Without a gateway, and with a metric: it is also copied to the primary table.
            "route add 169.254.20.10/32 dev eth0 metric 50",
        ] {
            ip(line);
        }
        for (name, value) in [
            ("ipv4/conf/eth0/rp_filter", "1"),
            ("ipv6/conf/eth0/forwarding", "1"),
            ("ipv6/conf/lo/accept_ra", "2"),
        ] {
            fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
        }
        Self { node, pod, host, sockets: Sockets::open().unwrap(), master, attachments: BTreeMap::new() }
    }

    /// Enables router advertisements in the pod, also with forwarding, and the other end of its primary interface as a router.
    pub fn meets_a_router(&self) {
        self.node.enter().unwrap();
        ip("addr add fe80::1/64 dev vp0 nodad");
        self.pod.enter().unwrap();
        ip("addr add fe80::2/64 dev eth0 nodad");
        fs::write("/proc/sys/net/ipv6/conf/eth0/accept_ra", "2").unwrap();
    }

    /// Sends an advertisement, and waits until the pod has processed it.
    pub fn advertise(&mut self) {
        let router = self.host.link_by_name("vp0").unwrap().unwrap().index;
        let heard = || {
            let counters = fs::read_to_string("/proc/thread-self/net/dev_snmp6/eth0").unwrap();
            let line = counters.lines().find(|line| line.starts_with("Icmp6InRouterAdvertisements")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let (before, end) = (heard(), Instant::now() + TIMEOUT);
        // The kernel counts an advertisement before it processes it: when the second is counted, the first is processed.
        while heard() < before + 2 {
            assert!(Instant::now() < end, "the pod hears no router");
            self.node.enter().unwrap();
            // Sending fails until the link is up.
            let _ = advertise_router(router);
            self.pod.enter().unwrap();
        }
    }

    pub fn master(&self) -> u32 {
        self.master
    }

    /// The pod's sockets, the node's, and the pod's namespace.
    pub fn parts(&mut self) -> (&mut Sockets, &mut Socket, &Namespace) {
        (&mut self.sockets, &mut self.host, &self.pod)
    }

    /// The pod as the plugin observes it.
    pub fn observed(&mut self) -> Pod {
        observe::pod(&mut self.sockets, self.attachments.clone()).unwrap()
    }

    /// Links, addresses, routes, rules, tables and sysctls of pod and node, as an administrator sees them.
    pub fn seen(&mut self) -> Seen {
        self.node.enter().unwrap();
        let mut seen = objects("node");
        self.pod.enter().unwrap();
        seen.extend(objects("pod"));
        seen.insert(
            "pod tables".into(),
            format!("{:?}", nftables::tables(&mut self.sockets.netfilter, "").unwrap()),
        );
        for family in ["ipv4", "ipv6"] {
            sysctls(Path::new("/proc/sys/net").join(family).as_path(), &mut seen);
        }
        seen
    }

    /// Asserts that the snapshot is unchanged.
    pub fn assert_seen(&mut self, before: &Seen, when: &str) {
        let after = self.seen();
        let keys = before.keys().chain(after.keys());
        for key in keys {
            assert_eq!(before.get(key), after.get(key), "{key}, {when}");
        }
    }
}

fn objects(place: &str) -> Seen {
    settle();
    ["-d link", "-d addr", "-4 -d route show table all", "-6 -d route show table all", "-4 rule", "-6 rule"]
        .map(|line| (format!("{place} {line}"), timeless(&ip(line))))
        .into()
}

/// The text without the remaining lifetime of advertised routes.
fn timeless(page: &str) -> String {
    let word = |word: &str| {
        let seconds = word.strip_suffix("sec").is_some_and(|number| number.parse::<u32>().is_ok());
        if seconds { "some time".to_owned() } else { word.to_owned() }
    };
    page.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The kernel adds IPv6's routes of an address or an enabled link asynchronously.
fn settle() {
    let end = Instant::now() + TIMEOUT;
    let (addresses, links) = (ip("-6 -o addr show"), ip("-o link show up"));
    let addresses = addresses.split_whitespace().filter_map(|word| word.split_once('/'));
    let names = links.lines().filter_map(|line| line.split([':', '@']).nth(1)).map(str::trim);
    let awaited: Vec<_> = addresses
        .map(|(address, _)| format!("local {address} "))
        .chain(names.filter(|name| *name != "lo").map(|name| format!("multicast ff00::/8 dev {name} ")))
        .collect();
    loop {
        let routes = ip("-6 route show table local");
        if awaited.iter().all(|route| routes.contains(route)) {
            return;
        }
        assert!(Instant::now() < end, "waited for {awaited:?}, there are only these:\n{routes}");
    }
}

fn sysctls(folder: &Path, seen: &mut Seen) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            // Neighbour tables contain counters and are not changed.
            if !path.ends_with("neigh") {
                sysctls(&path, seen);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            // Some files are write-only.
            seen.insert(path.display().to_string(), text);
        }
    }
}
