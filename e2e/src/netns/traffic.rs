//! Connectivity and source addresses, for both families.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Node, Process, wait_until};

/// A server in a node that sends each client its source address. It is stopped when dropped.
#[derive(Debug)]
pub struct Listener {
    node: Node,
    transport: Transport,
    address: String,
    port: u16,
    _process: Process,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A connection.
    Tcp,
    /// One datagram in each direction.
    Udp,
}

/// The result of an attempt to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// A [`Listener`] replied: it saw this address.
    SeenAs(String),
    /// The connection was rejected before the timeout, with the system's message (`No route to host`).
    Refused(String),
    /// There was no reply.
    Silence,
}

impl Node {
    /// Listens on `address` and `port` (TCP).
    ///
    /// # Errors
    /// When it does not listen within [`crate::wait::TIMEOUT`].
    pub fn listen(&self, address: &str, port: u16) -> Result<Listener> {
        self.listen_by(Transport::Tcp, address, port)
    }

    /// The same for either transport.
    ///
    /// # Errors
    /// When it does not listen within [`crate::wait::TIMEOUT`].
    pub fn listen_by(&self, transport: Transport, address: &str, port: u16) -> Result<Listener> {
        let listener = self.start_listening(transport, address, port)?;
        listener.wait()?;
        Ok(listener)
    }

    /// The same, without waiting until it listens.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_listening(&self, transport: Transport, address: &str, port: u16) -> Result<Listener> {
        let (family, host) = (family(address), bracketed(address));
        let listen = match transport {
            Transport::Tcp => format!("TCP{family}-LISTEN:{port},bind={host},reuseaddr,fork"),
            Transport::Udp => format!("UDP{family}-RECVFROM:{port},bind={host},reuseaddr,fork"),
        };
        let process = self.start_process(["socat", &listen, "SYSTEM:echo $SOCAT_PEERADDR"])?;
        Ok(Listener { node: self.clone(), transport, address: address.to_owned(), port, _process: process })
    }

    /// Connects to a [`Listener`] and returns the address that it saw; `None` when no connection came about in 1 s.
    ///
    /// # Errors
    /// When the attempt itself could not be made.
    pub fn seen_by(&self, address: &str, port: u16) -> Result<Option<String>> {
        Ok(match self.meets(Transport::Tcp, address, port)?.0 {
            Meeting::SeenAs(seen) => Some(seen),
            Meeting::Refused(_) | Meeting::Silence => None,
        })
    }

    /// Tries to reach a [`Listener`] within 1 s. Returns the result and the time, which includes about 20 ms for entering the node.
    ///
    /// # Errors
    /// When the attempt itself could not be made.
    pub fn meets(&self, transport: Transport, address: &str, port: u16) -> Result<(Meeting, Duration)> {
        let (family, host) = (family(address), bracketed(address));
        // One second, before the first retransmission. Callers that expect success retry.
        let begun = Instant::now();
        let output = match transport {
            Transport::Tcp => self.run([
                "socat",
                "-T1",
                "-u",
                &format!("TCP{family}:{host}:{port},connect-timeout=1"),
                "-",
            ])?,
            Transport::Udp => {
                let to = format!("UDP{family}:{host}:{port}");
                self.run_with_input(["socat", "-T1", "-t1", "-", &to], "?\n")?
            }
        };
        let took = begun.elapsed();
        let seen = output.stdout.trim();
        let silent =
            ["timed out", "Operation now in progress"].iter().any(|word| output.stderr.contains(word));
        let meeting = if !seen.is_empty() {
            Meeting::SeenAs(plain(seen))
        } else if output.stderr.trim().is_empty() || silent {
            Meeting::Silence
        } else {
            let words = output.stderr.trim().rsplit(": ").next().unwrap_or_default();
            Meeting::Refused(words.to_owned())
        };
        Ok((meeting, took))
    }

    /// Waits until a [`Listener`] sees this node come from `expected`.
    ///
    /// # Errors
    /// When it does not within [`crate::wait::TIMEOUT`]: neighbour entries need up to 3 s to be updated after a change.
    pub fn wait_seen_as(&self, expected: &str, address: &str, port: u16) -> Result<()> {
        self.wait_seen_by(Transport::Tcp, expected, address, port)
    }

    /// The same for either transport.
    ///
    /// # Errors
    /// As [`Node::wait_seen_as`].
    pub fn wait_seen_by(&self, transport: Transport, expected: &str, address: &str, port: u16) -> Result<()> {
        let mut last = None;
        wait_until(&format!("{address}:{port} sees {} as {expected}", self.name()), || {
            let meeting = self.meets(transport, address, port)?.0;
            let met = meeting == Meeting::SeenAs(expected.to_owned());
            last = Some(meeting);
            Ok(met)
        })
        .with_context(|| format!("last: {last:?}"))
    }

    /// Whether one of three echo requests, 0.1 s apart, is answered.
    ///
    /// # Errors
    /// When ping cannot be run.
    pub fn pings(&self, address: &str) -> Result<bool> {
        Ok(self.run(["ping", "-n", "-c3", "-i0.1", "-W0.5", address])?.success())
    }
}

impl Listener {
    /// Waits until it listens.
    ///
    /// # Errors
    /// When it does not within [`crate::wait::TIMEOUT`].
    pub fn wait(&self) -> Result<()> {
        let (address, port) = (&self.address, self.port);
        let filter = format!("src {}:{port}", bracketed(address));
        let sockets = match self.transport {
            Transport::Tcp => "-Hltn",
            Transport::Udp => "-Hlun",
        };
        wait_until(&format!("{} listens on {address}:{port}", self.node.name()), || {
            Ok(!self.node.run(["ss", sockets, &filter])?.stdout.trim().is_empty())
        })
    }
}

fn family(address: &str) -> char {
    if address.contains(':') { '6' } else { '4' }
}

fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

/// socat writes an IPv6 address in full, in brackets.
fn plain(address: &str) -> String {
    let bare = address.trim_matches(['[', ']']);
    bare.parse::<IpAddr>().map_or_else(|_| bare.to_owned(), |address| address.to_string())
}
