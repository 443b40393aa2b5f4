//! A builder of rules: matches first, then statements.

use std::net::IpAddr;

use common::netlink::nftables::expression::{
    Comparison, Ct, Direction, Expression, Header, Meta, Nat, Register, Reject,
};
use common::netlink::nftables::rule::{STATE_NEW, STATE_RELATED, STATUS_DNAT, interface_name};
use common::netlink::nftables::{Family, Verdict};

use super::set::Set;

/// IPPROTO_ICMP.
pub const ICMP: u8 = 1;
/// IPPROTO_TCP.
const TCP: u8 = 6;
/// Length of an Ethernet header, ETH_HLEN.
const ETHERNET: u32 = 14;
/// The first register, which all values are loaded to.
const R: Register = Register::FIRST;
/// IPPROTO_ICMPV6.
pub const ICMPV6: u8 = 58;

/// A rule of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The comment in `nft list ruleset`. At most [`common::netlink::nftables::comment::LIMIT`] bytes.
    pub comment: String,
    /// In the order in which the kernel runs them.
    pub expressions: Vec<Expression>,
}

impl Rule {
    /// A rule without matches and statements.
    #[must_use]
    pub fn new(comment: impl Into<String>) -> Self {
        Self { comment: comment.into(), expressions: Vec::with_capacity(8) }
    }

    fn with(mut self, expressions: impl IntoIterator<Item = Expression>) -> Self {
        self.expressions.extend(expressions);
        self
    }

    fn equals(self, load: Expression, bytes: impl Into<Vec<u8>>) -> Self {
        self.with([load, compare(Comparison::Equal, bytes)])
    }

    /// Any of `bits` is set in the four bytes that `load` loads.
    fn any_bit(self, load: Expression, bits: u32) -> Self {
        self.with([load, bitwise(bits, 0), compare(Comparison::NotEqual, 0_u32.to_ne_bytes())])
    }

    /// The input interface is `interface`.
    #[must_use]
    pub fn iifname(self, interface: &str) -> Self {
        self.equals(meta(Meta::InputName), interface_name(interface))
    }

    /// The output interface is `interface`.
    #[must_use]
    pub fn oifname(self, interface: &str) -> Self {
        self.equals(meta(Meta::OutputName), interface_name(interface))
    }

    /// Of this family.
    #[must_use]
    pub fn family(self, ipv6: bool) -> Self {
        self.equals(meta(Meta::Family), [family(ipv6).number()])
    }

    /// Of this family, if there is one.
    #[must_use]
    pub fn only_family(self, ipv6: Option<bool>) -> Self {
        match ipv6 {
            Some(ipv6) => self.family(ipv6),
            None => self,
        }
    }

    /// Of this transport protocol (IPPROTO_*).
    #[must_use]
    pub fn protocol(self, number: u8) -> Self {
        self.equals(meta(Meta::Protocol), [number])
    }

    /// To this port. After [`Self::protocol`], of TCP, UDP or SCTP.
    #[must_use]
    pub fn to_port(self, port: u16) -> Self {
        let load = payload(Header::Transport, 2, 2);
        self.equals(load, port.to_be_bytes())
    }

    /// An ICMPv6 message whose type is in `types`, to an address in `to`.
    #[must_use]
    pub fn icmpv6_in(self, types: &Set, to: &Set) -> Self {
        let message =
            self.family(true).protocol(ICMPV6).with([payload(Header::Transport, 0, 1), in_set(types)]);
        message.with([destination(true), in_set(to)])
    }

    /// The packet is in the original direction. Does not match packets without a connection.
    #[must_use]
    pub fn original_direction(self) -> Self {
        self.equals(ct(Ct::Direction), [Direction::Original.number()])
    }

    /// The packet is in the reply direction, including ICMP errors. Does not match packets without a connection.
    #[must_use]
    pub fn reply_direction(self) -> Self {
        self.equals(ct(Ct::Direction), [Direction::Reply.number()])
    }

    /// The packet is related to an existing connection, mostly an ICMP error.
    #[must_use]
    pub fn related(self) -> Self {
        self.any_bit(ct(Ct::State), STATE_RELATED)
    }

    /// The first tracked packet of a TCP connection is not its SYN: the connection is older than its tracking.
    #[must_use]
    pub fn mid_stream(self) -> Self {
        /// SYN, with and without ECE and CWR, which negotiate ECN.
        const OPENING: [u8; 2] = [0x02, 0xc2];
        let rule = self.any_bit(ct(Ct::State), STATE_NEW).protocol(TCP);
        OPENING.into_iter().fold(rule, |rule, flags| {
            let load = payload(Header::Transport, 13, 1);
            rule.with([load, compare(Comparison::NotEqual, [flags])])
        })
    }

    /// The connection has DNAT.
    #[must_use]
    pub fn dnat_applied(self) -> Self {
        self.any_bit(ct(Ct::Status), STATUS_DNAT)
    }

    /// The connection's mark equals `mark` in the bits of `mask`.
    #[must_use]
    pub fn ct_mark(self, mark: u32, mask: u32) -> Self {
        self.with([ct(Ct::Mark), bitwise(mask, 0), compare(Comparison::Equal, mark.to_ne_bytes())])
    }

    /// Any of the bits of `mask` is set in the connection's mark.
    #[must_use]
    pub fn ct_mark_any(self, mask: u32) -> Self {
        self.any_bit(ct(Ct::Mark), mask)
    }

