//! Netlink messages: rtnetlink (links, addresses, routes, rules) and nf_tables.
//!
//! Types and their encoding are pure; [`socket`] is the only module with IO.

pub mod address;
pub mod error;
pub mod link;
pub mod message;
pub mod netconf;
pub mod nftables;
pub mod route;
pub mod rule;
pub mod socket;

pub use error::Error;
