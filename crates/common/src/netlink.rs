//! Netlink: rtnetlink (links, addresses, neighbours, routes, rules), nf_tables and conntrack, without a program and without an async
//! runtime.
//!
//! Types and their encoding are pure. [`socket`] sends a request and returns the kernel's reply; [`monitor`]
//! receives notifications.

pub mod address;
pub mod conntrack;
pub mod error;
#[cfg(any(test, feature = "isolated"))]
pub mod isolated;
pub mod link;
pub mod message;
pub mod monitor;
pub mod neighbour;
pub mod netconf;
pub mod nftables;
pub mod route;
pub mod rule;
pub mod socket;
mod sys;
pub mod vxlan;

pub use error::Error;
