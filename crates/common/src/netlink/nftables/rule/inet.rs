//! Matches and statements for tables of the families inet and netdev. Their chains see packets of both IPv4 and IPv6, so a rule has to match
//! the family first.

use std::net::IpAddr;

use super::{R, Rule, STATE_NEW};
use crate::netlink::address::octets;
use crate::netlink::nftables::Family;
use crate::netlink::nftables::expression::{Comparison, Expression, Header, Meta, Nat, Register, Reject};

/// IPPROTO_ICMP.
pub const ICMP: u8 = 1;
/// IPPROTO_TCP.
const TCP: u8 = 6;
/// IPPROTO_ICMPV6.
pub const ICMPV6: u8 = 58;
/// Length of an Ethernet header, ETH_HLEN.
const ETHERNET: u32 = 14;

impl Rule {
    /// Of this family.
    #[must_use]
    pub fn family(self, ipv6: bool) -> Self {
        self.equals(Expression::Meta(Meta::Family), [family(ipv6).number()])
    }

    /// Of this family, if there is one.
    #[must_use]
    pub fn only_family(self, ipv6: Option<bool>) -> Self {
        match ipv6 {
            Some(ipv6) => self.family(ipv6),
            None => self,
        }
    }

    /// To `address`.
    #[must_use]
    pub fn daddr(self, address: IpAddr) -> Self {
        let ipv6 = address.is_ipv6();
        self.family(ipv6).equals(destination(ipv6), octets(address))
    }

    /// To an address in `set`, which has addresses of this family.
    #[must_use]
    pub fn daddr_in(self, ipv6: bool, set: &str) -> Self {
        self.family(ipv6).with([destination(ipv6), in_set(set)])
    }

    /// Not from any of `addresses`. After [`Self::family`], which must be theirs.
    #[must_use]
    pub fn saddr_not_in(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        addresses.into_iter().fold(self, |rule, address| {
            rule.compare(source(address.is_ipv6()), Comparison::NotEqual, octets(address))
        })
    }

    /// Not from a link-local address (fe80::/16, which is what of fe80::/10 interfaces use). After [`Self::family`]: IPv6.
    #[must_use]
    pub fn not_from_link_local(self) -> Self {
        self.compare(payload(Header::Network, 8, 2), Comparison::NotEqual, [0xfe, 0x80])
    }

    /// The packet is an ICMPv6 message. Its type is in the set `types`, and its destination is in the set `to`.
    #[must_use]
    pub fn icmpv6_in(self, types: &str, to: &str) -> Self {
        let message =
            self.family(true).l4proto(ICMPV6).with([payload(Header::Transport, 0, 1), in_set(types)]);
        message.with([destination(true), in_set(to)])
    }

    /// The first tracked packet of a TCP connection is not its SYN: the connection is older than its tracking.
    #[must_use]
    pub fn mid_stream(self) -> Self {
        /// SYN, with and without ECE and CWR, which negotiate ECN.
        const OPENING: [u8; 2] = [0x02, 0xc2];
        let rule = self.ct_state(STATE_NEW).l4proto(TCP);
        OPENING.into_iter().fold(rule, |rule, flags| {
            rule.compare(payload(Header::Transport, 13, 1), Comparison::NotEqual, [flags])
        })
    }

    /// Made by the kernel's IP stack, which gives each packet a route. Frames of packet sockets have none.
    #[must_use]
    pub fn routed(self) -> Self {
        self.compare(Expression::Meta(Meta::RouteClass), Comparison::GreaterOrEqual, 0_u32.to_ne_bytes())
    }

    /// An Ethernet frame of this type (ETH_P_*) with `value` at `offset` behind its header. A program may claim another type and another
    /// position of the next header for a frame that it makes, so both are read from the frame.
    #[must_use]
    pub fn frame(self, ether_type: u16, offset: u32, value: impl Into<Vec<u8>>) -> Self {
        let value = value.into();
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self.equals(payload(Header::Link, 12, 2), ether_type.to_be_bytes())
            .equals(payload(Header::Link, ETHERNET.saturating_add(offset), length), value)
    }

    /// Of such a frame: the address of this family at `offset` is in `set`.
    #[must_use]
    pub fn frame_in(self, offset: u32, ipv6: bool, set: &str) -> Self {
        let length = if ipv6 { 16 } else { 4 };
        self.with([payload(Header::Link, ETHERNET.saturating_add(offset), length), in_set(set)])
    }

    /// DNAT to `address`; without `port`, to the same port.
    #[must_use]
    pub fn dnat(self, address: IpAddr, port: Option<u16>) -> Self {
        let load = |port: u16| immediate(port_register(), port.to_be_bytes());
        let nat = nat(Nat::Destination, address, port.is_some());
        self.with([immediate(R, octets(address))]).with(port.map(load)).with([nat])
    }

    /// SNAT to `address`.
    #[must_use]
    pub fn snat(self, address: IpAddr) -> Self {
        self.with([immediate(R, octets(address)), nat(Nat::Source, address, false)])
    }

    /// Rejects TCP with a reset.
    #[must_use]
    pub fn reset(self) -> Self {
        self.l4proto(TCP).reject(Reject::Reset)
    }
}

fn family(ipv6: bool) -> Family {
    if ipv6 { Family::Ipv6 } else { Family::Ipv4 }
}

fn payload(header: Header, offset: u32, length: u32) -> Expression {
    Expression::Payload { to: R, header, offset, length }
}

fn source(ipv6: bool) -> Expression {
    let (offset, length) = if ipv6 { (8, 16) } else { (12, 4) };
    payload(Header::Network, offset, length)
}

fn destination(ipv6: bool) -> Expression {
    let (offset, length) = if ipv6 { (24, 16) } else { (16, 4) };
    payload(Header::Network, offset, length)
}

fn in_set(set: &str) -> Expression {
    Expression::InSet { set: set.into(), included: true }
}

fn immediate(to: Register, value: impl Into<Vec<u8>>) -> Expression {
    Expression::Immediate { to, value: value.into() }
}

/// The register of the port: an IPv6 address takes four before it.
fn port_register() -> Register {
    R.plus(4)
}

/// The translation to an address of this family in the first register and, with `port`, to the port in its register.
fn nat(kind: Nat, address: IpAddr, port: bool) -> Expression {
    Expression::Nat { kind, family: family(address.is_ipv6()), port: port.then(port_register) }
}
