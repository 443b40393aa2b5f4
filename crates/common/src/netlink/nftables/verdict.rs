//! Verdicts of rules and of verdict maps.

use crate::netlink::message::{Attribute, Malformed, Message};

/// nft_verdicts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// NF_ACCEPT: later chains of the hook still decide.
    Accept,
    /// NF_DROP.
    Drop,
    /// NFT_JUMP: to a chain of the same table, and back.
    Jump(String),
    /// NFT_GOTO: to a chain of the same table, and behind its end back to the caller of this chain.
    Goto(String),
    /// NFT_RETURN: back to the calling chain; in a base chain, its policy.
    Return,
}

/// NFTA_DATA_VERDICT.
const VERDICT: u16 = 2;
/// NFTA_VERDICT_CODE.
const CODE: u16 = 1;
/// NFTA_VERDICT_CHAIN.
const CHAIN: u16 = 2;

impl Verdict {
    /// Writes NFTA_DATA_VERDICT: the code and, for a jump, the chain.
    pub(super) fn write(&self, message: &mut Message) {
        let (code, chain): (i32, _) = match self {
            Self::Drop => (0, None),
            Self::Accept => (1, None),
            Self::Jump(chain) => (-3, Some(chain)),
            Self::Goto(chain) => (-4, Some(chain)),
            Self::Return => (-5, None),
        };
        message.nest(VERDICT, |message| {
            message.be32(CODE, code.cast_unsigned());
            if let Some(chain) = chain {
                message.string(CHAIN, chain);
            }
        });
    }

    /// Reads NFTA_DATA_VERDICT.
    ///
    /// # Errors
    /// It is malformed, or an unknown verdict.
    pub(super) fn read(verdict: &Attribute<'_>) -> Result<Self, Malformed> {
        let (mut code, mut chain) = (None, String::new());
        for attribute in verdict.nested() {
            let attribute = attribute?;
            match attribute.kind {
                CODE => code = Some(attribute.be32()?.cast_signed()),
                CHAIN => chain = attribute.string(),
                _ => {}
            }
        }
        match code {
            Some(0) => Ok(Self::Drop),
            Some(1) => Ok(Self::Accept),
            Some(-3) => Ok(Self::Jump(chain)),
            Some(-4) => Ok(Self::Goto(chain)),
            Some(-5) => Ok(Self::Return),
            _ => Err(Malformed("a verdict")),
        }
    }
}
