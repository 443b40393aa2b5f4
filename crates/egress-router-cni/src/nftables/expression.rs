//! The kernel's expressions that the firewall uses (linux/netfilter/nf_tables.h).
//!
//! Values are loaded to register 1 and used from there; only the port of `nat` is in register 2. So a rule reads from left to right, as
//! nft(8) writes it.

use std::net::IpAddr;

use common::netlink::message::Message;

/// NFT_REG_VERDICT.
const VERDICT: u32 = 0;
/// NFT_REG_1.
const FIRST: u32 = 1;
/// NFT_REG_2.
const SECOND: u32 = 2;

/// An expression of a rule. The rule ends if a comparison or lookup fails, or if a packet does not have the loaded value (a connection, a
/// header).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    /// Loads metadata of the packet.
    Meta(Meta),
    /// Writes the packet's mark.
    SetMark,
    /// Loads a value of the packet's connection.
    Connection(Connection),
    /// Writes the connection's mark.
    SetConnectionMark,
    /// Loads `length` bytes (up to 16) of a header, in network order.
    Payload {
        /// The header that the bytes are loaded from.
        header: Header,
        /// From its start, in bytes.
        offset: u32,
        /// In bytes.
        length: u32,
    },
    /// Loads the type (RTN_*) of the destination address, for any interface.
    DestinationKind,
    /// The value becomes `(value & mask) ^ xor`; all are numbers of four bytes.
    Bitwise {
        /// Bits of the value that stay; the others become zero.
        mask: u32,
        /// Bits that are inverted after the mask was applied.
        xor: u32,
    },
    /// Compares the value with these bytes.
    Compare {
        /// Whether it must be equal or different.
        equal: bool,
        /// As in the register: network order for packet data, host order for marks and states.
        bytes: Vec<u8>,
    },
    /// The value must be in the set of this name.
    Lookup(&'static str),
    /// Loads an address, for [`Expression::Nat`].
    Address(IpAddr),
    /// Loads a port into register 2, for [`Expression::Nat`].
    Port(u16),
    /// Translates the connection's address.
    Nat {
        /// SNAT or DNAT.
        end: End,
        /// The family of the address in register 1.
        ipv6: bool,
        /// A port is in register 2.
        port: bool,
    },
    /// Rejects the packet with an error to the sender.
    Reject(Refusal),
    /// The verdict.
    Verdict(Verdict),
}

/// nft_meta_keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// The packet's mark: four bytes in host order.
    Mark,
    /// Name of the input interface: 16 bytes, padded with zeros.
    InputName,
    /// Name of the output interface: 16 bytes, padded with zeros.
    OutputName,
    /// NFPROTO_IPV4 or NFPROTO_IPV6: one byte.
    Family,
    /// IPPROTO_*, behind extension headers: one byte.
    Protocol,
}

/// nft_ct_keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// Bits: four bytes, the machine's order.
    State,
    /// 0: original direction; 1: reply direction. One byte.
    Direction,
    /// IPS_*: four bytes, the machine's order.
    Status,
    /// Four bytes, the machine's order.
    Mark,
}

/// nft_payload_bases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// IPv4's or IPv6's.
    Network,
    /// TCP's, UDP's, ICMP's …
    Transport,
}

/// nft_nat_types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// NFT_NAT_SNAT.
    Source,
    /// NFT_NAT_DNAT.
    Destination,
}

/// nft_reject_types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// ICMP or ICMPv6: administratively prohibited.
    Prohibited,
    /// TCP's reset; only where the protocol is TCP.
    Reset,
}

/// nft_verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// NF_ACCEPT: later chains of the hook still decide.
    Accept,
    /// NF_DROP.
    Drop,
    /// NFT_JUMP: to a chain of the same table, and back.
    Jump(&'static str),
    /// NFT_RETURN.
    Return,
}

