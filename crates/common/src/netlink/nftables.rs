//! nf_tables over netlink (linux/netfilter/nf_tables.h).
//!
//! A [`Batch`] changes one table atomically: [`Chain`]s, [`Rule`]s of [`expression`]s, and [`Set`]s (also maps and verdict maps) with
//! their [`Element`]s. [`dump`] reads a table.

pub mod batch;
pub mod chain;
pub mod comment;
pub mod compare;
pub mod dump;
pub mod expression;
pub mod interval;
pub mod rule;
pub mod set;
pub mod verdict;

use super::error::Error;
use super::message::{FLAG_ACK, Message};
use super::socket::Socket;

pub use batch::Batch;
pub use chain::{Chain, ChainType, Hook};
pub use rule::{Field, Rule};
pub use set::{DataType, Element, Set};
pub use verdict::Verdict;

/// The family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// NFPROTO_INET: IPv4 and IPv6.
    Inet = 1,
    /// NFPROTO_IPV4.
    Ipv4 = 2,
    /// NFPROTO_NETDEV: the frames of single devices.
    Netdev = 5,
    /// NFPROTO_IPV6.
    Ipv6 = 10,
}

impl Family {
    /// nfgen_family.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// nf_tables' subsystem of nfnetlink, NFNL_SUBSYS_NFTABLES.
const SUBSYSTEM: u16 = 10;

/// A message of nf_tables about a table of `family`; `kind` is NFT_MSG_*.
#[must_use]
pub fn message(family: Family, kind: u16, flags: u16) -> Message {
    // struct nfgenmsg: family, version, resource.
    Message::new(SUBSYSTEM << 8 | kind, flags, &[family.number(), 0, 0, 0])
}

/// NFT_MSG_GETTABLE, for the tables of all families.
#[must_use]
pub fn all_tables() -> Message {
    Message::new(SUBSYSTEM << 8 | 1, 0, &[0; 4])
}

/// `messages` between NFNL_MSG_BATCH_BEGIN and NFNL_MSG_BATCH_END: they are executed atomically.
#[must_use]
pub fn batch(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    let edge = |kind| Message::new(kind, 0, &[0, 0, high, low]);
    [edge(0x10)].into_iter().chain(messages).chain([edge(0x11)]).collect()
}

/// Sends `messages` as a batch.
///
/// # Errors
/// The kernel refused the batch, and changed nothing: the position of the first refused message, or none for the batch itself.
/// Without the kernel's reply ([`Error::NoReply`]), the batch may have been executed.
pub fn commit(socket: &mut Socket, messages: Vec<Message>) -> Result<(), (Option<usize>, Error)> {
    commit_with(socket, messages, |_, _| {})
}

/// As [`commit`]. `echo` gets type and payload of each object that a message with NLM_F_ECHO has made.
///
/// # Errors
/// As [`commit`].
pub fn commit_with(
    socket: &mut Socket,
    mut messages: Vec<Message>,
    echo: impl FnMut(u16, &[u8]),
) -> Result<(), (Option<usize>, Error)> {
    // After the last acknowledgement, all messages are processed.
    if let Some(last) = messages.pop() {
        messages.push(last.with_flags(FLAG_ACK));
    }
    let replies = socket.transaction_with(&batch(messages), echo).map_err(|error| (None, error))?;
    for (place, reply) in replies.into_iter().enumerate() {
        if let Some(refusal) = reply {
            // The batch's begin is before the first.
            return Err((place.checked_sub(1), Error::Refused(refusal)));
        }
    }
    Ok(())
}

/// NFTA_DATA_VALUE in the attribute `kind`.
fn value<'a>(message: &'a mut Message, kind: u16, bytes: &[u8]) -> &'a mut Message {
    message.nest(kind, |message| {
        message.attribute(1, bytes);
    })
}
