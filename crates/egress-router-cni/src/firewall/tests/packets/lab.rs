//! A pod between a cluster and two external networks. The calling thread is in the pod.
//!
//! ```text
//!   cluster 10.244.1.1 ─── eth0 10.244.1.5  pod  net1 192.168.51.10 ─── 192.168.51.1 outside
//!     a client of another node: 10.244.2.5          net2 192.168.52.10 ─── 192.168.52.1 another outside
//! ```
//! and the same in IPv6. The main table's default route is that of the newest attachment; all others are as in [`crate::plan`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::super::*;
use crate::sys::Namespace;
use crate::sys::isolated::ip;

/// Deadline, far longer than any reply takes on a busy machine.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for replies that are not expected, longer than an immediate reply takes.
pub(super) const NO_REPLY_TIMEOUT: Duration = Duration::from_millis(300);

/// A network that the pod is linked to.
pub(super) struct Network {
    namespace: Namespace,
}

impl Network {
    /// Linked to the pod by `interface`, with `own` addresses on the link and `more` behind it.
    pub(super) fn new(interface: &str, own: [&str; 2], more: &[&str], pods: [&str; 2]) -> Self {
        let (sender, receiver) = mpsc::channel();
        // A namespace exists as long as it is open.
        isolated(move || sender.send(Namespace::current().unwrap()).unwrap());
        let network = Self { namespace: receiver.recv().unwrap() };
        let path = format!("/proc/{}/fd/{}", std::process::id(), network.namespace.descriptor());
        ip(&format!("link add {interface} type veth peer name cable netns {path}"));
        network.within(|| {
            ip("link set lo up");
            ip("link set cable up");
            own.iter().for_each(|address| drop(ip(&format!("addr add {address} dev cable nodad"))));
            more.iter().for_each(|address| drop(ip(&format!("addr add {address} dev lo nodad"))));
        });
        ip(&format!("link set {interface} up"));
        pods.iter().for_each(|address| drop(ip(&format!("addr add {address} dev {interface} nodad"))));
        network
    }

    /// Runs `act` in it.
    pub(super) fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.namespace.enter().unwrap();
                act()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A connection from there, to be made.
    pub(super) fn connects<'a>(&'a self, to: &'a str) -> impl FnOnce() -> io::Result<TcpStream> + 'a {
        move || self.within(|| connect(to))
    }

    /// A socket there, to be made, that has sent something.
    pub(super) fn sends<'a>(
        &'a self,
        from: &'a str,
        to: &'a str,
    ) -> impl FnOnce() -> io::Result<UdpSocket> + 'a {
        move || self.within(|| send(from, to))
    }

    /// A server for one talk there. The client, elsewhere, is `connect`.
    pub(super) fn serves(
        &self,
        address: &str,
        connect: impl FnOnce() -> io::Result<TcpStream>,
    ) -> io::Result<IpAddr> {
        let listener = self.within(|| bound(|| TcpListener::bind(address)));
        talk(&listener, connect)
    }

    /// The same with UDP.
    pub(super) fn serves_udp(
        &self,
        address: &str,
        connect: impl FnOnce() -> io::Result<UdpSocket>,
    ) -> io::Result<IpAddr> {
        let server = self.within(|| bound(|| UdpSocket::bind(address)));
        talk_udp(&server, connect)
    }
}

/// The environment of the pod.
pub(super) struct Lab {
    pub(super) cluster: Network,
    pub(super) outside: [Network; 2],
}

impl Lab {
    /// The calling thread's namespace, which is empty, becomes the pod.
    pub(super) fn new() -> Self {
        ip("link set lo up");
        let cluster = Network::new(
            "eth0",
            ["10.244.1.1/24", "fd00:1::1/64"],
            &["10.244.2.5/32", "fd00:2::5/128"],
            ["10.244.1.5/24", "fd00:1::5/64"],
        );
        cluster.within(|| {
            ip("route add 10.244.1.5 dev cable src 10.244.2.5");
            ip("-6 route add fd00:1::5 dev cable src fd00:2::5");
            // Hosts that use the pod as a router.
            ip("route add 192.168.51.0/24 via 10.244.1.5");
            ip("-6 route add 2001:db8:51::/64 via fd00:1::5");
            ip("route add 198.51.100.0/24 via 10.244.1.5");
            ip("-6 route add 2001:db8:bad::/48 via fd00:1::5");
        });
        let outside = [1, 2].map(|number| {
            let network = Network::new(
                &format!("net{number}"),
                [&format!("192.168.5{number}.1/24"), &format!("2001:db8:5{number}::1/64")],
                &[
                    "203.0.113.1/32",
                    "203.0.113.9/32",
                    "10.1.2.3/32",
                    "198.51.100.1/32",
                    "2001:db8:2::1/128",
                    "2001:db8:2::9/128",
                    "2001:db8:1::1/128",
                    "2001:db8:bad::1/128",
                ],
                [&format!("192.168.5{number}.10/24"), &format!("2001:db8:5{number}::10/64")],
            );
            network.within(|| {
                ip(&format!("route add 10.244.0.0/16 via 192.168.5{number}.10"));
                ip(&format!("-6 route add fd00::/16 via 2001:db8:5{number}::10"));
            });
            network
        });
        for (name, value) in [
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/eth0/rp_filter", "2"),
            ("ipv4/conf/net1/rp_filter", "2"),
            ("ipv4/conf/net2/rp_filter", "2"),
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
        ] {
            std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
        }
        for slot in [1, 2] {
            let (primary, egress) = (names::primary_table(slot), names::egress_table(slot));
            let (mark, out) = (names::mark(slot), names::egress_mark(names::mark(slot)));
            let (mask, out_mask) = (names::MARK_MASK, names::EGRESS_MARK_MASK);
            ip(&format!("route add default via 10.244.1.1 table {primary}"));
            ip(&format!("-6 route add default via fd00:1::1 table {primary}"));
            ip(&format!("route add default via 192.168.5{slot}.1 table {egress}"));
            ip(&format!("-6 route add default via 2001:db8:5{slot}::1 table {egress}"));
            for family in ["-4", "-6"] {
                let priority = names::rule_priority(slot);
                ip(&format!("{family} rule add fwmark {mark}/{mask} lookup {primary} priority {priority}"));
                ip(&format!("{family} rule add fwmark {out}/{out_mask} lookup {egress} priority {priority}"));
            }
        }
        let lab = Self { cluster, outside };
        lab.default_through(1);
        lab
    }

