//! A complete table, and the messages that create it.

use std::fmt;

use common::netlink::message::{FLAG_APPEND, FLAG_CREATE, FLAG_EXCLUSIVE, Message};
use common::netlink::nftables::{Chain, Element, Family, Rule, Set, message};

use super::fingerprint::{CHAIN, ELEMENTS, RULE, SET, TABLE};

/// NFT_SET_ELEM_INTERVAL_END.
const INTERVAL_END: u32 = 1;

/// A table with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// The table's family.
    pub family: Family,
    /// The table's name, unique in its family and namespace.
    pub table: String,
    /// Rules name them.
    pub sets: Vec<(Set, Vec<Element>)>,
    /// In any order, because all are created before the first rule. Rules are in order of evaluation.
    pub chains: Vec<(Chain, Vec<Rule>)>,
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
    /// A rule, with its chain and its position from 1 on.
    Rule(&'a str, usize, &'a Rule),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch => write!(formatter, "the batch"),
            Self::Table(name) => write!(formatter, "table {name}"),
            Self::Set(name) => write!(formatter, "set {name}"),
            Self::Elements(name) => write!(formatter, "elements of set {name}"),
            Self::Chain(name) => write!(formatter, "chain {name}"),
            Self::Rule(chain, place, rule) => {
                write!(formatter, "rule {place} of chain {chain}{}", rule.suffix())
            }
        }
    }
}

impl Ruleset {
    /// The messages that create it, in the required order. The table must not exist.
    #[must_use]
    pub fn messages(&self) -> Vec<(Subject<'_>, Message)> {
        let mut table = self.message(TABLE, FLAG_CREATE | FLAG_EXCLUSIVE);
        // NFTA_TABLE_FLAGS.
        table.be32(2, 0);
        let mut messages = vec![(Subject::Table(&self.table), table)];
        for (chain, _) in &self.chains {
            let mut message = self.message(CHAIN, FLAG_CREATE);
            chain.write(&mut message);
            messages.push((Subject::Chain(&chain.name), message));
        }
        for ((set, elements), number) in self.sets.iter().zip(1..) {
            let mut message = self.message(SET, FLAG_CREATE);
            set.write(&mut message, number);
            messages.push((Subject::Set(&set.name), message));
            let added = self.new_elements(set, elements);
            messages.extend(added.map(|message| (Subject::Elements(&set.name), message)));
        }
        for (chain, rules) in &self.chains {
            for (rule, place) in rules.iter().zip(1..) {
                let mut message = self.message(RULE, FLAG_CREATE | FLAG_APPEND);
                // NFTA_RULE_CHAIN.
                message.string(2, &chain.name);
                rule.write(&mut message);
                messages.push((Subject::Rule(&chain.name, place, rule), message));
            }
        }
        messages
    }

    /// A message about the table or one of its objects: NFTA_TABLE_NAME, NFTA_*_TABLE.
    fn message(&self, kind: u16, flags: u16) -> Message {
        let mut message = message(self.family, kind, flags);
        message.string(1, &self.table);
        message
    }

    /// NFT_MSG_NEWSETELEM, as often as needed.
    fn new_elements<'a>(
        &'a self,
        set: &'a Set,
        elements: &'a [Element],
    ) -> impl Iterator<Item = Message> + 'a {
        /// An element takes up to 36 bytes, and the attribute of all elements has a length of 16 bits.
        const MAX_COUNT: usize = 1500;
        // nft(8)'s flag of a range up to the last address: NFTNL_UDATA_SET_ELEM_FLAGS, four bytes,
        // SET_ELEM_F_INTERVAL_OPEN.
        let open = [&[1, 4][..], &1_u32.to_ne_bytes()].concat();
        let last = elements.last().filter(|last| set.interval && !last.end);
        elements.chunks(MAX_COUNT).map(move |elements| {
            let mut message = self.message(ELEMENTS, FLAG_CREATE);
            // NFTA_SET_ELEM_LIST_SET, _ELEMENTS.
            message.string(2, &set.name).nest(3, |message| {
                for element in elements {
                    // NFTA_LIST_ELEM: NFTA_SET_ELEM_KEY (NFTA_DATA_VALUE), NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_USERDATA.
                    message.nest(1, |message| {
                        message.nest(1, |message| {
                            message.attribute(1, &element.key);
                        });
                        if element.end {
                            message.be32(3, INTERVAL_END);
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
}
