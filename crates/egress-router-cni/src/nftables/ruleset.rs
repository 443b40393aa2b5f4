//! A complete table, and the messages that create it.

use std::fmt;

use common::netlink::message::{FLAG_APPEND, FLAG_CREATE, FLAG_EXCLUSIVE, Message};
use common::netlink::nftables::{Family, comment, message};

use super::rule::Rule;
use super::set::Set;

pub use common::netlink::nftables::ChainType;

/// A table with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// The table's name, unique in its family and namespace.
    pub table: String,
    /// Of a table of family netdev: the device of its base chains, which must exist. None: the family is inet.
    pub device: Option<String>,
    /// Rules name them.
    pub sets: Vec<Set>,
    /// In any order: all are created before the first rule.
    pub chains: Vec<Chain>,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Unique in its table.
    pub name: &'static str,
    /// The hook of a base chain; none: reached only by a jump, or never. The policy is accept.
    pub base: Option<Base>,
    /// In order of evaluation.
    pub rules: Vec<Rule>,
}

/// The hook of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// Its type.
    pub kind: ChainType,
    /// The hook.
    pub hook: Hook,
    /// The priority, lowest first; connection tracking is at -200.
    pub priority: i32,
}

/// NF_INET_*, NF_NETDEV_*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Egress, of family netdev: each frame that a device sends, whichever program made it.
    Egress,
    /// Prerouting.
    Prerouting,
    /// Forward.
    Forward,
    /// Output.
    Output,
    /// Postrouting.
    Postrouting,
}

impl Hook {
    /// NFTA_HOOK_HOOKNUM.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Egress => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

impl Chain {
    /// A chain that is entered by jumps, or never.
    #[must_use]
    pub fn inner(name: &'static str, rules: Vec<Rule>) -> Self {
        Self { name, base: None, rules }
    }

    /// A chain that packets enter.
    #[must_use]
    pub fn base(name: &'static str, kind: ChainType, hook: Hook, priority: i32, rules: Vec<Rule>) -> Self {
        Self { name, base: Some(Base { kind, hook, priority }), rules }
    }
}

/// The object of a message of a batch, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The batch itself.
    Batch,
    /// The table.
    Table(&'a str),
    /// A set.
    Set(&'a str),
    /// Some of the elements of a set.
    Elements(&'a str),
    /// A chain.
    Chain(&'a str),
    /// A rule: its chain, its position from 1 on, its comment.
    Rule(&'a str, usize, &'a str),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch => write!(formatter, "the batch"),
            Self::Table(name) => write!(formatter, "table {name}"),
            Self::Set(name) => write!(formatter, "set {name}"),
            Self::Elements(name) => write!(formatter, "elements of set {name}"),
            Self::Chain(name) => write!(formatter, "chain {name}"),
            Self::Rule(chain, place, comment) => {
                write!(formatter, "rule {place} of chain {chain} ({comment})")
            }
        }
    }
}

impl Ruleset {
    /// The messages that create it, in the required order. The table must not exist.
    #[must_use]
    pub fn messages(&self) -> Vec<(Subject<'_>, Message)> {
        let mut messages = vec![(Subject::Table(&self.table), self.new_table())];
        messages.extend(self.chains.iter().map(|chain| (Subject::Chain(chain.name), self.new_chain(chain))));
        for (set, number) in self.sets.iter().zip(1..) {
            messages.push((Subject::Set(set.name), self.new_set(set, number)));
            messages.extend(self.new_elements(set).map(|message| (Subject::Elements(set.name), message)));
        }
        for chain in &self.chains {
            for (rule, place) in chain.rules.iter().zip(1..) {
                let subject = Subject::Rule(chain.name, place, &rule.comment);
                messages.push((subject, self.new_rule(chain, rule)));
            }
        }
        messages
    }

    /// The table's family.
    #[must_use]
    pub fn family(&self) -> Family {
        if self.device.is_some() { Family::Netdev } else { Family::Inet }
    }

    /// NFT_MSG_NEWTABLE.
    fn new_table(&self) -> Message {
        let mut message = message(self.family(), 0, FLAG_CREATE | FLAG_EXCLUSIVE);
        // NFTA_TABLE_NAME, NFTA_TABLE_FLAGS.
        message.string(1, &self.table).be32(2, 0);
        message
    }

    /// NFT_MSG_NEWCHAIN.
    fn new_chain(&self, chain: &Chain) -> Message {
        /// NF_ACCEPT.
        const ACCEPT: u32 = 1;
        let mut message = message(self.family(), 3, FLAG_CREATE);
        // NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME.
        message.string(1, &self.table).string(3, chain.name);
        if let Some(base) = chain.base {
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
        message
    }

    /// NFT_MSG_NEWSET.
    fn new_set(&self, set: &Set, number: u32) -> Message {
        let mut message = message(self.family(), 9, FLAG_CREATE);
        // NFTA_SET_TABLE, _NAME, _FLAGS, _KEY_TYPE, _KEY_LEN, _ID (required, though nothing refers to it).
        message.string(1, &self.table).string(2, set.name).be32(3, set.flags());
        message.be32(4, set.key.number()).be32(5, set.key.length()).be32(10, number);
        message
    }

    /// NFT_MSG_NEWSETELEM, as often as needed.
    fn new_elements<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = Message> + 'a {
        /// An element takes up to 36 bytes, and the attribute of all elements has a length of 16 bits.
        const MAX_COUNT: usize = 1500;
        // nft(8)'s flag of a range up to the last address: NFTNL_UDATA_SET_ELEM_FLAGS, four bytes,
        // SET_ELEM_F_INTERVAL_OPEN.
        let open = [&[1, 4][..], &1_u32.to_ne_bytes()].concat();
        let last = set.elements.last().filter(|last| set.interval && !last.end);
        set.elements.chunks(MAX_COUNT).map(move |elements| {
            let mut message = message(self.family(), 12, FLAG_CREATE);
            // NFTA_SET_ELEM_LIST_TABLE, _SET, _ELEMENTS.
            message.string(1, &self.table).string(2, set.name).nest(3, |message| {
                for element in elements {
                    // NFTA_LIST_ELEM: NFTA_SET_ELEM_KEY (NFTA_DATA_VALUE), NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_USERDATA.
                    message.nest(1, |message| {
                        message.nest(1, |message| {
                            message.attribute(1, &element.key);
                        });
                        if element.end {
                            message.be32(3, super::INTERVAL_END);
                        }
                        if last == Some(element) {
                            message.attribute(6, &open);
                        }
                    });
                }
            });
            message
        })
    }

    /// NFT_MSG_NEWRULE.
    fn new_rule(&self, chain: &Chain, rule: &Rule) -> Message {
        let mut message = message(self.family(), 6, FLAG_CREATE | FLAG_APPEND);
        // NFTA_RULE_TABLE, _CHAIN, _EXPRESSIONS, _USERDATA.
        message.string(1, &self.table).string(2, chain.name).nest(4, |message| {
            rule.expressions.iter().for_each(|expression| expression.write(message));
        });
        message.attribute(7, &comment::encode(&rule.comment));
        message
    }
}
