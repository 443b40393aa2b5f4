//! A builder of rules: matches first, then statements, in the order in which the kernel executes them.
//!
//! [`Field`]s are for tables of family ip: no rule checks the IP version before it loads an IPv4 header. [`inet`] has the matches and
//! statements for tables of both versions.

use super::comment;
use super::expression::{Comparison, Ct, Direction, Expression, Header, Meta, Register, Reject};
use super::verdict::Verdict;
use crate::netlink::message::Message;

/// A rule of a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// NFTA_RULE_USERDATA. [`Self::comment`] sets it to a comment.
    pub userdata: Vec<u8>,
    /// In the order in which the kernel executes them.
    pub expressions: Vec<Expression>,
}

/// NF_CT_STATE_INVALID_BIT: a packet that is not part of a connection.
pub const STATE_INVALID: u32 = 1;
/// NF_CT_STATE_BIT(IP_CT_RELATED): mostly an ICMP error.
pub const STATE_RELATED: u32 = 4;
/// NF_CT_STATE_BIT(IP_CT_NEW).
pub const STATE_NEW: u32 = 8;
/// NF_CT_STATE_UNTRACKED_BIT.
pub const STATE_UNTRACKED: u32 = 64;
/// IPS_SRC_NAT: the connection has SNAT.
pub const STATUS_SNAT: u32 = 0x10;
/// IPS_DST_NAT: the connection has DNAT.
pub const STATUS_DNAT: u32 = 0x20;

/// The first register, which all values are loaded to.
const R: Register = Register::FIRST;

/// A field of an IPv4 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// ip saddr
    SourceAddress,
    /// ip daddr
    DestinationAddress,
    /// ip protocol
    Protocol,
    /// th sport: of TCP, UDP or SCTP.
    SourcePort,
    /// th dport: of TCP, UDP or SCTP.
    DestinationPort,
}

impl Field {
    /// Header, offset and length.
    fn place(self) -> (Header, u32, u32) {
        match self {
            Self::SourceAddress => (Header::Network, 12, 4),
            Self::DestinationAddress => (Header::Network, 16, 4),
            Self::Protocol => (Header::Network, 9, 1),
            Self::SourcePort => (Header::Transport, 0, 2),
            Self::DestinationPort => (Header::Transport, 2, 2),
        }
    }

    /// Loads the field.
    #[must_use]
    pub fn load(self, to: Register) -> Expression {
        let (header, offset, length) = self.place();
        Expression::Payload { to, header, offset, length }
    }
}

impl Rule {
    /// A rule without matches and statements.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the comment in `nft list ruleset`. At most [`comment::LIMIT`] bytes; the rest is cut.
    #[must_use]
    pub fn comment(mut self, comment: &str) -> Self {
        self.userdata = comment::encode(comment);
        self
    }

    /// Appends expressions.
    #[must_use]
    pub fn with(mut self, expressions: impl IntoIterator<Item = Expression>) -> Self {
        self.expressions.extend(expressions);
        self
    }

    /// The value that `load` loads to the first register compares to `value`.
    fn compare(self, load: Expression, comparison: Comparison, value: impl Into<Vec<u8>>) -> Self {
        self.with([load, Expression::Compare { comparison, value: value.into() }])
    }

    fn equals(self, load: Expression, value: impl Into<Vec<u8>>) -> Self {
        self.compare(load, Comparison::Equal, value)
    }

    fn ct(key: Ct) -> Expression {
        Expression::Ct { to: R, key, direction: None }
    }

    /// Keeps the bits of `mask` of the number in the first register, and inverts those of `xor`.
    fn bits(mask: u32, xor: u32) -> Expression {
        Expression::Bitwise { mask: mask.to_ne_bytes().into(), xor: xor.to_ne_bytes().into() }
    }

    /// The number that `load` loads equals `value` in the bits of `mask`.
    fn masked(self, load: Expression, value: u32, mask: u32) -> Self {
        let masked = (mask != u32::MAX).then(|| Self::bits(mask, 0));
        let value = value.to_ne_bytes().into();
        let compare = Expression::Compare { comparison: Comparison::Equal, value };
        self.with([load]).with(masked).with([compare])
    }

    /// Any of `bits` is set in the number that `load` loads.
    fn any_bit(self, load: Expression, bits: u32) -> Self {
        let value = 0_u32.to_ne_bytes().into();
        let compare = Expression::Compare { comparison: Comparison::NotEqual, value };
        self.with([load, Self::bits(bits, 0), compare])
    }

    /// The input interface is `name`.
    #[must_use]
    pub fn iifname(self, name: &str) -> Self {
        self.equals(Expression::Meta(Meta::InputName), interface_name(name))
    }

    /// The input interface is not `name`.
    #[must_use]
    pub fn iifname_not(self, name: &str) -> Self {
        self.compare(Expression::Meta(Meta::InputName), Comparison::NotEqual, interface_name(name))
    }

    /// The output interface is `name`.
    #[must_use]
    pub fn oifname(self, name: &str) -> Self {
        self.equals(Expression::Meta(Meta::OutputName), interface_name(name))
    }

    /// The packet is of this transport protocol (IPPROTO_*).
    #[must_use]
    pub fn l4proto(self, protocol: u8) -> Self {
        self.equals(Expression::Meta(Meta::Protocol), [protocol])
    }

    /// To `port`. After [`Self::l4proto`], of TCP, UDP or SCTP.
    #[must_use]
    pub fn dport(self, port: u16) -> Self {
        self.equals(Field::DestinationPort.load(R), port.to_be_bytes())
    }

