//! The kernel's expressions (linux/netfilter/nf_tables.h, NFTA_*_ATTRIBUTES).

use super::Family;
use super::verdict::Verdict;
use crate::netlink::message::Message;

mod encode;

/// A register of four bytes. A value that is longer also uses those behind it. A value of one to three bytes is at the register's start, and
/// the rest is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register(u8);

impl Register {
    /// The number of registers.
    const COUNT: u8 = 16;
    /// The first one: the default of all builders.
    pub const FIRST: Self = Self(0);

    /// The register `count` registers behind this one. The last one if there are not so many; the kernel refuses values that do not fit.
    #[must_use]
    pub fn plus(self, count: u8) -> Self {
        Self(self.0.saturating_add(count).min(Self::COUNT.saturating_sub(1)))
    }

    /// NFT_REG_* and NFT_REG32_*, as the kernel writes it: every fourth one has a number of the older registers of 16 bytes.
    #[must_use]
    pub fn number(self) -> u32 {
        if self.0.is_multiple_of(4) {
            u32::from(self.0 / 4).saturating_add(1)
        } else {
            u32::from(self.0).saturating_add(8)
        }
    }
}

/// An expression of a rule. The rule ends if a comparison or lookup does not match, or if a packet does not have the loaded value
/// (a connection, a header).
///
/// "The value" is in the first register, and in those behind it if it is longer. A result replaces it. Only parts of a concatenation and a
/// port are loaded to other registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    /// Loads bytes of a header, in network order.
    Payload {
        /// Where they are loaded to.
        to: Register,
        /// The header.
        header: Header,
        /// From the header's start, in bytes.
        offset: u32,
        /// In bytes.
        length: u32,
    },
    /// Loads metadata of the packet.
    Meta(Meta),
    /// Sets the packet's mark to the value.
    SetMark,
    /// Loads a value of the packet's connection.
    Ct {
        /// Where it is loaded to.
        to: Register,
        /// The value.
        key: Ct,
        /// The direction of the addresses; none for the others.
        direction: Option<Direction>,
    },
    /// Sets the connection's mark to the value.
    SetCtMark,
    /// The value must compare to these bytes.
    Compare {
        /// The comparison.
        comparison: Comparison,
        /// As in the register: network order for packet data, host order for marks and states.
        value: Vec<u8>,
    },
    /// The value becomes `(value & mask) ^ xor`. Both have the value's length.
    Bitwise {
        /// Bits of the value that stay; the others become zero.
        mask: Vec<u8>,
        /// Bits that are inverted after the mask was applied.
        xor: Vec<u8>,
    },
    /// Converts a number of two bytes from host to network order.
    HostToNetwork16,
    /// The value must be in a set, or must not.
    InSet {
        /// Name of the set.
        set: String,
        /// The value must be in the set. False: it must not.
        included: bool,
    },
    /// Loads the data of the value from the map of this name. The rule ends if the map does not have the value.
    FromMap(String),
    /// Executes the verdict of the value from the verdict map of this name. The rule ends if the map does not have the value.
    VerdictMap(String),
    /// Loads a constant.
    Immediate {
        /// Where it is loaded to.
        to: Register,
        /// The bytes.
        value: Vec<u8>,
    },
    /// Ends the rule with a verdict.
    Verdict(Verdict),
    /// Jenkins' hash of the value: `jhash(value, seed) * modulus / 2^32`, a number of four bytes in host order. It is the same on all
    /// machines with the same byte order.
    Hash {
        /// Length of the value in bytes.
        length: u32,
        /// The number of different results, at least 1.
        modulus: u32,
        /// The seed.
        seed: u32,
    },
    /// Translates the connection's source or destination to the address that the value begins with. Only in chains of type nat; the rest of
    /// the rule is not executed.
    Nat {
        /// SNAT or DNAT.
        kind: Nat,
        /// The family of the address: IPv4 or IPv6.
        family: Family,
        /// The register with the port; if one is given.
        port: Option<Register>,
    },
    /// Loads the type (RTN_*) of the destination address, for any interface: four bytes in host order.
    DestinationType,
    /// Counts packets and bytes.
    Counter,
    /// Rejects the packet with an error to the sender.
    Reject(Reject),
    /// Loads the largest MSS that the route of the packet allows: two bytes in host order.
    RouteMss,
    /// Sets the MSS option of a TCP SYN to the value: two bytes in network order. The kernel only lowers it.
    SetMss,
}

