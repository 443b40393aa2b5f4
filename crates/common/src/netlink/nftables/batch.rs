//! Batches of changes of one table, which the kernel executes atomically.

use std::fmt;

use super::chain::Chain;
use super::rule::Rule;
use super::set::{self, Element, Set};
use super::{Family, commit, message};
use crate::netlink::error::Error;
use crate::netlink::message::{FLAG_APPEND, FLAG_CREATE, FLAG_EXCLUSIVE, Message};
use crate::netlink::socket::Socket;

/// Changes of one table, in their order. All or none of them take effect.
///
/// ```text
/// Batch::new(Family::Ipv4, "gateway")
///     .replace_table()
///     .add_chain(&Chain::base("output", ChainType::Filter, Hook::Output, 0))
///     .add_rule("output", &Rule::new().oifname("eth0").drop())
///     .commit(&mut socket)?;
/// ```
#[derive(Debug, Clone)]
pub struct Batch {
    family: Family,
    table: String,
    messages: Vec<Message>,
    /// The operation and the object of each message.
    operations: Vec<String>,
    /// The number of added rules.
    rules: usize,
    /// The last ID of a set.
    sets: u32,
}

/// NFT_MSG_*.
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const NEW_SET: u16 = 9;
const NEW_ELEMENTS: u16 = 12;
const DELETE_ELEMENTS: u16 = 14;

impl Batch {
    /// An empty batch of changes of `table`.
    #[must_use]
    pub fn new(family: Family, table: impl Into<String>) -> Self {
        Self { family, table: table.into(), messages: Vec::new(), operations: Vec::new(), rules: 0, sets: 0 }
    }

    /// Whether it has no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds a message about the table: `kind` is NFT_MSG_*, `fill` adds the attributes behind the table's name.
    fn push(
        mut self,
        operation: impl fmt::Display,
        (kind, flags): (u16, u16),
        fill: impl FnOnce(&mut Message),
    ) -> Self {
        let mut message = message(self.family, kind, flags);
        // NFTA_*_TABLE, and NFTA_TABLE_NAME.
        message.string(1, &self.table);
        fill(&mut message);
        self.messages.push(message);
        self.operations.push(operation.to_string());
        self
    }

    /// Creates the table, in place of an existing one with all of its content.
    #[must_use]
    pub fn replace_table(self) -> Self {
        // The kernel refuses to delete a table that does not exist.
        self.new_table("adding the table", FLAG_CREATE)
            .delete_table()
            .new_table("creating the table", FLAG_CREATE | FLAG_EXCLUSIVE)
    }

    fn new_table(self, operation: &str, flags: u16) -> Self {
        self.push(operation, (NEW_TABLE, flags), |message| {
            // NFTA_TABLE_FLAGS.
            message.be32(2, 0);
        })
    }

    /// Deletes the table with its content. ENOENT if there is none.
    #[must_use]
    pub fn delete_table(self) -> Self {
        self.push("deleting the table", (DELETE_TABLE, 0), |_| {})
    }

    /// Creates a chain, if it does not exist. EEXIST if there is one of another type or hook.
    #[must_use]
    pub fn add_chain(self, chain: &Chain) -> Self {
        let operation = format_args!("adding the chain {}", chain.name);
        self.push(operation, (NEW_CHAIN, FLAG_CREATE), |message| chain.write(message))
    }

    /// Appends a rule to a chain. Its sets must exist, or be added before.
    #[must_use]
    pub fn add_rule(mut self, chain: &str, rule: &Rule) -> Self {
        self.rules = self.rules.saturating_add(1);
        let operation =
            format_args!("adding rule {} of the batch, to chain {chain}{}", self.rules, rule.suffix());
        let operation = operation.to_string();
        self.push(operation, (NEW_RULE, FLAG_CREATE | FLAG_APPEND), |message| {
            // NFTA_RULE_CHAIN.
            message.string(2, chain);
            rule.write(message);
        })
    }

    /// Creates a set or map, if it does not exist. EEXIST if there is one of another type.
    #[must_use]
    pub fn add_set(mut self, set: &Set) -> Self {
        self.sets = self.sets.saturating_add(1);
        let id = self.sets;
        let operation = format_args!("adding the set {}", set.name);
        self.push(operation, (NEW_SET, FLAG_CREATE), |message| set.write(message, id))
    }

    /// Adds elements to a set or map, of any number. Equal elements may exist. EEXIST if a map has other data for the key.
    #[must_use]
    pub fn add_elements(self, set: &str, elements: &[Element]) -> Self {
        self.elements("adding elements to", (NEW_ELEMENTS, FLAG_CREATE), set, elements)
    }

    /// Deletes elements of a set or map, of any number. ENOENT if one does not exist.
    #[must_use]
    pub fn delete_elements(self, set: &str, elements: &[Element]) -> Self {
        self.elements("deleting elements of", (DELETE_ELEMENTS, 0), set, elements)
    }

    /// Deletes all elements of a set or map.
    #[must_use]
    pub fn flush_set(self, set: &str) -> Self {
        self.push(format_args!("deleting all elements of the set {set}"), (DELETE_ELEMENTS, 0), |message| {
            // NFTA_SET_ELEM_LIST_SET.
            message.string(2, set);
        })
    }

    fn elements(mut self, what: &str, request: (u16, u16), set: &str, elements: &[Element]) -> Self {
        let mut chunks = Vec::with_capacity(1);
        set::write_elements(elements, |kind, bytes| chunks.push((kind, bytes.to_vec())));
        for (kind, bytes) in chunks {
            self = self.push(format_args!("{what} the set {set}"), request, |message| {
                // NFTA_SET_ELEM_LIST_SET, _ELEMENTS.
                message.string(2, set).attribute(kind, &bytes);
            });
        }
        self
    }

    /// Sends the batch over a socket of protocol [`Netfilter`](crate::netlink::socket::Protocol::Netfilter). An empty batch is not sent. One of
    /// more than about 200 KiB needs CAP_NET_ADMIN in the initial user namespace, for its send buffer.
    ///
    /// # Errors
    /// The kernel refused the first change that the error has, and changed nothing. Without a reply of the kernel
    /// ([`Error::NoReply`]), the batch may have been executed.
    pub fn commit(self, socket: &mut Socket) -> Result<(), Error> {
        if self.messages.is_empty() {
            return Ok(());
        }
        commit(socket, self.messages).map_err(|(place, error)| {
            let operation = place.and_then(|place| self.operations.get(place));
            let operation = operation.map_or("executing the batch", String::as_str);
            error.during(format_args!("nf_tables: table {}: {operation}", self.table))
        })
    }
}

#[cfg(test)]
mod tests;
