//! The only reader: the target cluster and OpenStack become a [`snapshot::Snapshot`].

pub mod cloud;
pub mod identity;
mod kinds;
pub mod pages;
pub mod snapshot;
pub mod target;
