//! What an attachment's nf_tables table holds: who may go where, what is handed on, the way back, and the record of what was
//! there before.

use std::net::IpAddr;

use crate::config::destinations::Destinations;

/// Everything that the table is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// The attachment's interface.
    pub interface: String,
    /// The interface of the pod's own network, if it has one.
    pub home: Option<String>,
    /// The attachment's mark (see [`crate::names::mark`]).
    pub mark: u32,
    /// The attachment's addresses; the first of each family is the source of what is forwarded.
    pub addresses: Vec<IpAddr>,
    /// Who may go where, and what is handed on.
    pub destinations: Destinations,
    /// The record: one line each, up to 255 bytes, kept as comments of rules in a chain of their own. [`crate::plan`] writes
    /// and reads them.
    pub notes: Vec<String>,
}
