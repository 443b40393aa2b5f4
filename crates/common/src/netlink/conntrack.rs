//! Entries of the connection tracking table (ctnetlink; linux/netfilter/nfnetlink_conntrack.h).

use std::fmt;
use std::net::Ipv4Addr;

use super::error::Error;
use super::message::{Attribute, Malformed, Message, split};
use super::socket::Socket;

/// An IPv4 entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// CTA_TUPLE_ORIG: source and destination of the original direction.
    pub original: (Ipv4Addr, Ipv4Addr),
    /// CTA_TUPLE_REPLY: source and destination of the reply direction, which differ from the original's where there is NAT.
    pub reply: (Ipv4Addr, Ipv4Addr),
    /// IPPROTO_*.
    pub protocol: u8,
    /// Source and destination port of the original direction, of protocols with ports.
    pub ports: Option<(u16, u16)>,
    /// CTA_MARK.
    pub mark: u32,
    /// CTA_TUPLE_ORIG, CTA_ZONE and CTA_ID, raw, which identify the entry in a request.
    identity: Vec<(u16, Vec<u8>)>,
}

/// NFNL_SUBSYS_CTNETLINK.
const SUBSYSTEM: u16 = 1;
/// IPCTNL_MSG_CT_GET and IPCTNL_MSG_CT_DELETE.
const GET: u16 = 1;
const DELETE: u16 = 2;
/// CTA_*.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const MARK: u16 = 8;
const ID: u16 = 12;
const ZONE: u16 = 18;
/// CTA_TUPLE_*.
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
/// CTA_IP_V4_*.
const SOURCE: u16 = 1;
const DESTINATION: u16 = 2;
/// CTA_PROTO_*.
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// A message about IPv4 entries.
fn message(kind: u16) -> Message {
    /// AF_INET, in struct nfgenmsg.
    const INET: u8 = 2;
    Message::new(SUBSYSTEM << 8 | kind, 0, &[INET, 0, 0, 0])
}

#[derive(Debug, Default)]
struct Tuple {
    source: Option<Ipv4Addr>,
    destination: Option<Ipv4Addr>,
    protocol: u8,
    ports: (Option<u16>, Option<u16>),
}

impl Tuple {
    fn read(attribute: &Attribute<'_>) -> Result<Self, Malformed> {
        let mut tuple = Self::default();
        for outer in attribute.nested() {
            let outer = outer?;
            for inner in outer.nested().filter(|_| matches!(outer.kind, TUPLE_IP | TUPLE_PROTOCOL)) {
                let inner = inner?;
                match (outer.kind, inner.kind) {
                    (TUPLE_IP, SOURCE) => tuple.source = Some(inner.array::<4>()?.into()),
                    (TUPLE_IP, DESTINATION) => tuple.destination = Some(inner.array::<4>()?.into()),
                    (TUPLE_PROTOCOL, PROTOCOL_NUMBER) => tuple.protocol = inner.u8()?,
                    (TUPLE_PROTOCOL, SOURCE_PORT) => tuple.ports.0 = Some(u16::from_be_bytes(inner.array()?)),
                    (TUPLE_PROTOCOL, DESTINATION_PORT) => {
                        tuple.ports.1 = Some(u16::from_be_bytes(inner.array()?));
                    }
                    _ => {}
                }
            }
        }
        Ok(tuple)
    }

    fn addresses(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        self.source.zip(self.destination)
    }
}

impl Entry {
    /// Reads the payload of an IPCTNL_MSG_CT_NEW: none for families other than IPv4.
    ///
    /// # Errors
    /// It is malformed.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let (_, attributes) = split::<4>(payload)?;
        let (mut original, mut reply, mut mark) = (Tuple::default(), Tuple::default(), 0);
        let mut identity = Vec::with_capacity(3);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                ORIGINAL => original = Tuple::read(&attribute)?,
                REPLY => reply = Tuple::read(&attribute)?,
                MARK => mark = attribute.be32()?,
                _ => {}
            }
            if matches!(attribute.kind, ORIGINAL | ZONE | ID) {
                identity.push((attribute.raw_kind, attribute.payload.to_vec()));
            }
        }
        let Some(addresses) = original.addresses() else { return Ok(None) };
        let reply = reply.addresses().ok_or(Malformed("a conntrack entry without a reply tuple"))?;
        let ports = original.ports.0.zip(original.ports.1);
        Ok(Some(Self { original: addresses, reply, protocol: original.protocol, ports, mark, identity }))
    }

    /// Requests all IPv4 entries.
    #[must_use]
    pub fn all() -> Message {
        message(GET)
    }

    /// Deletes it. ENOENT if it has ended.
    #[must_use]
    pub fn delete(&self) -> Message {
        // A request without a tuple would delete all entries: every decoded entry has one.
        let mut message = message(DELETE);
        for (kind, payload) in &self.identity {
            message.attribute(*kind, payload);
        }
        message
    }
}