/// nft_payload_bases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Ethernet's.
    Link = 0,
    /// IPv4's or IPv6's.
    Network = 1,
    /// TCP's, UDP's, ICMP's …
    Transport = 2,
}

/// nft_meta_keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// The packet's mark: four bytes in host order.
    Mark = 3,
    /// Name of the input interface: 16 bytes, padded with zeros.
    InputName = 6,
    /// Name of the output interface: 16 bytes, padded with zeros.
    OutputName = 7,
    /// The class of the packet's route: four bytes in host order. The rule does not match a packet without a route.
    RouteClass = 13,
    /// NFPROTO_IPV4 or NFPROTO_IPV6: one byte.
    Family = 15,
    /// IPPROTO_*, behind extension headers: one byte.
    Protocol = 16,
}

/// nft_ct_keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ct {
    /// Bits of [`super::rule::STATE_NEW`] and the like: four bytes in host order.
    State = 0,
    /// A [`Direction`]: one byte.
    Direction = 1,
    /// IPS_*: four bytes in host order.
    Status = 2,
    /// Four bytes in host order.
    Mark = 3,
    /// Source address of a direction: four bytes.
    Ipv4Source = 19,
    /// Destination address of a direction: four bytes.
    Ipv4Destination = 20,
}

/// ip_conntrack_dir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// That of the connection's first packet.
    Original = 0,
    /// That of its replies.
    Reply = 1,
}

/// nft_cmp_ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// NFT_CMP_EQ.
    Equal = 0,
    /// NFT_CMP_NEQ.
    NotEqual = 1,
    /// NFT_CMP_GTE, of values in network order.
    GreaterOrEqual = 5,
}

/// nft_nat_types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nat {
    /// NFT_NAT_SNAT.
    Source = 0,
    /// NFT_NAT_DNAT.
    Destination = 1,
}

/// nft_reject_types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// ICMP or ICMPv6: administratively prohibited. In tables of family inet.
    Prohibited,
    /// TCP's reset; only where the protocol is TCP.
    Reset,
}

impl Expression {
    /// NFTA_EXPR_NAME.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Payload { .. } => "payload",
            Self::Meta(_) | Self::SetMark => "meta",
            Self::Ct { .. } | Self::SetCtMark => "ct",
            Self::Compare { .. } => "cmp",
            Self::Bitwise { .. } => "bitwise",
            Self::HostToNetwork16 => "byteorder",
            Self::InSet { .. } | Self::FromMap(_) | Self::VerdictMap(_) => "lookup",
            Self::Immediate { .. } | Self::Verdict(_) => "immediate",
            Self::Hash { .. } => "hash",
            Self::Nat { .. } => "nat",
            Self::DestinationType => "fib",
            Self::Counter => "counter",
            Self::Reject(_) => "reject",
            Self::RouteMss => "rt",
            Self::SetMss => "exthdr",
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_the_numbers_that_the_kernel_writes() {
        let numbers: Vec<_> =
            (0..Register::COUNT).map(|count| Register::FIRST.plus(count)).map(Register::number).collect();
        assert_eq!(numbers, [1, 9, 10, 11, 2, 13, 14, 15, 3, 17, 18, 19, 4, 21, 22, 23]);
        assert_eq!(Register::FIRST.plus(20), Register::FIRST.plus(15));
    }
}
