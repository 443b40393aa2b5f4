//! Clients that repeatedly request the source address that a server sees, with a new connection each time.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::internet::{BULK, ECHO, HOST};
use super::{Machine, Network};
use crate::wait::until;

/// Interval of requests, which is the resolution of an interruption.
const EVERY: Duration = Duration::from_millis(20);
/// Timeout of a response, which takes less than a millisecond on an idle machine.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);
/// A web server of busybox has a CGI script at this path. Others ignore it.
const PATH: &str = "/cgi-bin/client";

/// A server that ends its response with the address of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A datagram and its reply.
    Udp(SocketAddrV4),
    /// A connection, with HTTP 1.0.
    Tcp(SocketAddrV4),
    /// The same with a response of a mebibyte, from [`Network::serve`].
    Bulk(SocketAddrV4),
}

impl Target {
    /// The echo server of the host in the Internet.
    pub const ECHO: Self = Target::Udp(SocketAddrV4::new(HOST, ECHO));

    /// The last line of the response. None: there was none in time. A new port each time, so that no conntrack entry exists for it.
    pub fn request(self, timeout: Duration) -> Option<String> {
        let text = match self {
            Target::Udp(to) => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
                socket.set_read_timeout(Some(timeout)).ok()?;
                socket.connect(to).ok()?;
                socket.send(b"?").ok()?;
                let mut response = [0; 256];
                let length = socket.recv(&mut response).ok()?;
                String::from_utf8_lossy(response.get(..length)?).into_owned()
            }
            Target::Tcp(to) | Target::Bulk(to) => {
                let path = if matches!(self, Target::Tcp(_)) { PATH } else { BULK };
                let mut stream = TcpStream::connect_timeout(&to.into(), timeout).ok()?;
                stream.set_read_timeout(Some(timeout)).ok()?;
                // In one segment, because a server may read only once.
                let request = format!("GET {path} HTTP/1.0\r\nConnection: close\r\n\r\n");
                stream.write_all(request.as_bytes()).ok()?;
                let mut response = String::new();
                stream.read_to_string(&mut response).ok()?;
                response
            }
        };
        text.trim().lines().last().map(str::to_owned)
    }
}

/// The address of the client in the last line of a response: its last word.
#[must_use]
pub fn client_in(line: &str) -> Option<Ipv4Addr> {
    // A server may listen for both families on one socket, and write an IPv6 address in brackets.
    let address: IpAddr = line.split_whitespace().last()?.trim_matches(['[', ']']).parse().ok()?;
    match address.to_canonical() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Its time.
    pub at: Instant,
    /// The source address at the server; none without a response.
    pub seen: Option<Ipv4Addr>,
}

/// Sends requests until it is dropped.
#[derive(Debug)]
pub struct Prober {
    probes: Arc<Mutex<Vec<Probe>>>,
    stop: Arc<AtomicBool>,
}

impl Prober {
    /// From that machine to the host in the Internet, until the machine's next boot.
    ///
    /// # Errors
    /// The machine does not run.
    pub fn start(machine: &Machine) -> Result<Self> {
        Self::start_in(&machine.network()?)
    }

    /// From that network to the host in the Internet.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start_in(network: &Network) -> Result<Self> {
        Self::start_to(network, Target::ECHO)
    }

    /// From that network to a server.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start_to(network: &Network, target: Target) -> Result<Self> {
        let (probes, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (sink, stopped) = (Arc::clone(&probes), Arc::clone(&stop));
        network.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let at = Instant::now();
                let seen = target.request(RESPONSE_TIMEOUT).and_then(|line| client_in(&line));
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(Probe { at, seen });
                std::thread::sleep(EVERY.saturating_sub(at.elapsed()));
            }
            Ok(())
        })?;
        Ok(Self { probes, stop })
    }

    /// All requests so far.
    pub fn probes(&self) -> Vec<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requests since then.
    pub fn since(&self, since: Instant) -> Vec<Probe> {
        self.probes().into_iter().filter(|probe| probe.at >= since).collect()
    }

    /// The last request.
    pub fn last(&self) -> Option<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).last().copied()
    }

    /// Waits until a request after `since` has the source address `expected` (`None`: until one has no response).
    ///
    /// # Errors
    /// There is none within [`crate::wait::TIMEOUT`].
    pub async fn wait(&self, expected: Option<Ipv4Addr>, since: Instant) -> Result<Probe> {
        until(&format!("the source address {expected:?}"), async || {
            Ok(self.since(since).into_iter().find(|probe| probe.seen == expected))
        })
        .await
        .with_context(|| format!("the last was {:?}", self.last().map(|probe| probe.seen)))
    }

    /// The number of the last requests after `since` that all have the source address `expected`.
    pub fn streak(&self, expected: Ipv4Addr, since: Instant) -> usize {
        self.since(since).iter().rev().take_while(|probe| probe.seen == Some(expected)).count()
    }

    /// The interruption before `first`: the time since the last reply before it, or since the first request, and the number of lost requests.
    pub fn gap_before(&self, first: &Probe) -> (Duration, usize) {
        let probes = self.probes();
        let before = probes.iter().rev().filter(|probe| probe.at < first.at);
        let lost: Vec<_> = before.clone().take_while(|probe| probe.seen.is_none()).collect();
        let last = before.clone().nth(lost.len()).or(lost.last().copied());
        (last.map_or(Duration::ZERO, |last| first.at.duration_since(last.at)), lost.len())
    }

    /// The longest interruption that ended after `since`: the time between two requests with a response; and the number of lost requests
    /// since then.
    pub fn longest_gap(&self, since: Instant) -> (Duration, usize) {
        let probes = self.probes();
        let lost = probes.iter().filter(|probe| probe.at >= since && probe.seen.is_none()).count();
        let responses: Vec<Instant> =
            probes.iter().filter(|probe| probe.seen.is_some()).map(|probe| probe.at).collect();
        let gaps = responses.iter().zip(responses.iter().skip(1)).filter(|(_, next)| **next >= since);
        (gaps.map(|(one, next)| next.duration_since(*one)).max().unwrap_or_default(), lost)
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_client_is_read_as_servers_write_it() {
        for line in ["198.18.50.1", "a 198.18.50.1", "::ffff:198.18.50.1", "[::ffff:198.18.50.1]"] {
            assert_eq!(client_in(line), Some(Ipv4Addr::new(198, 18, 50, 1)), "{line}");
        }
        for line in ["", "a", "2001:db8::1", "198.18.50.1 a"] {
            assert_eq!(client_in(line), None, "{line}");
        }
    }
}
