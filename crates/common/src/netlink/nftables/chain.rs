//! Chains.

use super::comment;
use crate::netlink::message::Message;

/// A chain. Its policy is accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Unique in its table.
    pub name: String,
    /// The hook of a base chain; none: reached only by a jump.
    pub base: Option<Base>,
    /// A comment in `nft list ruleset`, or empty. At most [`comment::LIMIT`] bytes.
    pub comment: String,
}

/// The hook of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// Its type.
    pub kind: ChainType,
    /// The hook.
    pub hook: Hook,
    /// The priority, lowest first; connection tracking is at -200, DNAT at -100, SNAT at 100.
    pub priority: i32,
}

/// nft(8)'s chain types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainType {
    /// filter
    Filter,
    /// route: a packet whose mark it changes is routed again. Only of hook output.
    Route,
    /// nat: only for the first packet of a connection.
    Nat,
}

/// NF_INET_*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Prerouting.
    Prerouting,
    /// Input.
    Input,
    /// Forward.
    Forward,
    /// Output.
    Output,
    /// Postrouting.
    Postrouting,
}

impl ChainType {
    /// NFTA_CHAIN_TYPE.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Route => "route",
            Self::Nat => "nat",
        }
    }
}

impl Hook {
    /// NFTA_HOOK_HOOKNUM.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

impl Chain {
    /// A chain that is entered by jumps.
    #[must_use]
    pub fn regular(name: impl Into<String>) -> Self {
        Self { name: name.into(), base: None, comment: String::new() }
    }

    /// A chain that packets enter.
    #[must_use]
    pub fn base(name: impl Into<String>, kind: ChainType, hook: Hook, priority: i32) -> Self {
        Self { base: Some(Base { kind, hook, priority }), ..Self::regular(name) }
    }

    /// The same chain with a comment.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = comment.into();
        self
    }

    /// Writes the attributes of NFT_MSG_NEWCHAIN behind the table.
    pub(super) fn write(&self, message: &mut Message) {
        /// NF_ACCEPT.
        const ACCEPT: u32 = 1;
        // NFTA_CHAIN_NAME.
        message.string(3, &self.name);
        if let Some(base) = self.base {
            // NFTA_CHAIN_HOOK (NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY), NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE.
            message
                .nest(4, |message| {
                    message.be32(1, base.hook.number()).be32(2, base.priority.cast_unsigned());
                })
                .be32(5, ACCEPT)
                .string(7, base.kind.name());
        }
        if !self.comment.is_empty() {
            // NFTA_CHAIN_USERDATA: NFTNL_UDATA_CHAIN_COMMENT.
            message.attribute(12, &comment::encode(&self.comment));
        }
    }
}
