//! The attributes of each expression.

use super::{Ct, Expression, Meta, Register, Reject};
use crate::netlink::message::Message;
use crate::netlink::nftables::value;

/// NFT_REG_VERDICT.
const VERDICT: u32 = 0;

impl Expression {
    /// NFTA_EXPR_DATA.
    pub(super) fn data(&self, message: &mut Message) {
        let first = Register::FIRST.number();
        match self {
            // NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN.
            Self::Payload { to, header, offset, length } => {
                message.be32(1, to.number()).be32(2, *header as u32).be32(3, *offset).be32(4, *length)
            }
            // NFTA_META_DREG, _KEY, _SREG.
            Self::Meta(key) => message.be32(1, first).be32(2, *key as u32),
            Self::SetMark => message.be32(2, Meta::Mark as u32).be32(3, first),
            // NFTA_CT_DREG, _KEY, _DIRECTION, _SREG.
            Self::Ct { to, key, direction } => {
                message.be32(1, to.number()).be32(2, *key as u32);
                match direction {
                    Some(direction) => message.u8(3, *direction as u8),
                    None => message,
                }
            }
            Self::SetCtMark => message.be32(2, Ct::Mark as u32).be32(4, first),
            // NFTA_CMP_SREG, _OP, _DATA.
            Self::Compare { comparison, value: bytes } => {
                message.be32(1, first).be32(2, *comparison as u32);
                value(message, 3, bytes)
            }
            // NFTA_BITWISE_SREG, _DREG, _LEN, _MASK, _XOR, _OP (NFT_BITWISE_MASK_XOR). A kernel before 5.6 skips _OP: that is the only
            // operation it has.
            Self::Bitwise { mask, xor } => {
                let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
                message.be32(1, first).be32(2, first).be32(3, length);
                value(message, 4, mask);
                value(message, 5, xor).be32(6, 0)
            }
            // NFTA_BYTEORDER_SREG, _DREG, _OP (NFT_BYTEORDER_HTON), _LEN, _SIZE.
            Self::HostToNetwork16 => message.be32(1, first).be32(2, first).be32(3, 1).be32(4, 2).be32(5, 2),
            // NFTA_LOOKUP_SET, _SREG, _FLAGS (NFT_LOOKUP_F_INV).
            Self::InSet { set, included } => {
                message.string(1, set).be32(2, first).be32(5, u32::from(!included))
            }
            // NFTA_LOOKUP_SET, _SREG, _DREG, _FLAGS.
            Self::FromMap(map) => message.string(1, map).be32(2, first).be32(3, first).be32(5, 0),
            Self::VerdictMap(map) => message.string(1, map).be32(2, first).be32(3, VERDICT).be32(5, 0),
            // NFTA_IMMEDIATE_DREG, _DATA.
            Self::Immediate { to, value: bytes } => value(message.be32(1, to.number()), 2, bytes),
            Self::Verdict(verdict) => message.be32(1, VERDICT).nest(2, |message| verdict.write(message)),
            // NFTA_HASH_SREG, _DREG, _LEN, _MODULUS, _SEED, _OFFSET, _TYPE (NFT_HASH_JENKINS).
            Self::Hash { length, modulus, seed } => message
                .be32(1, first)
                .be32(2, first)
                .be32(3, *length)
                .be32(4, *modulus)
                .be32(5, *seed)
                .be32(6, 0)
                .be32(7, 0),
            Self::Nat { kind, family, port } => {
                // NFTA_NAT_TYPE, _FAMILY, _REG_ADDR_MIN, _REG_PROTO_MIN, _FLAGS.
                message.be32(1, *kind as u32).be32(2, family.number().into()).be32(3, first);
                if let Some(register) = port {
                    message.be32(5, register.number());
                }
                // NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_SPECIFIED.
                message.be32(7, 1 | u32::from(port.is_some()) << 1)
            }
            // NFTA_FIB_DREG, _RESULT (NFT_FIB_RESULT_ADDRTYPE), _FLAGS (NFTA_FIB_F_DADDR).
            Self::DestinationType => message.be32(1, first).be32(2, 3).be32(3, 2),
            Self::Counter => message,
            // NFTA_REJECT_TYPE (NFT_REJECT_TCP_RST, NFT_REJECT_ICMPX_UNREACH), _ICMP_CODE.
            Self::Reject(Reject::Reset) => message.be32(1, 1),
            Self::Reject(Reject::Prohibited) => message.be32(1, 2).u8(2, 3),
            // NFTA_RT_DREG, _KEY (NFT_RT_TCPMSS).
            Self::RouteMss => message.be32(1, first).be32(2, 3),
            // NFTA_EXTHDR_TYPE (TCPOPT_MSS), _OFFSET, _LEN, _OP (NFT_EXTHDR_OP_TCPOPT), _SREG.
            Self::SetMss => message.u8(2, 2).be32(3, 2).be32(4, 2).be32(6, 1).be32(7, first),
        };
    }
}