    /// The main table's default routes, as they are before any attachment.
    pub(super) fn default_through_primary(&self) {
        ip("route replace default via 10.244.1.1");
        ip("-6 route replace default via fd00:1::1");
    }

    /// The main table's default routes.
    pub(super) fn default_through(&self, slot: u32) {
        ip(&format!("route replace default via 192.168.5{slot}.1"));
        ip(&format!("-6 route replace default via 2001:db8:5{slot}::1"));
    }
}

/// The attachment `net<slot>`, with both families.
pub(super) fn attachment(slot: u32, destinations: Destinations) -> Firewall {
    let addresses = [format!("192.168.5{slot}.10"), format!("2001:db8:5{slot}::10")];
    Firewall {
        interface: format!("net{slot}"),
        mark: names::mark(slot),
        networks: vec![format!("2001:db8:5{slot}::/64").parse().unwrap()],
        ..firewall(&[&addresses[0], &addresses[1]], destinations)
    }
}

/// Installs its tables in the pod.
pub(super) fn install(firewall: &Firewall) {
    nftables::install(&mut netfilter(), &firewall.ruleset()).unwrap();
    if let Some(frames) = firewall.frames() {
        nftables::install(&mut netfilter(), &frames).unwrap();
    }
}

/// Deletes its tables.
pub(super) fn delete(firewall: &Firewall) {
    for ruleset in [Some(firewall.ruleset()), firewall.frames()].into_iter().flatten() {
        nftables::delete(&mut netfilter(), ruleset.family, &ruleset.table).unwrap();
    }
}

/// A server for one talk in the pod.
pub(super) fn pod_serves(
    address: &str,
    connect: impl FnOnce() -> io::Result<TcpStream>,
) -> io::Result<IpAddr> {
    talk(&bound(|| TcpListener::bind(address)), connect)
}

/// A socket of an address that the test used before. A child process that another test starts has all sockets of this process until
/// it executes its program, so a closed socket may stay in use for a moment.
fn bound<T>(bind: impl Fn() -> io::Result<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        match bind() {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            result => return result.unwrap(),
        }
    }
}

/// A connection from the calling thread's namespace.
pub(super) fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address.parse().unwrap(), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// An attempt to connect that must fail.
pub(super) fn failed_connect(address: &str) -> ErrorKind {
    TcpStream::connect_timeout(&address.parse().unwrap(), NO_REPLY_TIMEOUT).unwrap_err().kind()
}

/// A socket that has sent something from the calling thread's namespace to `address`.
pub(super) fn send(from: &str, address: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(from.parse().unwrap(), 0))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(address)?;
    socket.send(b"?")?;
    Ok(socket)
}

/// The client's address at the server, after data in both directions.
fn talk(listener: &TcpListener, connect: impl FnOnce() -> io::Result<TcpStream>) -> io::Result<IpAddr> {
    let mut client = connect()?;
    listener.set_nonblocking(true)?;
    let end = Instant::now() + TIMEOUT;
    let (mut served, seen) = loop {
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            accepted => break accepted?,
        }
    };
    served.set_nonblocking(false)?;
    served.write_all(b"!")?;
    client.read_exact(&mut [0])?;
    Ok(seen.ip())
}

fn talk_udp(server: &UdpSocket, connect: impl FnOnce() -> io::Result<UdpSocket>) -> io::Result<IpAddr> {
    let client = connect()?;
    server.set_read_timeout(Some(TIMEOUT))?;
    let (_, seen) = server.recv_from(&mut [0])?;
    server.send_to(b"!", seen)?;
    client.recv(&mut [0])?;
    Ok(seen.ip())
}