    /// The TCP flags (SYN is 2, RST is 4, ACK is 16) equal `flags` in the bits of `mask`. After [`Self::l4proto`], of TCP.
    #[must_use]
    pub fn tcp_flags(self, flags: u8, mask: u8) -> Self {
        let load = Expression::Payload { to: R, header: Header::Transport, offset: 13, length: 1 };
        let masked = Expression::Bitwise { mask: vec![mask], xor: vec![0] };
        let compare = Expression::Compare { comparison: Comparison::Equal, value: vec![flags] };
        self.with([load, masked, compare])
    }

    /// The fields are in the set, whose key has their types in this order.
    #[must_use]
    pub fn in_set(self, fields: &[Field], set: &str) -> Self {
        self.load(fields).with([Expression::InSet { set: set.into(), included: true }])
    }

    /// The fields are not in the set, whose key has their types in this order.
    #[must_use]
    pub fn not_in_set(self, fields: &[Field], set: &str) -> Self {
        self.load(fields).with([Expression::InSet { set: set.into(), included: false }])
    }

    /// The connection has any of these states (`STATE_*`).
    #[must_use]
    pub fn ct_state(self, states: u32) -> Self {
        self.any_bit(Self::ct(Ct::State), states)
    }

    /// The packet has this direction of its connection. Does not match packets without a connection.
    #[must_use]
    pub fn ct_direction(self, direction: Direction) -> Self {
        self.equals(Self::ct(Ct::Direction), [direction as u8])
    }

    /// The connection has any of these status bits (`STATUS_*`, IPS_*).
    #[must_use]
    pub fn ct_status(self, bits: u32) -> Self {
        self.any_bit(Self::ct(Ct::Status), bits)
    }

    /// The connection's mark equals `mark` in the bits of `mask`.
    #[must_use]
    pub fn ct_mark(self, mark: u32, mask: u32) -> Self {
        self.masked(Self::ct(Ct::Mark), mark, mask)
    }

    /// Any of the bits of `mask` is set in the connection's mark.
    #[must_use]
    pub fn ct_mark_any(self, mask: u32) -> Self {
        self.any_bit(Self::ct(Ct::Mark), mask)
    }

    /// The destination of the connection's original direction, before DNAT, is in the set of IPv4 addresses.
    #[must_use]
    pub fn ct_original_daddr_in(self, set: &str) -> Self {
        let load = Expression::Ct { to: R, key: Ct::Ipv4Destination, direction: Some(Direction::Original) };
        self.with([load, Expression::InSet { set: set.into(), included: true }])
    }

    /// The destination is a local address of any interface.
    #[must_use]
    pub fn daddr_is_local(self) -> Self {
        /// RTN_LOCAL.
        const LOCAL: u32 = 2;
        self.equals(Expression::DestinationType, LOCAL.to_ne_bytes())
    }

    /// Counts the packets that match so far.
    #[must_use]
    pub fn counter(self) -> Self {
        self.with([Expression::Counter])
    }

    /// Executes the verdict of the fields from a verdict map, whose key has their types in this order. The rule ends if the map does not
    /// have them.
    #[must_use]
    pub fn vmap(self, fields: &[Field], map: &str) -> Self {
        self.load(fields).with([Expression::VerdictMap(map.into())])
    }

    /// Ends the rule with `verdict`.
    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Self {
        self.with([Expression::Verdict(verdict)])
    }

    /// Accepts the packet in this hook's chain.
    #[must_use]
    pub fn accept(self) -> Self {
        self.verdict(Verdict::Accept)
    }

    /// Drops the packet without an error.
    #[must_use]
    pub fn drop(self) -> Self {
        self.verdict(Verdict::Drop)
    }

    /// Jumps to a regular chain, and continues behind this rule when it ends.
    #[must_use]
    pub fn jump(self, chain: &str) -> Self {
        self.verdict(Verdict::Jump(chain.into()))
    }

    /// Continues in a regular chain, and returns to the caller of this chain when it ends.
    #[must_use]
    pub fn goto(self, chain: &str) -> Self {
        self.verdict(Verdict::Goto(chain.into()))
    }

    /// Returns to the calling chain.
    #[must_use]
    pub fn return_to_caller(self) -> Self {
        self.verdict(Verdict::Return)
    }

    /// Rejects the packet with an error to the sender.
    #[must_use]
    pub fn reject(self, reject: Reject) -> Self {
        self.with([Expression::Reject(reject)])
    }

    /// Loads fields to registers from the first one on, as a concatenation. Each field takes one register.
    #[must_use]
    pub fn load(mut self, fields: &[Field]) -> Self {
        let mut to = R;
        for field in fields {
            self.expressions.push(field.load(to));
            to = to.plus(1);
        }
        self
    }

    /// The comment in parentheses, for error messages.
    #[must_use]
    pub fn suffix(&self) -> String {
        comment::decode(&self.userdata).map(|comment| format!(" ({comment})")).unwrap_or_default()
    }

    /// Writes the attributes of NFT_MSG_NEWRULE behind the chain.
    pub fn write(&self, message: &mut Message) {
        // NFTA_RULE_EXPRESSIONS, _USERDATA.
        message.nest(4, |message| {
            self.expressions.iter().for_each(|expression| expression.write(message));
        });
        if !self.userdata.is_empty() {
            message.attribute(7, &self.userdata);
        }
    }
}

/// An interface's name as the kernel compares it: IFNAMSIZ bytes, padded with zeros.
#[must_use]
pub fn interface_name(name: &str) -> Vec<u8> {
    /// IFNAMSIZ.
    const SIZE: usize = 16;
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(SIZE, 0);
    bytes
}

pub mod inet;
mod translate;
