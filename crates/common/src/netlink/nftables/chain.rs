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
    /// The device of a base chain of family netdev, which must exist.
    pub device: Option<String>,
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

/// NF_INET_*, NF_NETDEV_*.
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
    /// Egress, of family netdev: each frame that a device sends, whichever program made it.
    Egress,
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
            Self::Input | Self::Egress => 1,
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
        Self { name: name.into(), base: None, device: None, comment: String::new() }
    }

    /// A chain that packets enter.
    #[must_use]
    pub fn base(name: impl Into<String>, kind: ChainType, hook: Hook, priority: i32) -> Self {
        Self { base: Some(Base { kind, hook, priority }), ..Self::regular(name) }
    }

    /// The same chain, for the frames of this device.
    #[must_use]
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// The same chain with a comment.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = comment.into();
        self
    }

    /// Writes the attributes of NFT_MSG_NEWCHAIN behind the table.
    pub fn write(&self, message: &mut Message) {
        /// NF_ACCEPT.
        const ACCEPT: u32 = 1;
        // NFTA_CHAIN_NAME.
        message.string(3, &self.name);
        if let Some(base) = self.base {
            // NFTA_CHAIN_HOOK (NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY, NFTA_HOOK_DEV), NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE.
            message
                .nest(4, |message| {
                    message.be32(1, base.hook.number()).be32(2, base.priority.cast_unsigned());
                    if let Some(device) = &self.device {
                        message.string(3, device);
                    }
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
