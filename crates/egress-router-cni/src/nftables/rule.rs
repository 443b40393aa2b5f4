//! A builder of rules: matches first, then statements.

use std::net::IpAddr;

use super::expression::{Connection, End, Expression, Header, Meta, Refusal, Verdict, family};
use super::set::Set;

/// IPPROTO_ICMP.
pub const ICMP: u8 = 1;
/// IPPROTO_TCP.
const TCP: u8 = 6;
/// IPPROTO_ICMPV6.
pub const ICMPV6: u8 = 58;

/// A rule of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The comment in `nft list ruleset`. At most [`super::comment::LIMIT`] bytes.
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
        self.with([load, Expression::Compare { equal: true, bytes: bytes.into() }])
    }

    /// Any of `bits` is set in the four bytes that `load` loads.
    fn any_bit(self, load: Expression, bits: u32) -> Self {
        let none = 0_u32.to_ne_bytes().to_vec();
        let compare = Expression::Compare { equal: false, bytes: none };
        self.with([load, Expression::Bitwise { mask: bits, xor: 0 }, compare])
    }

    /// The input interface is `interface`.
    #[must_use]
    pub fn iifname(self, interface: &str) -> Self {
        self.equals(Expression::Meta(Meta::InputName), padded(interface))
    }

    /// The output interface is `interface`.
    #[must_use]
    pub fn oifname(self, interface: &str) -> Self {
        self.equals(Expression::Meta(Meta::OutputName), padded(interface))
    }

    /// Of this family.
    #[must_use]
    pub fn family(self, ipv6: bool) -> Self {
        self.equals(Expression::Meta(Meta::Family), [family(ipv6)])
    }

    /// Of this transport protocol (IPPROTO_*).
    #[must_use]
    pub fn protocol(self, number: u8) -> Self {
        self.equals(Expression::Meta(Meta::Protocol), [number])
    }

    /// To this port. After [`Self::protocol`], of TCP, UDP or SCTP.
    #[must_use]
    pub fn to_port(self, port: u16) -> Self {
        let load = Expression::Payload { header: Header::Transport, offset: 2, length: 2 };
        self.equals(load, port.to_be_bytes())
    }

    /// An ICMPv6 message whose type is in `types`.
    #[must_use]
    pub fn icmpv6_type_in(self, types: &Set) -> Self {
        self.family(true).protocol(ICMPV6).with([
            Expression::Payload { header: Header::Transport, offset: 0, length: 1 },
            Expression::Lookup(types.name),
        ])
    }

    /// The packet is in the original direction. Does not match packets without a connection.
    #[must_use]
    pub fn original_direction(self) -> Self {
        self.equals(Expression::Connection(Connection::Direction), [0])
    }

    /// The packet is in the reply direction, including ICMP errors. Does not match packets without a connection.
    #[must_use]
    pub fn reply_direction(self) -> Self {
        self.equals(Expression::Connection(Connection::Direction), [1])
    }

    /// The packet is related to an existing connection, mostly an ICMP error.
    #[must_use]
    pub fn related(self) -> Self {
        /// NF_CT_STATE_BIT(IP_CT_RELATED).
        const RELATED: u32 = 4;
        self.any_bit(Expression::Connection(Connection::State), RELATED)
    }

    /// The first tracked packet of a TCP connection is not its SYN: the connection is older than its tracking.
    #[must_use]
    pub fn mid_stream(self) -> Self {
        /// NF_CT_STATE_BIT(IP_CT_NEW).
        const NEW: u32 = 8;
        /// SYN, with and without ECE and CWR, which negotiate ECN.
        const OPENING: [u8; 2] = [0x02, 0xc2];
        let rule = self.any_bit(Expression::Connection(Connection::State), NEW).protocol(TCP);
        OPENING.into_iter().fold(rule, |rule, flags| {
            let load = Expression::Payload { header: Header::Transport, offset: 13, length: 1 };
            rule.with([load, Expression::Compare { equal: false, bytes: vec![flags] }])
        })
    }

    /// The connection has DNAT.
    #[must_use]
    pub fn dnat_applied(self) -> Self {
        /// IPS_DST_NAT.
        const DESTINATION: u32 = 0x20;
        self.any_bit(Expression::Connection(Connection::Status), DESTINATION)
    }

    /// The connection's mark equals `mark` in the bits of `mask`.
    #[must_use]
    pub fn ct_mark(self, mark: u32, mask: u32) -> Self {
        self.with([
            Expression::Connection(Connection::Mark),
            Expression::Bitwise { mask, xor: 0 },
            Expression::Compare { equal: true, bytes: mark.to_ne_bytes().to_vec() },
        ])
    }

    /// Any of the bits of `mask` is set in the connection's mark.
    #[must_use]
    pub fn ct_mark_any(self, mask: u32) -> Self {
        self.any_bit(Expression::Connection(Connection::Mark), mask)
    }

    /// The destination is a local address of any interface.
    #[must_use]
    pub fn daddr_is_local(self) -> Self {
        /// RTN_LOCAL.
        const LOCAL: u32 = 2;
        self.equals(Expression::DestinationKind, LOCAL.to_ne_bytes())
    }

    /// To `address`.
    #[must_use]
    pub fn to(self, address: IpAddr) -> Self {
        let ipv6 = address.is_ipv6();
        self.family(ipv6).equals(destination(ipv6), octets(address))
    }

    /// To an address in `set`.
    #[must_use]
    pub fn daddr_in(self, set: &Set) -> Self {
        let ipv6 = set.ipv6();
        self.family(ipv6).with([destination(ipv6), Expression::Lookup(set.name)])
    }

    /// Not from any of `addresses`. After [`Self::family`], which must be theirs.
    #[must_use]
    pub fn saddr_not_in(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        addresses.into_iter().fold(self, |rule, address| {
            let compare = Expression::Compare { equal: false, bytes: octets(address) };
            rule.with([source(address.is_ipv6()), compare])
        })
    }

    /// Not from a link-local address (fe80::/16, which is what of fe80::/10 interfaces use). After [`Self::family`]: IPv6.
    #[must_use]
    pub fn not_from_link_local(self) -> Self {
        let load = Expression::Payload { header: Header::Network, offset: 8, length: 2 };
        self.with([load, Expression::Compare { equal: false, bytes: vec![0xfe, 0x80] }])
    }

    /// Sets the bits of `mask` in the connection's mark to those of `mark`.
    #[must_use]
    pub fn set_ct_mark(self, mark: u32, mask: u32) -> Self {
        self.with([
            Expression::Connection(Connection::Mark),
            Expression::Bitwise { mask: !mask, xor: mark },
            Expression::SetConnectionMark,
        ])
    }

    /// Sets the bits of `mask` in the packet's mark to those of `mark`.
    #[must_use]
    pub fn set_mark(self, mark: u32, mask: u32) -> Self {
        self.with([
            Expression::Meta(Meta::Mark),
            Expression::Bitwise { mask: !mask, xor: mark },
            Expression::SetMark,
        ])
    }

    /// DNAT to `address`; without `port`, to the same port.
    #[must_use]
    pub fn dnat(self, address: IpAddr, port: Option<u16>) -> Self {
        let nat = Expression::Nat { end: End::Destination, ipv6: address.is_ipv6(), port: port.is_some() };
        self.with([Expression::Address(address)]).with(port.map(Expression::Port)).with([nat])
    }

    /// SNAT to `address`.
    #[must_use]
    pub fn snat(self, address: IpAddr) -> Self {
        let nat = Expression::Nat { end: End::Source, ipv6: address.is_ipv6(), port: false };
        self.with([Expression::Address(address), nat])
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
        self.with([Expression::Reject(Refusal::Prohibited)])
    }

    /// Rejects with a TCP reset.
    #[must_use]
    pub fn reset(self) -> Self {
        self.protocol(TCP).with([Expression::Reject(Refusal::Reset)])
    }

    /// Jumps to `chain`.
    #[must_use]
    pub fn jump(self, chain: &'static str) -> Self {
        self.with([Expression::Verdict(Verdict::Jump(chain))])
    }

    /// Returns to the calling chain.
    #[must_use]
    pub fn return_to_caller(self) -> Self {
        self.with([Expression::Verdict(Verdict::Return)])
    }
}

/// An interface's name as the kernel compares it: IFNAMSIZ bytes, padded with zeros.
fn padded(interface: &str) -> Vec<u8> {
    /// IFNAMSIZ.
    const SIZE: usize = 16;
    let mut bytes = interface.as_bytes().to_vec();
    bytes.resize(SIZE, 0);
    bytes
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn source(ipv6: bool) -> Expression {
    let (offset, length) = if ipv6 { (8, 16) } else { (12, 4) };
    Expression::Payload { header: Header::Network, offset, length }
}

fn destination(ipv6: bool) -> Expression {
    let (offset, length) = if ipv6 { (24, 16) } else { (16, 4) };
    Expression::Payload { header: Header::Network, offset, length }
}