/// The IPv4 entries of the socket's namespace. The socket's protocol is [`super::socket::Protocol::Netfilter`].
///
/// # Errors
/// As [`Socket::dump`].
pub fn entries(socket: &mut Socket) -> Result<Vec<Entry>, Error> {
    let entries = socket.dump(&Entry::all(), |_, payload| Entry::decode(payload));
    entries.map_err(|error| error.during("listing the conntrack entries"))
}

/// Deletes the IPv4 entries that `is_stale` selects. Returns their number. Entries that end meanwhile are not counted.
///
/// # Errors
/// The kernel refuses; entries before may have been deleted.
pub fn delete(socket: &mut Socket, is_stale: impl Fn(&Entry) -> bool) -> Result<usize, Error> {
    let mut deleted = 0_usize;
    for entry in entries(socket)?.into_iter().filter(is_stale) {
        match socket.request(&entry.delete()) {
            Ok(()) => deleted = deleted.saturating_add(1),
            Err(error) if error.is(&[libc::ENOENT]) => {}
            Err(error) => return Err(error.during(format_args!("deleting the conntrack entry {entry}"))),
        }
    }
    Ok(deleted)
}

/// The original direction, as conntrack(8) writes it.
impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = self.original;
        write!(formatter, "proto={} src={source} dst={destination}", self.protocol)?;
        self.ports.map_or(Ok(()), |(from, to)| write!(formatter, " sport={from} dport={to}"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use proptest::prelude::*;

    use super::*;
    use crate::netlink::isolated::{ip, isolated, nft};
    use crate::netlink::socket::Protocol;

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = Entry::decode(&bytes);
            let _ = Entry::decode(&[&[2, 0, 0, 0], bytes.as_slice()].concat());
        }
    }

    #[test]
    fn entries_are_deleted_by_their_original_source_only() {
        isolated(|| {
            ip("link set lo up");
            ip("addr add 198.51.100.1/32 dev lo");
            // Rules with `ct` enable connection tracking in the namespace.
            nft(
                "add table inet t; add chain inet t c { type filter hook output priority 0; }; add rule inet t c ct state new ct mark set 7",
            );
            for source in ["127.0.0.1:4001", "127.0.0.1:4002", "198.51.100.1:4003"] {
                UdpSocket::bind(source).unwrap().send_to(b"x", "127.0.0.1:9").unwrap();
            }
            let mut socket = Socket::open(Protocol::Netfilter).unwrap();
            let all = entries(&mut socket).unwrap();
            assert_eq!(all.len(), 3, "{all:?}");
            assert!(all.iter().all(|entry| entry.mark == 7 && entry.protocol == 17));
            let loopback = Ipv4Addr::LOCALHOST;
            let some: Vec<_> = all.iter().filter(|entry| entry.original.0 == loopback).collect();
            assert_eq!(some.len(), 2, "{some:?}");
            assert_eq!(delete(&mut socket, |entry| entry.original.0 == loopback).unwrap(), 2);
            let rest = entries(&mut socket).unwrap();
            assert_eq!(rest.len(), 1);
            assert_eq!(rest[0].to_string(), "proto=17 src=198.51.100.1 dst=127.0.0.1 sport=4003 dport=9");
            assert_eq!(rest[0].reply, (loopback, Ipv4Addr::new(198, 51, 100, 1)));
            assert_eq!(delete(&mut socket, |entry| entry.original.0 == loopback).unwrap(), 0);
        });
    }
}