    /// The destination is a local address of any interface.
    #[must_use]
    pub fn daddr_is_local(self) -> Self {
        /// RTN_LOCAL.
        const LOCAL: u32 = 2;
        self.equals(Expression::DestinationType { to: R }, LOCAL.to_ne_bytes())
    }

    /// To `address`.
    #[must_use]
    pub fn to(self, address: IpAddr) -> Self {
        let ipv6 = address.is_ipv6();
        self.family(ipv6).equals(destination(ipv6), octets(address))
    }

    /// Made by the kernel's IP stack, which gives each packet a route. Frames of packet sockets have none.
    #[must_use]
    pub fn routed(self) -> Self {
        self.with([meta(Meta::RouteClass), compare(Comparison::GreaterOrEqual, 0_u32.to_ne_bytes())])
    }

    /// An Ethernet frame of this type (ETH_P_*) with `value` at `offset` behind its header. A program may claim another type and another
    /// position of the next header for a frame that it makes, so both are read from the frame.
    #[must_use]
    pub fn frame(self, ether_type: u16, offset: u32, value: impl Into<Vec<u8>>) -> Self {
        let value = value.into();
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self.equals(payload(Header::Link, 12, 2), ether_type.to_be_bytes())
            .equals(payload(Header::Link, ETHERNET + offset, length), value)
    }

    /// Of such a frame: the value at `offset` is in `set`.
    #[must_use]
    pub fn frame_in(self, offset: u32, set: &Set) -> Self {
        self.with([payload(Header::Link, ETHERNET + offset, set.key.length()), in_set(set)])
    }

    /// To an address in `set`.
    #[must_use]
    pub fn daddr_in(self, set: &Set) -> Self {
        let ipv6 = set.ipv6();
        self.family(ipv6).with([destination(ipv6), in_set(set)])
    }

    /// Not from any of `addresses`. After [`Self::family`], which must be theirs.
    #[must_use]
    pub fn saddr_not_in(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        addresses.into_iter().fold(self, |rule, address| {
            rule.with([source(address.is_ipv6()), compare(Comparison::NotEqual, octets(address))])
        })
    }

    /// Not from a link-local address (fe80::/16, which is what of fe80::/10 interfaces use). After [`Self::family`]: IPv6.
    #[must_use]
    pub fn not_from_link_local(self) -> Self {
        let load = payload(Header::Network, 8, 2);
        self.with([load, compare(Comparison::NotEqual, [0xfe, 0x80])])
    }

    /// Sets the bits of `mask` in the connection's mark to those of `mark`.
    #[must_use]
    pub fn set_ct_mark(self, mark: u32, mask: u32) -> Self {
        self.with([ct(Ct::Mark), bitwise(!mask, mark), Expression::SetCtMark { from: R }])
    }

    /// Sets the bits of `mask` in the packet's mark to those of `mark`.
    #[must_use]
    pub fn set_mark(self, mark: u32, mask: u32) -> Self {
        self.with([meta(Meta::Mark), bitwise(!mask, mark), Expression::SetMark { from: R }])
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

    /// Accepts.
    #[must_use]
    pub fn accept(self) -> Self {
        self.with([Expression::Verdict(Verdict::Accept)])
    }

    /// Drops the packet without an error.
    #[must_use]
    pub fn drop(self) -> Self {
        self.with([Expression::Verdict(Verdict::Drop)])
    }

    /// Rejects with ICMP administratively prohibited.
    #[must_use]
    pub fn reject(self) -> Self {
        self.with([Expression::Reject(Reject::Prohibited)])
    }

    /// Rejects with a TCP reset.
    #[must_use]
    pub fn reset(self) -> Self {
        self.protocol(TCP).with([Expression::Reject(Reject::Reset)])
    }

    /// Jumps to `chain`.
    #[must_use]
    pub fn jump(self, chain: &'static str) -> Self {
        self.with([Expression::Verdict(Verdict::Jump(chain.into()))])
    }
}

fn family(ipv6: bool) -> Family {
    if ipv6 { Family::Ipv6 } else { Family::Ipv4 }
}

fn meta(key: Meta) -> Expression {
    Expression::Meta { to: R, key }
}

fn ct(key: Ct) -> Expression {
    Expression::Ct { to: R, key, direction: None }
}

fn payload(header: Header, offset: u32, length: u32) -> Expression {
    Expression::Payload { to: R, header, offset, length }
}

fn compare(comparison: Comparison, value: impl Into<Vec<u8>>) -> Expression {
    Expression::Compare { from: R, comparison, value: value.into() }
}

/// The number in the register becomes `(number & mask) ^ xor`.
fn bitwise(mask: u32, xor: u32) -> Expression {
    Expression::Bitwise { from: R, to: R, mask: mask.to_ne_bytes().into(), xor: xor.to_ne_bytes().into() }
}

fn in_set(set: &Set) -> Expression {
    Expression::InSet { from: R, set: set.name.into(), included: true }
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
    let (family, port) = (family(address.is_ipv6()), port.then(port_register));
    Expression::Nat { kind, family, address: Some(R), port }
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn source(ipv6: bool) -> Expression {
    let (offset, length) = if ipv6 { (8, 16) } else { (12, 4) };
    payload(Header::Network, offset, length)
}

fn destination(ipv6: bool) -> Expression {
    let (offset, length) = if ipv6 { (24, 16) } else { (16, 4) };
    payload(Header::Network, offset, length)
}
