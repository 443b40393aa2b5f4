//! Reads the cluster.
//!
//! * [`inventory`]: the observed objects with their indexes.

pub mod inventory;
