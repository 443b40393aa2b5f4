//! apinetlet between the API servers of ironcore and ironcore-net.

mod connection;
mod environment;
mod garbage;
mod mapping;
mod metrics;
mod network_interface;
mod policy;
mod sweep;
mod upstream;
