//! Netlink: rtnetlink (links, addresses, routes, rules) and nf_tables, without a program and without an async runtime.
//!
//! Types and their encoding are pure. [`socket`] is the only module with IO: it sends a request and returns the kernel's reply.

pub mod address;
pub mod error;
#[cfg(any(test, feature = "isolated"))]
pub mod isolated;
pub mod link;
pub mod message;
pub mod netconf;
pub mod nftables;
pub mod route;
pub mod rule;
pub mod socket;
mod sys;

pub use error::Error;