impl Expression {
    /// NFTA_EXPR_NAME.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Meta(_) | Self::SetMark => "meta",
            Self::Connection(_) | Self::SetConnectionMark => "ct",
            Self::Payload { .. } => "payload",
            Self::DestinationKind => "fib",
            Self::Bitwise { .. } => "bitwise",
            Self::Compare { .. } => "cmp",
            Self::Lookup(_) => "lookup",
            Self::Address(_) | Self::Port(_) | Self::Verdict(_) => "immediate",
            Self::Nat { .. } => "nat",
            Self::Reject(_) => "reject",
        }
    }

    /// Writes NFTA_LIST_ELEM: name and data. Defaults are written explicitly, so that an observed expression can be compared.
    pub fn write(&self, message: &mut Message) {
        /// NFTA_LIST_ELEM.
        const ELEMENT: u16 = 1;
        /// NFTA_EXPR_NAME.
        const NAME: u16 = 1;
        /// NFTA_EXPR_DATA.
        const DATA: u16 = 2;
        message.nest(ELEMENT, |message| {
            message.string(NAME, self.name()).nest(DATA, |message| self.data(message));
        });
    }

    fn data(&self, message: &mut Message) {
        match self {
            // NFTA_META_DREG, _KEY, _SREG.
            Self::Meta(key) => message.be32(1, FIRST).be32(2, key.number()),
            Self::SetMark => message.be32(2, Meta::Mark.number()).be32(3, FIRST),
            // NFTA_CT_DREG, _KEY, _SREG.
            Self::Connection(key) => message.be32(1, FIRST).be32(2, key.number()),
            Self::SetConnectionMark => message.be32(2, Connection::Mark.number()).be32(4, FIRST),
            // NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN.
            Self::Payload { header, offset, length } => {
                message.be32(1, FIRST).be32(2, header.number()).be32(3, *offset).be32(4, *length)
            }
            // NFTA_FIB_DREG, _RESULT (NFT_FIB_RESULT_ADDRTYPE), _FLAGS (NFTA_FIB_F_DADDR).
            Self::DestinationKind => message.be32(1, FIRST).be32(2, 3).be32(3, 2),
            // NFTA_BITWISE_SREG, _DREG, _LEN, _MASK, _XOR, _OP (NFT_BITWISE_MASK_XOR). A kernel before 5.6 knows no _OP and
            // skips it: that is the only operation it has.
            Self::Bitwise { mask, xor } => {
                message.be32(1, FIRST).be32(2, FIRST).be32(3, 4);
                value(message, 4, &mask.to_ne_bytes());
                value(message, 5, &xor.to_ne_bytes());
                message.be32(6, 0)
            }
            // NFTA_CMP_SREG, _OP (NFT_CMP_EQ, NFT_CMP_NEQ), _DATA.
            Self::Compare { equal, bytes } => {
                message.be32(1, FIRST).be32(2, u32::from(!equal));
                value(message, 3, bytes)
            }
            // NFTA_LOOKUP_SET, _SREG, _FLAGS (not NFT_LOOKUP_F_INV).
            Self::Lookup(set) => message.string(1, set).be32(2, FIRST).be32(5, 0),
            // NFTA_IMMEDIATE_DREG, _DATA.
            Self::Address(IpAddr::V4(address)) => value(message.be32(1, FIRST), 2, &address.octets()),
            Self::Address(IpAddr::V6(address)) => value(message.be32(1, FIRST), 2, &address.octets()),
            Self::Port(port) => value(message.be32(1, SECOND), 2, &port.to_be_bytes()),
            Self::Verdict(verdict) => message.be32(1, VERDICT).nest(2, |message| verdict.write(message)),
            Self::Nat { end, ipv6, port } => nat(message, *end, *ipv6, *port),
            // NFTA_REJECT_TYPE (NFT_REJECT_TCP_RST, NFT_REJECT_ICMPX_UNREACH), _ICMP_CODE (NFT_REJECT_ICMPX_ADMIN_PROHIBITED).
            Self::Reject(Refusal::Reset) => message.be32(1, 1),
            Self::Reject(Refusal::Prohibited) => message.be32(1, 2).u8(2, 3),
        };
    }
}

/// NFTA_DATA_VALUE in the attribute `kind`.
fn value<'a>(message: &'a mut Message, kind: u16, bytes: &[u8]) -> &'a mut Message {
    message.nest(kind, |message| {
        message.attribute(1, bytes);
    })
}

/// NFTA_NAT_TYPE, _FAMILY, _REG_ADDR_MIN, _REG_PROTO_MIN, _FLAGS.
fn nat(message: &mut Message, end: End, ipv6: bool, port: bool) -> &mut Message {
    /// NF_NAT_RANGE_MAP_IPS.
    const ADDRESS: u32 = 1;
    /// NF_NAT_RANGE_PROTO_SPECIFIED.
    const PORT: u32 = 2;
    message.be32(1, if end == End::Destination { 1 } else { 0 });
    message.be32(2, family(ipv6).into()).be32(3, FIRST);
    if port { message.be32(5, SECOND).be32(7, ADDRESS | PORT) } else { message.be32(7, ADDRESS) }
}

/// NFPROTO_IPV6 or NFPROTO_IPV4.
#[must_use]
pub fn family(ipv6: bool) -> u8 {
    if ipv6 { 10 } else { 2 }
}

impl Meta {
    fn number(self) -> u32 {
        match self {
            Self::Mark => 3,
            Self::InputName => 6,
            Self::OutputName => 7,
            Self::Family => 15,
            Self::Protocol => 16,
        }
    }
}

impl Connection {
    fn number(self) -> u32 {
        match self {
            Self::State => 0,
            Self::Direction => 1,
            Self::Status => 2,
            Self::Mark => 3,
        }
    }
}

impl Header {
    fn number(self) -> u32 {
        match self {
            Self::Network => 1,
            Self::Transport => 2,
        }
    }
}

impl Verdict {
    /// NFTA_DATA_VERDICT: NFTA_VERDICT_CODE and, for a jump, NFTA_VERDICT_CHAIN.
    fn write(self, message: &mut Message) {
        let code: i32 = match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Jump(_) => -3,
            Self::Return => -5,
        };
        message.nest(2, |message| {
            message.be32(1, code.cast_unsigned());
            if let Self::Jump(chain) = self {
                message.string(2, chain);
            }
        });
    }
}
