//! apinetlet between the API servers of ironcore and ironcore-net.

mod certificates;
mod connection;
pub mod environment;
mod exhaustion;
mod garbage;
mod independent;
mod mapping;
mod metrics;
mod nat_scaling;
mod nat_targets;
mod network_interface;
mod outage;
pub mod permissions;
mod policy;
mod prefixes;
mod rights;
mod sweep;
mod two_writers;
mod upstream;
mod zones;
